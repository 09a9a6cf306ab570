// CRC32C (Castagnoli), by the processor's instruction where it has one. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace starling {

// CRC of `data` appended to bytes whose CRC is `crc` (0 for none).
uint32_t Crc32c(std::string_view data, uint32_t crc = 0);
uint32_t Crc32c(const void* data, size_t bytes, uint32_t crc = 0);

}  // namespace starling
