// UTF-8 by code points, for text that was checked at the door (text_reader). Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace starling::data {

// A code point and how many bytes it took.
struct CodePoint {
  uint32_t value;
  uint32_t bytes;
};

// The code point that starts at `at`. Never reads past the end: a broken sequence counts as one
// byte with the value U+FFFD. REQUIRES: at < text.size().
inline CodePoint DecodeAt(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const auto continues = [&](size_t i) {
    return at + i < text.size() && (static_cast<uint8_t>(text[at + i]) & 0xC0) == 0x80;
  };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first >= 0xC2 && first < 0xE0 && continues(1)) {
    return {((first & 0x1F) << 6) | (byte(1) & 0x3Fu), 2};
  }
  if (first >= 0xE0 && first < 0xF0 && continues(1) && continues(2)) {
    return {((first & 0x0F) << 12) | ((byte(1) & 0x3Fu) << 6) | (byte(2) & 0x3Fu), 3};
  }
  if (first >= 0xF0 && first < 0xF5 && continues(1) && continues(2) && continues(3)) {
    return {((first & 0x07) << 18) | ((byte(1) & 0x3Fu) << 12) | ((byte(2) & 0x3Fu) << 6) |
                (byte(3) & 0x3Fu),
            4};
  }
  return {0xFFFD, 1};
}

// Start of the code point that ends before `at`. REQUIRES: 0 < at <= text.size().
inline size_t PreviousStart(std::string_view text, size_t at) {
  size_t start = at - 1;
  while (start > 0 && at - start < 4 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
  return start;
}

// Offset of the first byte that is not strict UTF-8 (overlong forms, surrogates and values above
// U+10FFFF are refused too), or npos.
inline size_t FindInvalidUtf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    if (static_cast<uint8_t>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const CodePoint c = DecodeAt(text, i);
    const bool overlong = (c.bytes == 3 && c.value < 0x800) || (c.bytes == 4 && c.value < 0x10000);
    const bool surrogate = c.value >= 0xD800 && c.value < 0xE000;
    if (c.bytes == 1 || overlong || surrogate || c.value > 0x10FFFF) return i;
    i += c.bytes;
  }
  return std::string_view::npos;
}

}  // namespace starling::data
