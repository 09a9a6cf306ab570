// The ten characters on either side of a candidate sentence boundary and the tokens in them; the
// private part of sentences.h. Plain values and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "data/character.h"

namespace starling::data {

inline constexpr size_t kWindow = 10;  // characters of context on either side

// Up to ten characters beside a delimiter, with their classes.
struct Context {
  std::array<uint32_t, kWindow> value{};
  std::array<uint8_t, kWindow> classes{};
  size_t size = 0;

  // Whether character i belongs to a run of letters (`letters`) or of decimal digits.
  bool InRun(size_t i, bool letters) const {
    return letters ? (classes[i] & kWord) != 0 && (classes[i] & kDecimal) == 0
                   : (classes[i] & kDecimal) != 0;
  }
};

// The characters before and from byte `at`.
Context LeftOf(std::string_view text, size_t at, const CharacterTable& table);
Context RightOf(std::string_view text, size_t at, const CharacterTable& table);

// Characters [begin, end) of a context: a run of letters, a run of digits, or one other character.
struct Token {
  const Context* context = nullptr;
  size_t begin = 0;
  size_t end = 0;

  bool empty() const { return begin == end; }
  size_t size() const { return end - begin; }
  uint32_t first() const { return context->value[begin]; }
  // All characters have one of the classes `bits`.
  bool All(uint8_t bits) const {
    for (size_t i = begin; i < end; ++i) {
      if ((context->classes[i] & bits) == 0) return false;
    }
    return true;
  }
  // As str.islower(): something has case, and nothing is upper or title case.
  bool IsLower() const {
    bool cased = false;
    for (size_t i = begin; i < end; ++i) {
      if ((context->classes[i] & (kUpper | kTitle)) != 0) return false;
      cased = cased || (context->classes[i] & kLower) != 0;
    }
    return cased;
  }
  bool IsLowerAlpha() const { return !empty() && All(kAlpha) && IsLower(); }
  std::string Lower() const;  // UTF-8
};

// First and last token; empty when there is only white space.
Token FirstToken(const Context& context);
Token LastToken(const Context& context);
// First run of letters or digits, wherever it starts; empty when there is none.
Token FirstWord(const Context& context);

// Bytes of the smiley [=:;]-?[)(]{1,3} at `at`, or 0.
size_t SmileyLength(std::string_view text, size_t at);
// Whether one follows the white space at the start of the context.
bool StartsWithSmiley(const Context& context);

}  // namespace starling::data
