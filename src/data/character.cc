#include "data/character.h"

#include <unicode/uchar.h>

namespace starling::data {
namespace {

bool IsSpace(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

}  // namespace

uint8_t ComputeClass(uint32_t code) {
  const UChar32 c = static_cast<UChar32>(code);
  uint8_t bits = 0;
  if (IsSpace(code)) bits |= kSpace;
  const int32_t numeric = u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE);
  const bool alpha = u_isalpha(c);
  if (alpha) bits |= kAlpha;
  if (alpha || numeric != U_NT_NONE || c == '_') bits |= kWord;
  if (numeric == U_NT_DECIMAL) bits |= kDecimal;
  if (numeric == U_NT_DECIMAL || numeric == U_NT_DIGIT) bits |= kDigit;
  if (u_hasBinaryProperty(c, UCHAR_LOWERCASE)) bits |= kLower;
  if (u_hasBinaryProperty(c, UCHAR_UPPERCASE)) bits |= kUpper;
  if (u_charType(c) == U_TITLECASE_LETTER) bits |= kTitle;
  return bits;
}

CharacterTable::CharacterTable() {
  for (uint32_t c = 0; c < classes_.size(); ++c) classes_[c] = ComputeClass(c);
}

const CharacterTable& CharacterTable::Get() {
  static const CharacterTable& table = *new CharacterTable;
  return table;
}

uint32_t ToLower(uint32_t c) {
  constexpr uint32_t kCapitalIWithDot = 0x130;  // its lower case is "i" and a combining dot
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  if (c == kCapitalIWithDot) return c;
  return static_cast<uint32_t>(u_tolower(static_cast<UChar32>(c)));
}

}  // namespace starling::data
