#include "starling/base/clock.h"

#include <time.h>

namespace starling {
namespace {

absl::Duration Monotonic() {
  timespec ts;
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return absl::DurationFromTimespec(ts);
}

}  // namespace

absl::Time SystemClock::Now() const {
  static const absl::Time origin = absl::Now() - Monotonic();
  return origin + Monotonic();
}

SystemClock& SystemClock::Get() {
  static SystemClock& clock = *new SystemClock;
  return clock;
}

absl::Time ManualClock::Now() const {
  absl::MutexLock lock(&mutex_);
  return now_;
}

void ManualClock::Advance(absl::Duration by) {
  absl::MutexLock lock(&mutex_);
  now_ += by;
}

}  // namespace starling
