// Template bodies of normalized_text.h; include that instead.
#pragma once

#include "data/normalized_text.h"
#include "data/utf8.h"

namespace starling::data {

template <typename Keep>
void NormalizedText::Filter(Keep keep) {
  std::string text;
  std::vector<Span> spans;
  text.reserve(text_.size());
  for (size_t i = 0; i < text_.size();) {
    const CodePoint c = DecodeAt(text_, i);
    if (keep(c.value)) {
      text.append(text_, i, c.bytes);
      if (track_) spans.insert(spans.end(), c.bytes, spans_[i]);
    }
    i += c.bytes;
  }
  text_ = std::move(text);
  spans_ = std::move(spans);
}

template <typename Predicate>
void MatchCharacters(std::string_view text, Predicate matches_char, std::vector<Match>* out) {
  out->clear();
  size_t last = 0;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = DecodeAt(text, i);
    if (matches_char(c.value)) {
      if (last < i) out->push_back({last, i, false});
      last = i + c.bytes;
      out->push_back({i, last, true});
    }
    i += c.bytes;
  }
  if (last < text.size()) out->push_back({last, text.size(), false});
}

}  // namespace starling::data
