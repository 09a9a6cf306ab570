// The added tokens of a tokenizer.json: strings that are looked for before the model sees the text.
// Immutable after Make, thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "data/piece_trie.h"

namespace starling::data {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes the white space on its left
  bool rstrip = false;       // takes the white space on its right
  bool normalized = false;   // is looked for in the normalized text
  bool special = false;      // Decode may skip it
};

// A stretch of a text: of an added token, or (id -1) what lies between two of them.
struct AddedTokenPart {
  int32_t id;
  size_t begin;
  size_t end;
};

// Finds a set of added tokens; of those that start at one place, the longest.
class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  // `patterns[i]`: the string by which `tokens[i]` is found; of equal ones the first counts.
  // InvalidArgument when one is empty.
  static absl::StatusOr<AddedTokenMatcher> Make(std::vector<AddedToken> tokens,
                                                const std::vector<std::string>& patterns);

  bool empty() const { return tokens_.empty(); }
  // Whether one of the strings is in `text`, whatever its flags.
  bool OccursIn(std::string_view text) const;
  // Cuts `text`; the parts cover it in order, none is empty.
  void Cut(std::string_view text, std::vector<AddedTokenPart>* out) const;

 private:
  bool FindNext(std::string_view text, size_t from, size_t* begin, size_t* end,
                size_t* index) const;

  std::vector<AddedToken> tokens_;
  PieceTrie trie_;  // value: index into tokens_
  std::array<bool, 256> first_bytes_{};
};

}  // namespace starling::data
