// Character classes as the reference's regular expressions and string methods see them (Python's
// str: isspace, isalnum, isdecimal, isalpha, isdigit, islower, isupper, istitle), from ICU's
// tables. Thread-safe; the table is made at first use.
#pragma once

#include <array>
#include <cstdint>

namespace starling::data {

enum CharacterClass : uint8_t {
  kSpace = 1,    // white space incl. no-break spaces and the separators U+001C–U+001F
  kWord = 2,     // letters, anything with a numeric value, underscore
  kDecimal = 4,  // decimal digits
  kAlpha = 8,    // letters
  kDigit = 16,   // decimal digits and superscripts and the like
  kLower = 32,
  kUpper = 64,
  kTitle = 128,
};

uint8_t ComputeClass(uint32_t c);

// Bits of CharacterClass for code point `c`.
class CharacterTable {
 public:
  static const CharacterTable& Get();
  uint8_t operator[](uint32_t c) const {
    return c < classes_.size() ? classes_[c] : ComputeClass(c);
  }

 private:
  CharacterTable();
  std::array<uint8_t, 0x10000> classes_;
};

// Lower case of one code point, for comparison with ASCII and Cyrillic word lists: letters whose
// lower case is longer than one code point stay as they are and match nothing.
uint32_t ToLower(uint32_t c);

}  // namespace starling::data
