// Where a step stands in the data: (pass, offset) as a pure function of the step. Thread-safe.
//
// Sample k of step s is the k-th of its M × micro_batch samples: micro-batch i holds samples
// i·micro_batch … (i+1)·micro_batch − 1. While the sequence length stays the same, samples go
// through the chunk table in the order of the pass's permutation, pass after pass: each chunk
// exactly once a pass, and a pass may end in the middle of a step, whose remaining samples are the
// first of the next pass. A change of length ends the pass where it stands: the step at which it
// takes effect starts the next pass over the new table.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "starling/plan/length_schedule.h"

namespace starling::data {

using plan::LengthChange;

// InvalidArgument unless the first change is at step 0, steps grow strictly and lengths are >= 3.
absl::Status ValidateLengthChanges(const std::vector<LengthChange>& changes);

// Index of the change that holds at `step`. REQUIRES: valid changes, step >= 0.
size_t ChangeAt(const std::vector<LengthChange>& changes, int64_t step);

// Place of a sample.
struct SamplePosition {
  uint64_t pass = 0;    // counts from 0 over the whole run
  uint64_t offset = 0;  // number of the sample within its pass
  bool operator==(const SamplePosition&) const = default;
};

// Place of sample `sample` (of its step) of step `step`. `chunk_counts[c]` is the size of the chunk
// table at changes[c].length; it must be known, and positive, up to ChangeAt(step).
// REQUIRES: valid changes; 0 <= sample < samples_per_step.
SamplePosition PositionOf(const std::vector<LengthChange>& changes,
                          const std::vector<uint64_t>& chunk_counts, uint64_t samples_per_step,
                          int64_t step, uint64_t sample);

}  // namespace starling::data
