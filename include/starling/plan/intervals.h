// Sets of micro-batch numbers as sorted, disjoint, half-open intervals. A step of 20,000
// micro-batches is a handful of intervals a worker. Value type; not thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace starling::plan {

struct Interval {
  int64_t begin = 0;
  int64_t end = 0;  // begin < end inside a set
  auto operator<=>(const Interval&) const = default;
};

class IntervalSet {
 public:
  IntervalSet() = default;
  // {0, …, count − 1}.
  static IntervalSet Whole(int64_t count);
  // From intervals in any order, overlapping or empty ones too.
  static IntervalSet Of(std::vector<Interval> intervals);

  void Add(int64_t value) { Add(Interval{value, value + 1}); }
  void Add(Interval interval);
  void Add(const IntervalSet& other);
  void Remove(const IntervalSet& other);

  bool Contains(int64_t value) const;
  bool Intersects(const IntervalSet& other) const;
  bool empty() const { return intervals_.empty(); }
  int64_t count() const;
  int64_t first() const { return intervals_.front().begin; }  // REQUIRES: !empty()
  // Takes the `count` smallest values out and returns them (all when there are fewer).
  IntervalSet TakeFirst(int64_t count);

  // Σ mix64(i) over the set, with wrap-around: with count() it identifies the set (protocol.md §2).
  uint64_t MixSum() const;

  const std::vector<Interval>& intervals() const { return intervals_; }
  std::string ToString() const;  // "[0,4) [7,8)"
  bool operator==(const IntervalSet&) const = default;

 private:
  std::vector<Interval> intervals_;  // end of each < begin of the next
};

}  // namespace starling::plan
