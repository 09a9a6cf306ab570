// Learning-rate schedules: the factor that multiplies the peak rate at each step. Pure integer and
// double arithmetic, so every worker gets the same number from the step alone. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace starling::plan {

enum class LrScheduleName {
  kLive,    // "live": what RuLeanALBERT runs; an optional window of zero rate, warm-up, decay
  kLinear,  // "linear": warm-up and decay, without the window
};

// The reference's run is {kLive, 3125, 15625, 50, 0.02}.
struct LrSchedule {
  LrScheduleName name = LrScheduleName::kLive;
  int64_t warmup_steps = 0;  // the factor reaches 1 at this step
  int64_t total_steps = 1;   // the decay would reach 0 here
  int64_t zero_steps = 0;    // kLive: steps of factor 0 in which only the moments move
  double floor = 0.02;       // smallest factor of the decay (a factor, not a rate)

  // One sentence per bad value, naming the key; empty when all are good.
  std::vector<std::string> Validate() const;

  // Factor at step s = 0, 1, …:
  //   kLive:   0 while s < zero; (s − zero) / max(1, warmup − zero) while s < warmup
  //   kLinear: s / max(1, warmup) while s < warmup
  //   both then max(floor, (total − s) / max(1, total − warmup)), also beyond `total`.
  double Factor(int64_t step) const;
};

}  // namespace starling::plan
