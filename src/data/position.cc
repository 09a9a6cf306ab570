#include "starling/data/position.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "starling/base/log.h"

namespace starling::data {

absl::Status ValidateLengthChanges(const std::vector<LengthChange>& changes) {
  if (changes.empty() || changes.front().first_step != 0) {
    return absl::InvalidArgumentError("the sequence lengths must start at step 0");
  }
  for (size_t c = 0; c < changes.size(); ++c) {
    if (changes[c].length < 3) {
      return absl::InvalidArgumentError(absl::StrCat("sequence length ", changes[c].length,
                                                     " has no room for its special tokens"));
    }
    if (c > 0 && changes[c].first_step <= changes[c - 1].first_step) {
      return absl::InvalidArgumentError(absl::StrCat("changes of sequence length at steps ",
                                                     changes[c - 1].first_step, " and ",
                                                     changes[c].first_step, " are not in order"));
    }
  }
  return absl::OkStatus();
}

size_t ChangeAt(const std::vector<LengthChange>& changes, int64_t step) {
  const auto after = std::upper_bound(
      changes.begin(), changes.end(), step,
      [](int64_t value, const LengthChange& change) { return value < change.first_step; });
  STARLING_CHECK(after != changes.begin()) << "step " << step;
  return static_cast<size_t>(after - changes.begin()) - 1;
}

SamplePosition PositionOf(const std::vector<LengthChange>& changes,
                          const std::vector<uint64_t>& chunk_counts, uint64_t samples_per_step,
                          int64_t step, uint64_t sample) {
  STARLING_CHECK(sample < samples_per_step) << "sample " << sample << " of " << samples_per_step;
  const size_t current = ChangeAt(changes, step);
  STARLING_CHECK(current < chunk_counts.size());
  uint64_t pass = 0;
  for (size_t c = 0; c < current; ++c) {
    const uint64_t steps = static_cast<uint64_t>(changes[c + 1].first_step - changes[c].first_step);
    pass += (steps * samples_per_step + chunk_counts[c] - 1) / chunk_counts[c];
  }
  const uint64_t steps = static_cast<uint64_t>(step - changes[current].first_step);
  const uint64_t drawn = steps * samples_per_step + sample;
  return {pass + drawn / chunk_counts[current], drawn % chunk_counts[current]};
}

}  // namespace starling::data
