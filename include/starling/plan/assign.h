// Who computes which micro-batch, and who owns which elements first. Pure functions in integer
// arithmetic: every worker computes the same plan from the same numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "starling/plan/intervals.h"

namespace starling::plan {

// Micro-batches per 1,000 seconds; 0 = unknown or stale.
using Speed = uint32_t;

// Splits `pending` among speeds.size() ranks in proportion to their speeds: each rank gets
// ⌊c·v/V⌋, what is left goes one by one to the rank that would finish it first (ties: lowest rank).
// Ranks without a speed count as the mean of the known ones and get at least one micro-batch while
// there is one for each of them. Consecutive numbers stay together, in rank order.
// Result: speeds.size() disjoint sets whose union is `pending`. REQUIRES: !speeds.empty().
std::vector<IntervalSet> Assign(const IntervalSet& pending, std::span<const Speed> speeds);

// First owner's elements [begin, end) of rank r among n: contiguous, cut at multiples of `block`,
// sizes differing by at most one block; empty for some when there are fewer blocks than ranks. The
// n results partition [0, size).
Interval FirstOwned(int64_t size, int n, int r, int64_t block = 4096);

}  // namespace starling::plan
