// The inside of Tokenizer: the file's parts and the way of a text through them. Only tokenizer.cc
// and tokenizer_impl.cc include this.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "data/tokenizer_json.h"
#include "data/word_cache.h"
#include "data/word_chunker.h"
#include "starling/data/tokenizer.h"

namespace starling::data {

// A token and the bytes of the original text it covers (meaningless when spans are not tracked).
struct SpanToken {
  int32_t id;
  Span span;
};

struct Tokenizer::Scratch::Impl {
  uint64_t owner = 0;  // serial of the tokenizer that the cache belongs to
  WordCache cache;
  UnigramModel::Scratch model;
  std::vector<PieceToken> pieces;
  std::vector<SpanToken> tokens;
};

struct Tokenizer::Impl {
  using Memory = Scratch::Impl;

  TokenizerSpec spec;
  AddedTokenMatcher raw_tokens;         // looked for in the text as it is
  AddedTokenMatcher normalized_tokens;  // looked for after normalization
  std::map<int32_t, AddedToken> added_by_id;
  std::map<std::string, int32_t, std::less<>> added_by_content;
  WordChunker chunker;
  bool needs_origin = false;
  int32_t vocab_size = 0;
  SpecialIds special_ids;
  uint64_t hash = 0;
  uint64_t serial = 0;

  // Makes everything below `spec` out of it.
  absl::Status Prepare();
  void FindSpecialIds();
  void Normalize(NormalizedText* text) const {
    for (const auto& normalizer : spec.normalizers) normalizer->Apply(text);
  }

  absl::Status EncodePieces(NormalizedText text, bool track, Memory* memory) const;
  absl::Status EncodePlain(NormalizedText text, bool track, Memory* memory) const;
  absl::Status EncodeText(std::string_view text, bool track, Memory* memory) const;
  absl::StatusOr<bool> EncodeChunk(std::string_view chunk, Memory* memory,
                                   std::vector<int32_t>* out) const;
  absl::StatusOr<bool> EncodeChunks(std::string_view text, Memory* memory,
                                    std::vector<int32_t>* out) const;
  absl::StatusOr<Encoding> EncodeSequence(std::string_view text, int32_t type_id) const;
  int32_t Find(std::string_view piece) const;
};

}  // namespace starling::data
