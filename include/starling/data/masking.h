// Whole-word masking (model.md §3.3): word groups, how many and which tokens are predicted, and
// what stands in their place. Pure functions of decoded draws; thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "starling/data/instances.h"

namespace starling::data {

// How a piece stands to the word before it.
enum class PieceKind : uint8_t {
  kContinues,    // belongs to the group before it
  kStarts,       // opens a group
  kStandsAlone,  // opens a group and lets the next piece open one too
};

// Rules for word borders.
enum class WordGroupRule {
  // The reference's: a piece opens a group if it begins with ▁ or "<" or is one ASCII punctuation
  // mark other than ' = >. So « » — … № glue to the word before them.
  kReference,
  // Every piece that consists of punctuation and symbols alone stands alone, except apostrophes
  // (' and ’), which stay inside their word; a piece that begins with ▁ opens a group.
  kCorrected,
};

// Kind of every piece by id. `pieces` are the tokenizer's, in order of id.
std::vector<PieceKind> StartPieceTable(std::span<const std::string> pieces, WordGroupRule rule);

// Groups of positions of one row; positions whose id is cls, sep or pad are skipped and do not
// break a group. REQUIRES: every id is inside `kinds`.
std::vector<std::vector<uint32_t>> WordGroups(std::span<const int32_t> ids,
                                              std::span<const PieceKind> kinds,
                                              const SpecialIds& special);

// How many of `n` tokens are predicted: min(n, max(1, round_half_even(0.15·n))), 0 for none.
uint64_t TokensToPredict(uint64_t n, double probability = 0.15);

// Shuffles the groups by Fisher–Yates (for k = groups − 1 down to 1, groups k and draw(k) change
// places; 0 ≤ draw(k) ≤ k) and takes whole groups in that order, passing over one that would
// exceed `k_tokens`, until `k_tokens` tokens are taken. Returns the positions in ascending order.
std::vector<uint32_t> ChooseTokens(std::vector<std::vector<uint32_t>> groups, uint64_t k_tokens,
                                   const std::function<uint32_t(uint32_t)>& shuffle_draw);

// The draws at one position: 80 % to_mask; of the others half to_random; an id of the vocabulary.
struct ReplacementDraws {
  bool to_mask = false;
  bool to_random = false;
  int32_t random_id = 0;
};

// Replaces the chosen positions of `ids` in place, those excepted whose `special_mask` is 1, and
// returns the labels: the original id there, −100 elsewhere.
std::vector<int64_t> ApplyMask(std::span<const uint32_t> chosen,
                               std::span<const uint8_t> special_mask,
                               const std::function<ReplacementDraws(uint32_t)>& draws,
                               int32_t mask_id, std::vector<int32_t>* ids);

}  // namespace starling::data
