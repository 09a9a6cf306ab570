// One line of progress on standard error: rewritten in place on a terminal, at most 5 times a
// second; elsewhere (a batch log) a plain line now and then, and no carriage returns. Thread-safe.
#pragma once

#include <cstdio>
#include <string>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "starling/base/clock.h"

namespace starling::cli {

struct ProgressOptions {
  std::FILE* out = stderr;
  bool terminal = false;                            // rewrite the line
  absl::Duration redraw = absl::Milliseconds(200);  // on a terminal
  absl::Duration plain = absl::Seconds(30);         // between lines elsewhere
  const Clock* clock = &SystemClock::Get();
};

// Standard error, as it is.
ProgressOptions StandardErrorProgress();

class Progress {
 public:
  explicit Progress(const ProgressOptions& options);
  ~Progress();  // as Finish("")
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // The newest state. Shown now, or not at all when the last one is too fresh.
  void Show(const std::string& line) ABSL_LOCKS_EXCLUDED(mutex_);
  // A line that stays, above the progress line.
  void Print(const std::string& line) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends the progress line, with a last state that is always shown unless it is empty. Later calls
  // start a new line.
  void Finish(const std::string& line) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Draw(const std::string& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const ProgressOptions options_;
  absl::Mutex mutex_;
  std::string drawn_ ABSL_GUARDED_BY(mutex_);  // on the terminal now; empty after Finish
  absl::Time next_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// "[########------------]" for a part of the whole in [0, 1].
std::string ProgressBar(double part, int width = 20);

}  // namespace starling::cli
