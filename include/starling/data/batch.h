// A micro-batch as the model takes it, and how rows become one. Plain value.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "starling/data/instances.h"

namespace starling::data {

// Tensors are row-major [rows, length], int64. Rows of padding never occur: `rows` may be smaller
// than the micro-batch size only in the last batch of an evaluation.
struct Batch {
  int64_t rows = 0;
  int64_t length = 0;
  std::vector<int64_t> input_ids;              // [rows, length]; pad id on the right
  std::vector<int64_t> token_type_ids;         // [rows, length]; 0 on pads
  std::vector<int64_t> attention_mask;         // [rows, length]; 1 on tokens, 0 on pads
  std::vector<int64_t> labels;                 // [rows, length]; −100 where nothing is predicted
  std::vector<int64_t> sentence_order_labels;  // [rows]; 0, 1 or −100
  int64_t sample_first = 0;  // number of the first row's sample, counted over the whole run
  int64_t predicted = 0;     // labels other than −100
  int64_t tokens = 0;        // positions that are not pads

  bool operator==(const Batch&) const = default;
};

// A masked row.
struct MaskedInstance {
  Instance instance;            // ids after replacement
  std::vector<int64_t> labels;  // as long as the ids
};

// Smallest multiple of `multiple` that holds `longest` tokens, but not more than `cap` unless
// `longest` is. REQUIRES: multiple > 0.
int64_t PaddedLength(uint64_t longest, uint64_t multiple, uint64_t cap);

// Pads `rows` on the right to `length`. REQUIRES: no row is longer.
Batch AssembleBatch(std::span<const MaskedInstance> rows, int64_t length, int32_t pad_id);

}  // namespace starling::data
