#include "starling/data/sentences.h"

#include <array>
#include <optional>
#include <string>

#include "data/abbreviations.h"
#include "data/character.h"
#include "data/sentence_context.h"
#include "data/utf8.h"

namespace starling::data {
namespace {

constexpr size_t kBulletSize = 20;  // characters of the longest list bullet

constexpr std::string_view kRuleNames[] = {"",
                                           "empty_side",
                                           "no_space_prefix",
                                           "lower_right",
                                           "delimiter_right",
                                           "sokr_left",
                                           "inside_pair_sokr",
                                           "initials_left",
                                           "list_item",
                                           "close_quote",
                                           "close_bracket",
                                           "dash_right"};

bool IsEnding(uint32_t c) { return c == '.' || c == '?' || c == '!' || c == 0x2026; }
bool IsCloseQuote(uint32_t c) { return c == 0xBB || c == 0x201D || c == 0x2019; }
bool IsGenericQuote(uint32_t c) { return c == '"' || c == 0x201E || c == '\''; }
bool IsCloseBracket(uint32_t c) { return c == ')' || c == ']' || c == '}'; }
bool IsDash(uint32_t c) {
  return c == 0x2011 || c == 0x2013 || c == 0x2014 || c == 0x2212 || c == '-';
}
bool IsDelimiter(uint32_t c) {
  return IsEnding(c) || c == ';' || IsCloseQuote(c) || IsGenericQuote(c) || IsCloseBracket(c);
}

// One candidate boundary with all that the rules look at.
struct Boundary {
  uint32_t delimiter = 0;  // code point; 0 for a smiley
  std::string_view chunk;  // the sentence so far, without the delimiter
  Context left, right;
  Token left_token, right_token;
  const CharacterTable* table = nullptr;
};

// A rule's opinion: join (true), an end of the questions without opinion (false), or go on.
enum class Opinion { kJoin, kAskOn };

Opinion JoinIf(bool condition) { return condition ? Opinion::kJoin : Opinion::kAskOn; }

Opinion DelimiterRight(const Boundary& b) {
  const uint32_t right = b.right_token.size() == 1 ? b.right_token.first() : 0;
  if (IsGenericQuote(right)) return Opinion::kAskOn;
  return JoinIf(IsDelimiter(right) || StartsWithSmiley(b.right));
}

// Whether what follows an abbreviation shows that the sentence goes on.
bool GoesOn(const Token& right) {
  return right.All(kDigit) || !right.All(kAlpha) || right.IsLower();
}

// The pair "x.y" at the end of the left context, single word characters with optional white space
// between; lower case. Nothing is required before x.
std::optional<std::pair<std::string, std::string>> PairToTheLeft(const Context& left) {
  size_t i = left.size;
  const auto skip_spaces = [&] {
    while (i > 0 && (left.classes[i - 1] & kSpace) != 0) --i;
  };
  const auto word_character = [&] { return i > 0 && (left.classes[i - 1] & kWord) != 0; };
  skip_spaces();
  if (!word_character()) return std::nullopt;
  const size_t second = --i;
  skip_spaces();
  if (i == 0 || left.value[i - 1] != '.') return std::nullopt;
  --i;
  skip_spaces();
  if (!word_character()) return std::nullopt;
  --i;
  return std::pair(Token{&left, i, i + 1}.Lower(), Token{&left, second, second + 1}.Lower());
}

Opinion AbbreviationLeft(const Boundary& b) {
  if (b.delimiter != '.') return Opinion::kAskOn;
  if (const auto pair = PairToTheLeft(b.left)) {
    if (IsHeadPair(pair->first, pair->second)) return Opinion::kJoin;
    if (IsKnownPair(pair->first, pair->second)) return JoinIf(GoesOn(b.right_token));
  }
  const std::string left = b.left_token.Lower();
  if (IsHeadAbbreviation(left)) return Opinion::kJoin;
  return JoinIf(IsKnownAbbreviation(left) && GoesOn(b.right_token));
}

Opinion InsidePair(const Boundary& b) {
  return JoinIf(b.delimiter == '.' && IsKnownPair(b.left_token.Lower(), b.right_token.Lower()));
}

Opinion InitialsLeft(const Boundary& b) {
  if (b.delimiter != '.') return Opinion::kAskOn;
  if (b.left_token.size() == 1 && b.left_token.All(kUpper)) return Opinion::kJoin;
  return JoinIf(IsInitials(b.left_token.Lower()));
}

bool IsBulletLetter(uint32_t c) {
  const uint32_t lower = ToLower(c);
  return c == 0xA7 || (lower >= 0x430 && lower <= 0x435) || (lower >= 'a' && lower <= 'f');
}

bool IsRoman(uint32_t c) { return c == 'I' || c == 'V' || c == 'X' || c == 'M' || c == 'L'; }

// Whether the token [begin, begin + …) of `chunk` could be part of a list bullet.
class BulletCheck {
 public:
  explicit BulletCheck(const CharacterTable& table) : table_(table) {}

