// Goodput of a run: the share of the time since the first view began in which work was being done
// that counts. Not counted: every phase other than running, and, once a change is over, the time
// from its first sign to its detection. One thread.
#pragma once

#include <algorithm>

#include "absl/time/time.h"

namespace starling::coordinator {

class Goodput {
 public:
  // Says in which phase the run is since the last call's time; from now on `running`.
  void Observe(bool running, absl::Time now) {
    if (begun_ && running_) productive_ += now - last_;
    if (running && !begun_) {
      begun_ = true;
      start_ = now;
    }
    running_ = running;
    last_ = now;
  }
  // Time that looked productive and was not.
  void Stalled(absl::Duration time) {
    productive_ = std::max(absl::ZeroDuration(), productive_ - time);
  }
  // In [0, 1]; 1 before the first view.
  double ratio() const {
    if (!begun_ || last_ <= start_) return 1;
    return absl::FDivDuration(productive_, last_ - start_);
  }

 private:
  bool begun_ = false;
  bool running_ = false;
  absl::Time start_;
  absl::Time last_;
  absl::Duration productive_;
};

}  // namespace starling::coordinator
