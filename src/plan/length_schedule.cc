#include "starling/plan/length_schedule.h"

#include <algorithm>
#include <cmath>

namespace starling::plan {
namespace {

int64_t First(const LengthSchedule& schedule) {
  return schedule.initial > 0 ? schedule.initial : schedule.multiple;
}

std::string Bad(const char* key, int64_t value, const char* rule) {
  return std::string(key) + " is " + std::to_string(value) + ", but must " + rule;
}

}  // namespace

std::vector<std::string> LengthSchedule::Validate() const {
  std::vector<std::string> problems;
  if (maximum < 1) problems.push_back(Bad("final", maximum, "be positive"));
  if (multiple < 1) problems.push_back(Bad("multiple", multiple, "be positive"));
  if (initial < 0) problems.push_back(Bad("initial", initial, "not be negative"));
  if (warmup_steps < 0) {
    problems.push_back(Bad("warmup_steps", warmup_steps, "not be negative"));
  }
  if (problems.empty() && warmup_steps > 0 && First(*this) > maximum) {
    problems.push_back("initial is " + std::to_string(First(*this)) +
                       ", but must not exceed final, which is " + std::to_string(maximum));
  }
  return problems;
}

int64_t LengthSchedule::LengthAt(int64_t step) const {
  if (warmup_steps == 0 || step > warmup_steps) return maximum;
  const int64_t first = First(*this);
  const double done = std::min(1.0, static_cast<double>(step) / static_cast<double>(warmup_steps));
  const double length = static_cast<double>(first) + done * static_cast<double>(maximum - first);
  const double floored = std::floor(length / static_cast<double>(multiple));
  return std::clamp(static_cast<int64_t>(floored) * multiple, first, maximum);
}

std::vector<LengthChange> LengthSchedule::Changes() const {
  std::vector<LengthChange> changes = {{0, LengthAt(0)}};
  // Lengths never shrink, so the next change is found by halving.
  while (changes.back().length < maximum) {
    int64_t same = changes.back().first_step, longer = warmup_steps + 1;
    while (longer - same > 1) {
      const int64_t middle = same + (longer - same) / 2;
      (LengthAt(middle) > changes.back().length ? longer : same) = middle;
    }
    changes.push_back({longer, LengthAt(longer)});
  }
  return changes;
}

}  // namespace starling::plan
