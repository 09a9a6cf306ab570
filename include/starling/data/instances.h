// One chunk → one sample: sentence-order pair, truncation, special tokens (model.md §3.2). Pure
// functions: whoever calls decides the draws. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "starling/data/tokenizer.h"

namespace starling::data {

// Label of rows without sentence order and of tokens that are not predicted.
inline constexpr int64_t kIgnoredLabel = -100;

// The draws of one sample, decoded.
struct PairDraws {
  uint32_t a_end = 1;  // in [1, sentences − 1]: sentences before it are A, the others B
  bool swap = false;   // A and B change places, which the sentence-order label 1 tells
};

// A sample without padding. The first three are equally long, at most `max_length`.
struct Instance {
  std::vector<int32_t> ids;
  std::vector<uint8_t> type_ids;           // 0 for [CLS] A [SEP], 1 for B [SEP]
  std::vector<uint8_t> special_mask;       // 1 on [CLS] and [SEP]
  int64_t sentence_order = kIgnoredLabel;  // 0 in order, 1 swapped, −100 unknown
};

// Kept lengths of two texts of `a` and `b` tokens when `budget` tokens fit: the closed form of
// "longest_first". With x ≤ y the two lengths: if x ≤ budget then y = max(x, budget − x), else
// y = x; if x + y is still larger than budget then x = ⌊budget / 2⌋, y = budget − x. The first text
// keeps x if a ≤ b, else y.
std::pair<uint64_t, uint64_t> TruncateLongestFirst(uint64_t a, uint64_t b, uint64_t budget);

// [CLS] A [SEP] B [SEP] of a chunk of two sentences or more (`ids` cut up by `sentence_lengths`),
// cut on the right of each text to `max_length`; [CLS] A [SEP] without label for a chunk of one.
// REQUIRES: draws.a_end in [1, sentences − 1] when there are two or more; max_length >= 3.
Instance MakeInstance(std::span<const int32_t> ids, std::span<const uint32_t> sentence_lengths,
                      PairDraws draws, uint64_t max_length, const SpecialIds& special);

// [CLS] ids [SEP] without label, for training without sentence order.
Instance MakeSingle(std::span<const int32_t> ids, uint64_t max_length, const SpecialIds& special);

}  // namespace starling::data