  // Every token of `chunk` is digits, "." or ")", one bullet letter, or a Roman numeral.
  bool AllTokens(std::string_view chunk) const {
    size_t at = 0, characters = 0;
    std::array<uint32_t, kBulletSize> values{};
    while (at < chunk.size()) {
      if (characters == kBulletSize) return false;
      const CodePoint c = DecodeAt(chunk, at);
      values[characters++] = c.value;
      at += c.bytes;
    }
    for (size_t i = 0; i < characters;) {
      size_t end = i + 1;
      if ((table_[values[i]] & kSpace) == 0) {
        while ((table_[values[i]] & kWord) != 0 && end < characters &&
               SameRun(values[i], values[end]))
          ++end;
        if (!IsBullet(values.data() + i, end - i)) return false;
      }
      i = end;
    }
    return true;
  }

 private:
  bool SameRun(uint32_t a, uint32_t b) const {
    return (table_[b] & kWord) != 0 && (table_[a] & kDecimal) == (table_[b] & kDecimal);
  }
  bool IsBullet(const uint32_t* token, size_t size) const {
    bool digits = true, roman = true;
    for (size_t i = 0; i < size; ++i) {
      digits = digits && (table_[token[i]] & kDigit) != 0;
      roman = roman && IsRoman(token[i]);
    }
    if (digits || roman) return true;
    return size == 1 && (token[0] == '.' || token[0] == ')' || IsBulletLetter(token[0]));
  }

