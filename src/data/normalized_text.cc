#include "data/normalized_text.h"

#include <algorithm>
#include <utility>

#include "data/unicode_tables.h"

namespace starling::data {
namespace {

// Old characters of a text, taken from left to right.
class OldCharacters {
 public:
  explicit OldCharacters(std::string_view text) : text_(text) {}
  // Bytes of the next character; 0 at the end.
  size_t Take() {
    if (at_ >= text_.size()) return 0;
    const size_t bytes = DecodeAt(text_, at_).bytes;
    at_ += bytes;
    return bytes;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

std::vector<Match> MergeMatches(const std::vector<Match>& matches, DelimiterBehavior behavior) {
  std::vector<Match> merged;
  bool previous = false;
  if (behavior == DelimiterBehavior::kMergedWithNext) {
    for (size_t i = matches.size(); i-- > 0;) {
      const Match& match = matches[i];
      if (match.is_match && !previous && !merged.empty()) {
        merged.back().begin = match.begin;
      } else {
        merged.push_back({match.begin, match.end, false});
      }
      previous = match.is_match;
    }
    std::reverse(merged.begin(), merged.end());
    return merged;
  }
  for (const Match& match : matches) {
    const bool merge = behavior == DelimiterBehavior::kContiguous ? match.is_match == previous
                                                                  : match.is_match && !previous;
    if (merge && !merged.empty()) {
      merged.back().end = match.end;
    } else {
      merged.push_back({match.begin, match.end, false});
    }
    previous = match.is_match;
  }
  return merged;
}

}  // namespace

NormalizedText::NormalizedText(std::string_view text, uint32_t begin, bool track)
    : text_(text), origin_(begin), track_(track) {
  if (!track) return;
  spans_.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t bytes = DecodeAt(text, i).bytes;
    const auto at = static_cast<uint32_t>(begin + i);
    spans_.insert(spans_.end(), bytes, Span{at, static_cast<uint32_t>(at + bytes)});
    i += bytes;
  }
}

void NormalizedText::AppendUntracked(const std::vector<CharChange>& to) {
  text_.clear();
  for (const CharChange& item : to) AppendUtf8(item.c, &text_);
}

void NormalizedText::Transform(const std::vector<CharChange>& to, size_t initial_removed) {
  if (!track_) return AppendUntracked(to);
  if (text_.empty()) return;
  OldCharacters old(text_);
  size_t offset = 0;
  for (size_t i = 0; i < initial_removed; ++i) offset += old.Take();
  std::string text;
  std::vector<Span> spans;
  for (const CharChange& item : to) {
    // An added character shares the span of what stands before it. Past the end (removals that were
    // not accounted for, see Precompiled) the last span holds.
    const size_t from = item.change > 0 ? (offset == 0 ? 0 : offset - 1) : offset;
    const Span span = item.change > 0 && offset == 0 ? Span{origin_, origin_}
                                                     : spans_[std::min(from, spans_.size() - 1)];
    if (item.change <= 0) offset += old.Take();
    for (int32_t i = item.change; i < 0; ++i) offset += old.Take();
    AppendUtf8(item.c, &text);
    spans.insert(spans.end(), Utf8Length(item.c), span);
  }
  text_ = std::move(text);
  spans_ = std::move(spans);
}

void NormalizedText::Replace(const std::vector<Match>& matches, std::string_view content) {
  std::string text;
  std::vector<Span> spans;
  for (const Match& match : matches) {
    if (match.is_match) {
      text.append(content);
      // The whole replacement belongs to the last byte replaced.
      if (track_) spans.insert(spans.end(), content.size(), spans_[match.end - 1]);
      continue;
    }
    text.append(text_, match.begin, match.end - match.begin);
    if (track_) {
      spans.insert(spans.end(), spans_.begin() + static_cast<ptrdiff_t>(match.begin),
                   spans_.begin() + static_cast<ptrdiff_t>(match.end));
    }
  }
  text_ = std::move(text);
  spans_ = std::move(spans);
}

void NormalizedText::Prepend(std::string_view content) {
  if (text_.empty()) return;
  text_.insert(0, content);
  if (track_) spans_.insert(spans_.begin(), content.size(), spans_[0]);
}

void NormalizedText::Strip(bool left, bool right) {
  const UnicodeTable& table = UnicodeTable::Get();
  size_t begin = 0;
  size_t end = text_.size();
  while (left && begin < end) {
    const CodePoint c = DecodeAt(text_, begin);
    if (!table.Has(c.value, kWhiteSpace)) break;
    begin += c.bytes;
  }
  while (right && begin < end) {
    const size_t start = PreviousStart(text_, end);
    if (!table.Has(DecodeAt(text_, start).value, kWhiteSpace)) break;
    end = start;
  }
  text_ = text_.substr(begin, end - begin);
  if (track_) {
    spans_ = std::vector<Span>(spans_.begin() + static_cast<ptrdiff_t>(begin),
                               spans_.begin() + static_cast<ptrdiff_t>(end));
  }
}

NormalizedText NormalizedText::Slice(size_t begin, size_t end) const {
  NormalizedText slice;
  slice.text_ = text_.substr(begin, end - begin);
  slice.track_ = track_;
  slice.origin_ = origin_;
  if (!track_) return slice;
  slice.spans_.assign(spans_.begin() + static_cast<ptrdiff_t>(begin),
                      spans_.begin() + static_cast<ptrdiff_t>(end));
  if (!slice.spans_.empty()) slice.origin_ = slice.spans_[0].begin;
  return slice;
}

void NormalizedText::Split(const std::vector<Match>& matches, DelimiterBehavior behavior,
                           std::vector<NormalizedText>* out) const {
  if (behavior == DelimiterBehavior::kRemoved || behavior == DelimiterBehavior::kIsolated) {
    for (const Match& match : matches) {
      const bool removed = behavior == DelimiterBehavior::kRemoved && match.is_match;
      if (!removed && match.begin < match.end) out->push_back(Slice(match.begin, match.end));
    }
    return;
  }
  for (const Match& part : MergeMatches(matches, behavior)) {
    if (part.begin < part.end) out->push_back(Slice(part.begin, part.end));
  }
}

}  // namespace starling::data
