#include "starling/plan/assign.h"

#include <algorithm>
#include <queue>

namespace starling::plan {
namespace {

// Known speeds as they are; unknown ones as the mean of the known, so that they get a fair share.
std::vector<uint64_t> EffectiveSpeeds(std::span<const Speed> speeds) {
  uint64_t sum = 0, known = 0;
  for (Speed speed : speeds) {
    if (speed > 0) {
      sum += speed;
      ++known;
    }
  }
  const uint64_t mean = known > 0 ? std::max<uint64_t>(1, sum / known) : 1;
  std::vector<uint64_t> effective;
  effective.reserve(speeds.size());
  for (Speed speed : speeds) effective.push_back(speed > 0 ? speed : mean);
  return effective;
}

// When a rank would finish with one micro-batch more: (count + 1) / speed.
struct NextFinish {
  int64_t count;
  uint64_t speed;
  size_t rank;
  // The queue's top is the greatest, so "less" is later; of equals the higher rank.
  bool operator<(const NextFinish& other) const {
    const auto mine = static_cast<unsigned __int128>(count + 1) * other.speed;
    const auto theirs = static_cast<unsigned __int128>(other.count + 1) * speed;
    return mine != theirs ? mine > theirs : rank > other.rank;
  }
};

std::vector<int64_t> Counts(int64_t total, std::span<const Speed> speeds) {
  const std::vector<uint64_t> effective = EffectiveSpeeds(speeds);
  std::vector<int64_t> counts(speeds.size(), 0);
  int64_t left = total;
  if (total >= static_cast<int64_t>(speeds.size())) {
    for (size_t r = 0; r < speeds.size(); ++r) {
      if (speeds[r] == 0) counts[r] = 1;  // so that its speed becomes known
    }
  }
  unsigned __int128 speed_sum = 0;
  for (uint64_t speed : effective) speed_sum += speed;
  for (size_t r = 0; r < speeds.size(); ++r) {
    const auto share =
        static_cast<int64_t>(static_cast<unsigned __int128>(total) * effective[r] / speed_sum);
    counts[r] = std::max(counts[r], share);
    left -= counts[r];
  }
  std::priority_queue<NextFinish> queue;
  for (size_t r = 0; r < speeds.size(); ++r) queue.push({counts[r], effective[r], r});
  for (; left > 0; --left) {
    NextFinish next = queue.top();
    queue.pop();
    counts[next.rank] = ++next.count;
    queue.push(next);
  }
  // The single micro-batches for unknown ranks may have overdrawn: take back from the latest
  // finisher.
  while (left < 0) {
    size_t latest = speeds.size();
    for (size_t r = 0; r < speeds.size(); ++r) {
      if (counts[r] <= (speeds[r] == 0 ? 1 : 0)) continue;
      if (latest == speeds.size() ||
          static_cast<unsigned __int128>(counts[r]) * effective[latest] >=
              static_cast<unsigned __int128>(counts[latest]) * effective[r]) {
        latest = r;
      }
    }
    --counts[latest];
    ++left;
  }
  return counts;
}

}  // namespace

std::vector<IntervalSet> Assign(const IntervalSet& pending, std::span<const Speed> speeds) {
  IntervalSet rest = pending;
  std::vector<IntervalSet> plan;
  plan.reserve(speeds.size());
  for (int64_t count : Counts(pending.count(), speeds)) plan.push_back(rest.TakeFirst(count));
  return plan;
}

Interval FirstOwned(int64_t size, int n, int r, int64_t block) {
  const int64_t blocks = (size + block - 1) / block;
  const auto cut = [&](int64_t rank) { return std::min(size, blocks * rank / n * block); };
  return {cut(r), cut(r + 1)};
}

}  // namespace starling::plan