  const CharacterTable& table_;
};

Opinion ListItem(const Boundary& b) {
  if (b.delimiter != '.' && b.delimiter != ')') return Opinion::kAskOn;
  return JoinIf(BulletCheck(*b.table).AllTokens(b.chunk));
}

// A closing mark ends the sentence only after an ending.
Opinion CloseBound(const Boundary& b) {
  return JoinIf(b.left_token.size() != 1 || !IsEnding(b.left_token.first()));
}

Opinion CloseQuote(const Boundary& b) {
  if (IsCloseQuote(b.delimiter)) return CloseBound(b);
  if (!IsGenericQuote(b.delimiter)) return Opinion::kAskOn;
  const bool space_before = b.left.size > 0 && (b.left.classes[b.left.size - 1] & kSpace) != 0;
  return space_before ? Opinion::kJoin : CloseBound(b);
}

Opinion DashRight(const Boundary& b) {
  if (b.right_token.size() != 1 || !IsDash(b.right_token.first())) return Opinion::kAskOn;
  return JoinIf(FirstWord(b.right).IsLowerAlpha());
}

// The rule that joins here, or kNone.
SentenceRule Decide(const Boundary& b) {
  if (b.left_token.empty() || b.right_token.empty()) return SentenceRule::kEmptySide;
  if ((b.right.classes[0] & kSpace) == 0) return SentenceRule::kNoSpacePrefix;
  if (b.right_token.IsLowerAlpha()) return SentenceRule::kLowerRight;
  if (DelimiterRight(b) == Opinion::kJoin) return SentenceRule::kDelimiterRight;
  if (AbbreviationLeft(b) == Opinion::kJoin) return SentenceRule::kSokrLeft;
  if (InsidePair(b) == Opinion::kJoin) return SentenceRule::kInsidePairSokr;
  if (InitialsLeft(b) == Opinion::kJoin) return SentenceRule::kInitialsLeft;
  if (ListItem(b) == Opinion::kJoin) return SentenceRule::kListItem;
  if (CloseQuote(b) == Opinion::kJoin) return SentenceRule::kCloseQuote;
  if (IsCloseBracket(b.delimiter) && CloseBound(b) == Opinion::kJoin) {
    return SentenceRule::kCloseBracket;
  }
  if (DashRight(b) == Opinion::kJoin) return SentenceRule::kDashRight;
  return SentenceRule::kNone;
}

// Bytes that can start a delimiter; most text is skipped by this table alone.
constexpr std::array<bool, 256> MakeInteresting() {
  std::array<bool, 256> table{};
  for (unsigned char c : {'.', '?', '!', ';', ':', '=', '"', '\'', ')', ']', '}'}) table[c] = true;
  table[0xC2] = table[0xE2] = true;
  return table;
}
constexpr std::array<bool, 256> kInteresting = MakeInteresting();

// Bytes of the delimiter at `at`, or 0; its code point (0 for a smiley) goes to `value`.
size_t DelimiterLength(std::string_view text, size_t at, uint32_t* value) {
  *value = 0;
  if (const size_t smiley = SmileyLength(text, at); smiley > 0) return smiley;
  const CodePoint c = DecodeAt(text, at);
  if (!IsDelimiter(c.value)) return 0;
  *value = c.value;
  return c.bytes;
}

ByteSpan Strip(std::string_view text, ByteSpan span, const CharacterTable& table) {
  while (span.begin < span.end) {
    const CodePoint c = DecodeAt(text, span.begin);
    if ((table[c.value] & kSpace) == 0) break;
    span.begin += c.bytes;
  }
  while (span.begin < span.end) {
    const size_t start = PreviousStart(text, span.end);
    if ((table[DecodeAt(text, start).value] & kSpace) == 0) break;
    span.end = start;
  }
  return span;
}

}  // namespace

std::string_view SentenceRuleName(SentenceRule rule) {
  return kRuleNames[static_cast<size_t>(rule)];
}

std::vector<ByteSpan> SegmentSentences(std::string_view text,
                                       std::vector<SentenceDecision>* decisions) {
  const CharacterTable& table = CharacterTable::Get();
  std::vector<ByteSpan> sentences;
  size_t chunk_begin = 0;
  for (size_t at = 0; at < text.size();) {
    if (!kInteresting[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    Boundary b;
    const size_t length = DelimiterLength(text, at, &b.delimiter);
    if (length == 0) {
      ++at;
      continue;
    }
    const size_t stop = at + length;
    b.chunk = text.substr(chunk_begin, at - chunk_begin);
    b.left = LeftOf(text, at, table);
    b.right = RightOf(text, stop, table);
    b.left_token = LastToken(b.left);
    b.right_token = FirstToken(b.right);
    b.table = &table;
    const SentenceRule rule = Decide(b);
    const bool join = rule != SentenceRule::kNone;
    if (decisions != nullptr) decisions->push_back({{at, stop}, rule, join});
    if (!join) {
      sentences.push_back(Strip(text, {chunk_begin, stop}, table));
      chunk_begin = stop;
    }
    at = stop;
  }
  const ByteSpan last = Strip(text, {chunk_begin, text.size()}, table);
  if (last.begin < last.end) {
    sentences.push_back(last);
  } else if (sentences.empty()) {
    sentences.push_back({0, 0});
  }
  return sentences;
}

size_t CodePointOffset(std::string_view text, size_t bytes) {
  size_t count = 0;
  for (size_t i = 0; i < bytes; ++i) count += (static_cast<uint8_t>(text[i]) & 0xC0) != 0x80;
  return count;
}

}  // namespace starling::data
