// Sequence-length warm-up: how many tokens a sequence has at each step. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace starling::plan {

// From `first_step` on, until the next change, sequences have `length` tokens.
struct LengthChange {
  int64_t first_step = 0;
  int64_t length = 0;
  bool operator==(const LengthChange&) const = default;
};

// The reference's run is {256, 2048, 7000, 128}.
struct LengthSchedule {
  int64_t initial = 0;       // tokens at step 0; 0 = `multiple`
  int64_t maximum = 0;       // tokens at the end of the warm-up and after it
  int64_t warmup_steps = 0;  // 0 = the maximum from the start
  int64_t multiple = 128;    // lengths in between are multiples of this

  // One sentence per bad value, naming the key; empty when all are good.
  std::vector<std::string> Validate() const;

  // Length at a step: the maximum when there is no warm-up or step > warmup_steps; else
  // initial + min(1, step / warmup)·(maximum − initial), rounded down to the multiple and clamped
  // to [initial, maximum].
  int64_t LengthAt(int64_t step) const;

  // All lengths in order; the first change is at step 0. A pass over the data ends at each change.
  std::vector<LengthChange> Changes() const;
};

}  // namespace starling::plan
