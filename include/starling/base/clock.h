// Time as an interface, so that decisions are tested without waiting. Thread-safe.
#pragma once

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace starling {

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic time: never set back; comparable within one process only.
  virtual absl::Time Now() const = 0;
};

// CLOCK_MONOTONIC, shifted so that the process's first reading equals the wall clock.
class SystemClock final : public Clock {
 public:
  absl::Time Now() const override;
  static SystemClock& Get();
};

// Moves only when told to.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(absl::Time start = absl::UnixEpoch()) : now_(start) {}
  absl::Time Now() const override;
  void Advance(absl::Duration by);

 private:
  mutable absl::Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling
