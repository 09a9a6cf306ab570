// The simulator's time: events ordered by (time, sequence number), so that ties are broken by
// insertion and one seed always gives the same run. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "starling/base/rng.h"

namespace starling::sim {

using Micros = int64_t;  // since the start of the simulation

class EventQueue {
 public:
  void At(Micros time, std::function<void()> action) {
    events_.push({std::max(time, now_), next_++, std::move(action)});
  }
  void After(Micros delay, std::function<void()> action) { At(now_ + delay, std::move(action)); }
  // Runs the earliest event, unless it is later than `limit`; then time moves to `limit`.
  bool RunOne(Micros limit) {
    if (events_.empty() || events_.top().time > limit) {
      now_ = std::max(now_, limit);
      return false;
    }
    // The action may push: it is moved out first. Its place in the order is not touched.
    Event event = std::move(const_cast<Event&>(events_.top()));
    events_.pop();
    now_ = event.time;
    ++ran_;
    event.action();
    return true;
  }
  Micros now() const { return now_; }
  absl::Time time() const { return absl::UnixEpoch() + absl::Microseconds(now_); }
  int64_t ran() const { return ran_; }

 private:
  struct Event {
    Micros time;
    uint64_t sequence;
    std::function<void()> action;
    bool operator<(const Event& other) const {  // the queue's top is the greatest
      return time != other.time ? time > other.time : sequence > other.sequence;
    }
  };
  std::priority_queue<Event> events_;
  Micros now_ = 0;
  uint64_t next_ = 0;
  int64_t ran_ = 0;
};

// Random numbers that are the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(Mix64(seed ^ 0x51a2)) {}
  uint64_t Bits() { return Mix64(state_ += 0x9e3779b97f4a7c15u); }
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(ToBounded(Bits(), static_cast<uint64_t>(bound)));
  }
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  bool Chance(double probability) { return ToUnit(Bits()) < probability; }

 private:
  uint64_t state_;
};

}  // namespace starling::sim
