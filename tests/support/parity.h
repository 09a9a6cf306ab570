// Where the reference vectors are: the folder named by STARLING_SHARED_DIR when it is set (so that
// other vectors of the same format can be tried), else the copies in tests/parity/vectors.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace starling::testing {

// Folder with corpora, oracles and traces; it may be absent.
inline std::string SharedDir() {
  const char* set = std::getenv("STARLING_SHARED_DIR");
  if (set != nullptr && *set != '\0') return set;
  return std::string(STARLING_SOURCE_DIR) + "/../shared";
}

// Path of a parity file or folder, e.g. ParityPath("p01_tiny/vectors.safetensors").
inline std::string ParityPath(const std::string& name) {
  const char* set = std::getenv("STARLING_SHARED_DIR");
  if (set != nullptr && *set != '\0') return std::string(set) + "/parity/" + name;
  return std::string(STARLING_SOURCE_DIR) + "/tests/parity/vectors/" + name;
}

inline std::string ReadWhole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace starling::testing
