// Writes parts in the background, so that training goes on while the disk works. Owned by the
// trainer of one worker. Thread-safe. Owns one thread; bounded: one part being written and one
// waiting.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "starling/base/fs.h"
#include "starling/checkpoint/writer.h"

namespace starling::checkpoint {

// A part to be written.
struct Snapshot {
  std::string folder;  // path of `step-<N>.t<timeline>`
  PartSpec spec;
  std::vector<TensorSlice> slices;
  // Keeps the bytes behind `slices` alive and unchanged; nothing is copied. Released before the
  // callback, so that a buffer can be used again from there on.
  std::shared_ptr<const void> storage;
};

class AsyncWriter {
 public:
  // Called once for each accepted snapshot, on the writer's thread (Cancelled: on the destroying
  // one), without a lock held: the part, now durable, or why there is none. It may call Submit but
  // not Drain.
  using Callback = std::function<void(absl::StatusOr<Part>)>;

  explicit AsyncWriter(Fs& fs);
  // Refuses later snapshots, gives a waiting one Cancelled, finishes the one being written (so it
  // may block on the disk), then ends the thread. Call Drain first to write what waits.
  ~AsyncWriter();
  AsyncWriter(const AsyncWriter&) = delete;
  AsyncWriter& operator=(const AsyncWriter&) = delete;

  // Takes the snapshot; never blocks. ResourceExhausted when one is being written and one waits:
  // the disk is slower than the checkpoints are frequent, and this one is skipped.
  absl::Status Submit(Snapshot snapshot, Callback done);

  // Waits until all that was accepted has been written and reported. DeadlineExceeded when that has
  // not happened after `timeout`; the writing goes on.
  absl::Status Drain(absl::Duration timeout);

 private:
  struct Job {
    Snapshot snapshot;
    Callback done;
  };

  void Run();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !waiting_.empty() || stopping_;
  }
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return waiting_.empty() && !writing_; }

  Fs& fs_;
  absl::Mutex mutex_;
  std::deque<Job> waiting_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;  // cleared when the callback has returned
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace starling::checkpoint
