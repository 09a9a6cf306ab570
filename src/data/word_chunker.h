// Cuts a text into chunks that can be encoded one by one: at every space that stands between two
// plain characters. A character is plain when no normalizer of the chain turns it into nothing, or
// into something that begins with or holds white space, or that could merge with a neighbour across
// a space. Found out at load by running the chain on each. Immutable, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "data/normalizer.h"
#include "data/pre_tokenizer.h"
#include "data/utf8.h"

namespace starling::data {

class WordChunker {
 public:
  WordChunker() = default;  // no plain characters: every text is one chunk
  WordChunker(const NormalizerChain& normalizers, const PreTokenizerChain& pre_tokenizers);

  bool IsPlain(uint32_t c) const { return c < plain_.size() && plain_[c] != 0; }

  // Calls chunk(part) for the chunks of `text` in order until one call returns false; returns
  // whether all returned true. The spaces between chunks belong to none.
  template <typename OnChunk>
  bool ForEach(std::string_view text, OnChunk chunk) const {
    size_t start = 0;
    for (size_t from = 1; from + 1 < text.size();) {
      const void* found = std::memchr(text.data() + from, ' ', text.size() - from);
      if (found == nullptr) break;
      const auto at = static_cast<size_t>(static_cast<const char*>(found) - text.data());
      from = at + 1;
      if (at + 1 >= text.size() || !PlainAt(text, at + 1)) continue;
      if (!PlainAt(text, PreviousStart(text, at))) continue;
      if (!chunk(text.substr(start, at - start))) return false;
      start = at + 1;
    }
    return chunk(text.substr(start));
  }

  // Whether `normalized` is a fit result for `chunk`: where the chunk begins (or ends) with a plain
  // character, so does the result. If not, the whole text must be encoded in one go.
  bool IsFit(std::string_view chunk, std::string_view normalized) const;

 private:
  bool PlainAt(std::string_view text, size_t at) const { return IsPlain(DecodeAt(text, at).value); }

  std::vector<uint8_t> plain_;
};

}  // namespace starling::data
