// A text on its way through normalization and splitting, with the stretch of the original that
// each of its bytes came from. Follows the reference's rules for these stretches to the letter,
// oddities included: offsets of tokens are made from them. A value; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace starling::data {

// Bytes [begin, end) of the original text.
struct Span {
  uint32_t begin;
  uint32_t end;
};

// One character of a transformed text. `change`: 0 = takes the place of the next old character,
// -n = the same, and n old characters after it go away, 1 = is added.
struct CharChange {
  uint32_t c;
  int32_t change;
};

// Bytes [begin, end) that match a pattern, or the stretch between two matches.
struct Match {
  size_t begin;
  size_t end;
  bool is_match;
};

enum class DelimiterBehavior {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous
};

class NormalizedText {
 public:
  // `begin`: where `text` starts in the original. Without `track` no spans are kept (faster).
  NormalizedText(std::string_view text, uint32_t begin, bool track);

  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }
  // Where the original stretch of this part starts.
  uint32_t origin() const { return origin_; }
  // Original stretch of bytes [begin, end). REQUIRES: tracked, begin < end <= text().size().
  Span SpanOf(size_t begin, size_t end) const { return {spans_[begin].begin, spans_[end - 1].end}; }

  // Makes `to` the text; the first `initial_removed` old characters go away before it starts.
  void Transform(const std::vector<CharChange>& to, size_t initial_removed);
  // Keeps the characters that `keep` accepts.
  template <typename Keep>
  void Filter(Keep keep);
  // Puts `content` for every match. `matches` covers the text in order.
  void Replace(const std::vector<Match>& matches, std::string_view content);
  // Puts `content` before the first character; an empty text stays empty.
  void Prepend(std::string_view content);
  // Removes white space at the chosen ends.
  void Strip(bool left, bool right);

  // The part of bytes [begin, end), as a text of its own.
  NormalizedText Slice(size_t begin, size_t end) const;
  // Appends the parts that `matches` cut this text into; empty parts are left out.
  void Split(const std::vector<Match>& matches, DelimiterBehavior behavior,
             std::vector<NormalizedText>* out) const;

 private:
  NormalizedText() = default;
  void AppendUntracked(const std::vector<CharChange>& to);

  std::string text_;
  std::vector<Span> spans_;  // one a byte of text_; empty when not tracked
  uint32_t origin_ = 0;
  bool track_ = false;
};

// Cuts `text` at every character that `matches_char` accepts: one match a character.
template <typename Predicate>
void MatchCharacters(std::string_view text, Predicate matches_char, std::vector<Match>* out);

}  // namespace starling::data

#include "data/normalized_text_inl.h"
