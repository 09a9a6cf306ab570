#include "data/sentence_context.h"

#include "data/unicode_tables.h"
#include "data/utf8.h"

namespace starling::data {
Context LeftOf(std::string_view text, size_t at, const CharacterTable& table) {
  Context context;
  size_t start = at;
  while (start > 0 && context.size < kWindow) {
    start = PreviousStart(text, start);
    ++context.size;
  }
  for (size_t i = 0; i < context.size; ++i) {
    const CodePoint c = DecodeAt(text, start);
    context.value[i] = c.value;
    context.classes[i] = table[c.value];
    start += c.bytes;
  }
  return context;
}

Context RightOf(std::string_view text, size_t at, const CharacterTable& table) {
  Context context;
  while (at < text.size() && context.size < kWindow) {
    const CodePoint c = DecodeAt(text, at);
    context.value[context.size] = c.value;
    context.classes[context.size++] = table[c.value];
    at += c.bytes;
  }
  return context;
}

std::string Token::Lower() const {
  std::string lower;
  for (size_t i = begin; i < end; ++i) AppendUtf8(ToLower(context->value[i]), &lower);
  return lower;
}

Token FirstToken(const Context& context) {
  size_t begin = 0;
  while (begin < context.size && (context.classes[begin] & kSpace) != 0) ++begin;
  if (begin == context.size) return {&context, begin, begin};
  size_t end = begin + 1;
  if ((context.classes[begin] & kWord) != 0) {
    const bool letters = context.InRun(begin, true);
    while (end < context.size && context.InRun(end, letters)) ++end;
  }
  return {&context, begin, end};
}

Token LastToken(const Context& context) {
  size_t end = context.size;
  while (end > 0 && (context.classes[end - 1] & kSpace) != 0) --end;
  if (end == 0) return {&context, 0, 0};
  size_t begin = end - 1;
  if ((context.classes[begin] & kWord) != 0) {
    const bool letters = context.InRun(begin, true);
    while (begin > 0 && context.InRun(begin - 1, letters)) --begin;
  }
  return {&context, begin, end};
}

Token FirstWord(const Context& context) {
  for (size_t i = 0; i < context.size; ++i) {
    if ((context.classes[i] & kWord) == 0) continue;
    const bool letters = context.InRun(i, true);
    size_t end = i + 1;
    while (end < context.size && context.InRun(end, letters)) ++end;
    return {&context, i, end};
  }
  return {&context, 0, 0};
}

size_t SmileyLength(std::string_view text, size_t at) {
  if (at >= text.size() || (text[at] != '=' && text[at] != ':' && text[at] != ';')) return 0;
  size_t end = at + 1;
  if (end < text.size() && text[end] == '-') ++end;
  const size_t mouth = end;
  while (end < text.size() && end - mouth < 3 && (text[end] == ')' || text[end] == '(')) ++end;
  return end > mouth ? end - at : 0;
}

bool StartsWithSmiley(const Context& context) {
  std::string ascii;
  size_t i = 0;
  while (i < context.size && (context.classes[i] & kSpace) != 0) ++i;
  for (; i < context.size; ++i) {
    ascii.push_back(context.value[i] < 0x80 ? static_cast<char>(context.value[i]) : '\x01');
  }
  return SmileyLength(ascii, 0) > 0;
}

}  // namespace starling::data
