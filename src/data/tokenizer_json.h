// What a tokenizer.json says, read into the parts that carry it out. Unknown members are errors
// that name them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "data/added_tokens.h"
#include "data/normalizer.h"
#include "data/pre_tokenizer.h"
#include "data/unigram_model.h"

namespace starling::data {

// One place of a template: a sequence (0 = A, 1 = B), or fixed ids.
struct TemplatePiece {
  int sequence = -1;
  std::vector<int32_t> ids;
  int32_t type_id = 0;
};

struct PostTemplate {
  std::vector<TemplatePiece> single;
  std::vector<TemplatePiece> pair;
};

// The Metaspace decoder: `replacement` becomes a space, and nothing in the first token when
// `drop_first`.
struct MetaspaceDecoder {
  std::string replacement;
  bool drop_first = true;
};

struct TokenizerSpec {
  NormalizerChain normalizers;
  PreTokenizerChain pre_tokenizers;
  UnigramModel model;
  std::vector<AddedToken> added_tokens;  // in the file's order, ids as the reference assigns them
  std::optional<PostTemplate> post_template;  // none: nothing is added, B has type id 1
  std::optional<MetaspaceDecoder> decoder;    // none: tokens joined by spaces
};

// DataLoss for broken JSON; InvalidArgument for what is missing, of the wrong type or unsupported.
absl::StatusOr<TokenizerSpec> ParseTokenizerJson(std::string_view json);

}  // namespace starling::data
