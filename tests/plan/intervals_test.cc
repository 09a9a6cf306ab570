// IntervalSet against std::set, operation by operation.
#include "starling/plan/intervals.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <set>

#include "starling/base/rng.h"

namespace starling::plan {
namespace {

constexpr int64_t kRange = 40;

// Numbers of one seed, the same everywhere.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(ToBounded(Mix64(state_++), static_cast<uint64_t>(bound)));
  }

 private:
  uint64_t state_;
};

std::set<int64_t> Values(const IntervalSet& set) {
  std::set<int64_t> values;
  for (const Interval& i : set.intervals()) {
    for (int64_t v = i.begin; v < i.end; ++v) values.insert(v);
  }
  return values;
}

void CheckCanonical(const IntervalSet& set) {
  const auto& intervals = set.intervals();
  for (size_t i = 0; i < intervals.size(); ++i) {
    CHECK(intervals[i].begin < intervals[i].end);
    if (i > 0) CHECK(intervals[i - 1].end < intervals[i].begin);
  }
}

std::pair<IntervalSet, std::set<int64_t>> RandomSet(Numbers& numbers) {
  std::vector<Interval> intervals;
  std::set<int64_t> values;
  for (int64_t n = numbers.Below(5); n > 0; --n) {
    const int64_t begin = numbers.Below(kRange), end = begin + numbers.Below(8);
    intervals.push_back({begin, end});
    for (int64_t v = begin; v < end; ++v) values.insert(v);
  }
  return {IntervalSet::Of(std::move(intervals)), std::move(values)};
}

}  // namespace

TEST_CASE("intervals: every operation gives what std::set gives", "[plan]") {
  const uint64_t seed = GENERATE(range(1, 21));
  CAPTURE(seed);
  Numbers numbers(seed * 1000);
  auto [set, values] = RandomSet(numbers);
  for (int turn = 0; turn < 200; ++turn) {
    const auto [other, other_values] = RandomSet(numbers);
    CAPTURE(turn, set.ToString(), other.ToString());
    switch (numbers.Below(5)) {
      case 0: {
        const int64_t value = numbers.Below(kRange);
        set.Add(value);
        values.insert(value);
        break;
      }
      case 1:
        set.Add(other);
        values.insert(other_values.begin(), other_values.end());
        break;
      case 2:
      case 3:
        set.Remove(other);
        for (int64_t v : other_values) values.erase(v);
        break;
      case 4: {
        const int64_t count = numbers.Below(6);
        std::set<int64_t> first;
        while (static_cast<int64_t>(first.size()) < count && !values.empty()) {
          first.insert(*values.begin());
          values.erase(values.begin());
        }
        CHECK(Values(set.TakeFirst(count)) == first);
        break;
      }
    }
    CheckCanonical(set);
    CHECK(Values(set) == values);
    CHECK(set.count() == static_cast<int64_t>(values.size()));
    CHECK(set.empty() == values.empty());
    if (!values.empty()) CHECK(set.first() == *values.begin());
    bool intersects = false;
    uint64_t mix = 0;
    for (int64_t v : values) {
      intersects = intersects || other_values.contains(v);
      mix += Mix64(static_cast<uint64_t>(v));
    }
    CHECK(set.Intersects(other) == intersects);
    CHECK(set.MixSum() == mix);
    for (int64_t v = -1; v <= kRange + 8; ++v) CHECK(set.Contains(v) == values.contains(v));
  }
}

TEST_CASE("intervals: equal sets compare equal however they were made", "[plan]") {
  IntervalSet one;
  for (int64_t v : {5, 3, 4, 9}) one.Add(v);
  CHECK(one == IntervalSet::Of({{9, 10}, {3, 5}, {4, 6}, {7, 7}}));
  CHECK(one.ToString() == "[3,6) [9,10)");
  CHECK(IntervalSet::Whole(0).empty());
  CHECK(IntervalSet::Whole(3) == IntervalSet::Of({{0, 1}, {1, 3}}));
  CHECK(IntervalSet().ToString() == "-");
}

TEST_CASE("intervals: the mix tells a repeated micro-batch from a whole step", "[plan]") {
  // {0, 1, 2, 3} and {0, 0, 2, 3} have the same count; their sums differ.
  IntervalSet zero, rest;
  zero.Add(0);
  rest.Add(Interval{2, 4});
  CHECK(zero.MixSum() + zero.MixSum() + rest.MixSum() != IntervalSet::Whole(4).MixSum());
}

}  // namespace starling::plan
