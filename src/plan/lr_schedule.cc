#include "starling/plan/lr_schedule.h"

#include <algorithm>

namespace starling::plan {
namespace {

double Ratio(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(std::max<int64_t>(1, whole));
}

}  // namespace

std::vector<std::string> LrSchedule::Validate() const {
  std::vector<std::string> problems;
  if (warmup_steps < 0) {
    problems.push_back("warmup_steps is " + std::to_string(warmup_steps) +
                       ", but must not be negative");
  }
  if (total_steps < 1) {
    problems.push_back("total_steps is " + std::to_string(total_steps) +
                       ", but must be at least 1");
  }
  if (zero_steps < 0) {
    problems.push_back("zero_steps is " + std::to_string(zero_steps) +
                       ", but must not be negative");
  }
  if (zero_steps > 0 && name == LrScheduleName::kLinear) {
    problems.push_back("zero_steps is " + std::to_string(zero_steps) +
                       ", but the schedule \"linear\" has no such window: use \"live\"");
  }
  if (!(floor >= 0 && floor <= 1)) {
    problems.push_back("floor is " + std::to_string(floor) + ", but must lie between 0 and 1");
  }
  return problems;
}

double LrSchedule::Factor(int64_t step) const {
  const int64_t zero = name == LrScheduleName::kLive ? zero_steps : 0;
  if (step < zero) return 0.0;
  if (step < warmup_steps) return Ratio(step - zero, warmup_steps - zero);
  return std::max(floor, Ratio(total_steps - step, total_steps - warmup_steps));
}

}  // namespace starling::plan
