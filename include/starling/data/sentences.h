// Sentence segmentation for Russian text, equal to razdel 0.5.0 (github.com/natasha/razdel, MIT) in
// every boundary: eleven ordered rules look at ten characters on both sides of each candidate
// delimiter, the first rule with an opinion wins, and no opinion means split. Written anew from
// the rules (model.md §3.5). Pure functions; thread-safe; independent of the locale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace starling::data {

// Bytes [begin, end) of a text.
struct ByteSpan {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const ByteSpan&) const = default;
};

// The rules in the order in which they are asked.
enum class SentenceRule : uint8_t {
  kNone,            // nobody had an opinion: split
  kEmptySide,       // no token to the left or to the right: join
  kNoSpacePrefix,   // no white space after the delimiter: join
  kLowerRight,      // next token is lower-case letters: join
  kDelimiterRight,  // another delimiter or a smiley follows: join
  kSokrLeft,        // abbreviation to the left: join
  kInsidePairSokr,  // in the middle of "т. е.": join
  kInitialsLeft,    // "А. Чехов": join
  kListItem,        // "1." or "IV)" at the start of a sentence: join
  kCloseQuote,      // quote that does not follow . ? ! …: join
  kCloseBracket,    // bracket that does not follow . ? ! …: join
  kDashRight,       // dash and a lower-case word follow: join
};

// Name as in the parity files, e.g. "sokr_left"; "" for kNone.
std::string_view SentenceRuleName(SentenceRule rule);

// What was decided at one candidate boundary.
struct SentenceDecision {
  ByteSpan delimiter;
  SentenceRule rule = SentenceRule::kNone;
  bool join = false;
};

// The sentences of `text` in order, without the white space around them; what lies between two
// spans is white space only. Empty or blank text gives one empty sentence at 0. `text` should be
// valid UTF-8; a broken byte counts as one unknown character. Appends the decisions, one per
// candidate boundary, to `decisions` unless null.
std::vector<ByteSpan> SegmentSentences(std::string_view text,
                                       std::vector<SentenceDecision>* decisions = nullptr);

// Number of code points in the first `bytes` bytes of `text`.
size_t CodePointOffset(std::string_view text, size_t bytes);

}  // namespace starling::data
