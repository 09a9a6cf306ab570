// The normalizer and pre_tokenizer members of a tokenizer.json.
#pragma once

#include <string>

#include "data/json_reader.h"
#include "data/normalizer.h"
#include "data/pre_tokenizer.h"

namespace starling::data {

// Appends what `json` (an object with "type") says; a Sequence appends its members. `where`: its
// place in the file, for errors.
absl::Status ParseNormalizer(const Json& json, const std::string& where, NormalizerChain* out);
absl::Status ParsePreTokenizer(const Json& json, const std::string& where, PreTokenizerChain* out);

// The settings of a Metaspace pre-tokenizer or decoder.
struct MetaspaceOptions {
  std::string replacement;
  PrependScheme scheme = PrependScheme::kAlways;
  bool split = true;
};
absl::StatusOr<MetaspaceOptions> ParseMetaspace(const Json& json, const std::string& where);

}  // namespace starling::data
