// Where the reference vectors are: the folder named by STARLING_SHARED_DIR when it is set (so that
// other vectors of the same format can be tried), else the copies in tests/parity/vectors. Include
// torch before this in a file that needs it: this includes Catch2.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

namespace starling::testing {

// Folder with corpora, oracles and traces; it may be absent.
inline std::string SharedDir() {
  const char* set = std::getenv("STARLING_SHARED_DIR");
  if (set != nullptr && *set != '\0') return set;
  return std::string(STARLING_SOURCE_DIR) + "/../shared";
}

// Path of a parity file or folder, e.g. ParityPath("p01_tiny/vectors.safetensors"), which exists:
// without it the test fails. Only a set that STARLING_SHARED_DIR names may lack it; then the test
// is skipped.
inline std::string ParityPath(const std::string& name) {
  const char* set = std::getenv("STARLING_SHARED_DIR");
  const bool given = set != nullptr && *set != '\0';
  const std::string folder = given ? std::string(set) + "/parity/"
                                   : std::string(STARLING_SOURCE_DIR) + "/tests/parity/vectors/";
  const std::string path = folder + name;
  const bool exists = std::filesystem::exists(path);
  if (!exists && given) SKIP(path << " is absent");
  if (!exists) FAIL(path << " is absent");
  return path;
}

inline std::string ReadWhole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// The parsed JSON file `name` of the parity folder; throws on malformed JSON.
inline nlohmann::json ParityJson(const std::string& name) {
  return nlohmann::json::parse(ReadWhole(ParityPath(name)));
}

}  // namespace starling::testing
