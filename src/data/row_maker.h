// One chunk → one masked row with generated draws; what training and evaluation share. Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "starling/base/rng.h"
#include "starling/data/chunks.h"
#include "starling/data/micro_batches.h"

namespace starling::data {

class RowMaker {
 public:
  // REQUIRES: ValidateOptions(options, corpus) is OK.
  explicit RowMaker(const MicroBatchOptions& options);

  // The row of chunk `chunk`, all draws at `address` (whose purpose and counter are set here).
  MaskedInstance Make(const ChunkTable& table, uint64_t chunk, DrawAddress address) const;

 private:
  Instance MakePair(const std::vector<int32_t>& ids, const std::vector<uint32_t>& lengths,
                    uint64_t max_length, DrawAddress address) const;

  const Objective objective_;
  const double mask_probability_;
  const SpecialIds special_;
  const uint64_t vocab_size_;
  const std::vector<PieceKind> kinds_;
};

// Everything but micro_batches, which only training needs.
absl::Status ValidateOptions(const MicroBatchOptions& options, const Corpus& corpus);

// Rows → batch, padded as the options say.
Batch PadRows(const std::vector<MaskedInstance>& rows, const MicroBatchOptions& options,
              uint64_t sequence_length);

}  // namespace starling::data
