// Who computes what: partition, proportion, unknown speeds; and who owns which elements.
#include "starling/plan/assign.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <numeric>

#include "starling/base/rng.h"

namespace starling::plan {
namespace {

std::vector<int64_t> Counts(const std::vector<IntervalSet>& plan) {
  std::vector<int64_t> counts;
  for (const IntervalSet& set : plan) counts.push_back(set.count());
  return counts;
}

std::vector<int64_t> CountsOf(int64_t total, const std::vector<Speed>& speeds) {
  return Counts(Assign(IntervalSet::Whole(total), speeds));
}

}  // namespace

TEST_CASE("assign: the shares partition what is pending, in rank order", "[plan]") {
  const uint64_t seed = GENERATE(range(1, 201));
  CAPTURE(seed);
  uint64_t state = seed * 7919;
  const auto below = [&](uint64_t bound) { return ToBounded(Mix64(state++), bound); };
  std::vector<Speed> speeds(1 + below(9));
  for (Speed& speed : speeds) {
    speed = below(4) == 0 ? 0 : static_cast<Speed>(1 + below(below(2) == 0 ? 20 : 4'000'000'000));
  }
  IntervalSet pending = IntervalSet::Whole(static_cast<int64_t>(below(200)));
  IntervalSet done;
  for (int i = 0; i < 5; ++i) {
    const auto begin = static_cast<int64_t>(below(200));
    done.Add(Interval{begin, begin + static_cast<int64_t>(below(20))});
  }
  pending.Remove(done);
  const std::vector<IntervalSet> plan = Assign(pending, speeds);
  REQUIRE(plan.size() == speeds.size());
  IntervalSet all;
  int64_t total = 0;
  for (const IntervalSet& set : plan) {
    CHECK_FALSE(set.Intersects(all));
    if (!set.empty() && !all.empty()) CHECK(all.intervals().back().end <= set.first());
    all.Add(set);
    total += set.count();
  }
  CHECK(all == pending);
  CHECK(total == pending.count());
  CHECK(Assign(pending, speeds) == plan);  // the same numbers give the same plan
}

TEST_CASE("assign: shares are proportional to speeds", "[plan]") {
  CHECK(CountsOf(12, {100, 100, 100}) == std::vector<int64_t>{4, 4, 4});
  CHECK(CountsOf(16, {300, 100}) == std::vector<int64_t>{12, 4});
  CHECK(CountsOf(8, {3000, 3000, 1000}) == std::vector<int64_t>{4, 3, 1});
  // What is left goes to whoever would finish it first.
  CHECK(CountsOf(4, {200, 100}) == std::vector<int64_t>{3, 1});
  // No rank finishes later than another would with one micro-batch more.
  const std::vector<Speed> speeds = {700, 300, 110, 90};
  const std::vector<int64_t> counts = CountsOf(1000, speeds);
  for (size_t a = 0; a < speeds.size(); ++a) {
    for (size_t b = 0; b < speeds.size(); ++b) {
      CHECK(counts[a] * static_cast<int64_t>(speeds[b]) <=
            (counts[b] + 1) * static_cast<int64_t>(speeds[a]));
    }
  }
}

TEST_CASE("assign: ties go to the lowest rank", "[plan]") {
  CHECK(CountsOf(5, {100, 100, 100}) == std::vector<int64_t>{2, 2, 1});
  CHECK(CountsOf(1, {100, 100, 100}) == std::vector<int64_t>{1, 0, 0});
  CHECK(CountsOf(7, {0, 0, 0}) == std::vector<int64_t>{3, 2, 2});
}

TEST_CASE("assign: an unknown speed counts as the mean and gets at least one", "[plan]") {
  CHECK(CountsOf(9, {200, 0, 400}) == std::vector<int64_t>{2, 3, 4});
  // Far faster peers leave a rank without a speed something to be measured by …
  for (int unknown : {0, 1, 2}) {
    std::vector<Speed> speeds(3, 4'000'000'000);
    speeds[static_cast<size_t>(unknown)] = 0;
    CHECK(CountsOf(3, speeds)[static_cast<size_t>(unknown)] == 1);
  }
  CHECK(CountsOf(4, {1, 1'000'000, 0, 0}) == std::vector<int64_t>{0, 2, 1, 1});
  // … but not when there is less than one for each.
  const std::vector<int64_t> few = CountsOf(1, {0, 100, 0});
  CHECK(std::accumulate(few.begin(), few.end(), int64_t{0}) == 1);
}

TEST_CASE("assign: nothing pending gives empty shares", "[plan]") {
  CHECK(CountsOf(0, {100, 0}) == std::vector<int64_t>{0, 0});
}

TEST_CASE("first owners: the ranges partition the elements at block borders", "[plan]") {
  const int64_t size = GENERATE(0, 1, 4096, 4097, 100'000, 1'234'567);
  const int n = GENERATE(1, 2, 3, 7, 64);
  CAPTURE(size, n);
  int64_t next = 0, smallest = size, largest = 0;
  for (int r = 0; r < n; ++r) {
    const Interval range = FirstOwned(size, n, r);
    CHECK(range.begin == next);
    CHECK(range.begin <= range.end);
    if (range.end != size) CHECK(range.end % 4096 == 0);
    smallest = std::min(smallest, range.end - range.begin);
    largest = std::max(largest, range.end - range.begin);
    next = range.end;
  }
  CHECK(next == size);
  CHECK(largest - smallest <= 4096);
}

}  // namespace starling::plan
