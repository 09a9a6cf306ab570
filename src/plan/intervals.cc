#include "starling/plan/intervals.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "starling/base/rng.h"

namespace starling::plan {

IntervalSet IntervalSet::Whole(int64_t count) {
  IntervalSet set;
  if (count > 0) set.intervals_.push_back({0, count});
  return set;
}

IntervalSet IntervalSet::Of(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  IntervalSet set;
  for (const Interval& interval : intervals) {
    if (interval.begin >= interval.end) continue;
    if (!set.intervals_.empty() && interval.begin <= set.intervals_.back().end) {
      set.intervals_.back().end = std::max(set.intervals_.back().end, interval.end);
    } else {
      set.intervals_.push_back(interval);
    }
  }
  return set;
}

void IntervalSet::Add(Interval interval) {
  if (interval.begin >= interval.end) return;
  // The usual case: the next micro-batch in order.
  if (!intervals_.empty() && intervals_.back().end == interval.begin) {
    intervals_.back().end = interval.end;
    return;
  }
  std::vector<Interval> all = std::move(intervals_);
  all.push_back(interval);
  *this = Of(std::move(all));
}

void IntervalSet::Add(const IntervalSet& other) {
  std::vector<Interval> all = std::move(intervals_);
  all.insert(all.end(), other.intervals_.begin(), other.intervals_.end());
  *this = Of(std::move(all));
}

void IntervalSet::Remove(const IntervalSet& other) {
  std::vector<Interval> kept;
  auto cut = other.intervals_.begin();
  for (Interval left : intervals_) {
    while (cut != other.intervals_.end() && cut->end <= left.begin) ++cut;
    for (auto it = cut; it != other.intervals_.end() && it->begin < left.end; ++it) {
      if (left.begin < it->begin) kept.push_back({left.begin, it->begin});
      left.begin = std::max(left.begin, std::min(it->end, left.end));
    }
    if (left.begin < left.end) kept.push_back(left);
  }
  intervals_ = std::move(kept);
}

bool IntervalSet::Contains(int64_t value) const {
  auto it = std::upper_bound(intervals_.begin(), intervals_.end(), value,
                             [](int64_t v, const Interval& i) { return v < i.begin; });
  return it != intervals_.begin() && value < std::prev(it)->end;
}

bool IntervalSet::Intersects(const IntervalSet& other) const {
  auto a = intervals_.begin(), b = other.intervals_.begin();
  while (a != intervals_.end() && b != other.intervals_.end()) {
    if (a->begin < b->end && b->begin < a->end) return true;
    if (a->end < b->end) {
      ++a;
    } else {
      ++b;
    }
  }
  return false;
}

int64_t IntervalSet::count() const {
  int64_t total = 0;
  for (const Interval& interval : intervals_) total += interval.end - interval.begin;
  return total;
}

IntervalSet IntervalSet::TakeFirst(int64_t count) {
  IntervalSet taken;
  size_t used = 0;
  for (; used < intervals_.size() && count > 0; ++used) {
    Interval& interval = intervals_[used];
    const int64_t length = std::min(count, interval.end - interval.begin);
    taken.intervals_.push_back({interval.begin, interval.begin + length});
    count -= length;
    interval.begin += length;
    if (interval.begin < interval.end) break;
  }
  intervals_.erase(intervals_.begin(), intervals_.begin() + static_cast<std::ptrdiff_t>(used));
  return taken;
}

uint64_t IntervalSet::MixSum() const {
  uint64_t sum = 0;
  for (const Interval& interval : intervals_) {
    for (int64_t i = interval.begin; i < interval.end; ++i) sum += Mix64(static_cast<uint64_t>(i));
  }
  return sum;
}

std::string IntervalSet::ToString() const {
  std::string text;
  for (const Interval& interval : intervals_) {
    absl::StrAppend(&text, text.empty() ? "" : " ", "[", interval.begin, ",", interval.end, ")");
  }
  return text.empty() ? "-" : text;
}

}  // namespace starling::plan
