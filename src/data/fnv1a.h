// FNV-1a, 64 bits: a quick hash of bytes that is the same everywhere. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace starling::data {

inline uint64_t Fnv1a(std::string_view bytes) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3;
  return hash;
}

}  // namespace starling::data
