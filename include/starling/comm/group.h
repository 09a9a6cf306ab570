// Owns the communicator of the current generation and fences it: a call for another generation is
// refused, and an abort reaches a communicator even while the training thread is blocked in it.
// Thread-safe: the training thread installs and uses, the control thread aborts.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "starling/comm/communicator.h"

namespace starling::comm {

class Group {
 public:
  // Makes `communicator` the current one; the earlier one, if any, is aborted and dropped. When its
  // generation was already closed by Close it is aborted at once.
  void Install(std::unique_ptr<Communicator> communicator);

  // The communicator of `generation`, kept alive by the returned pointer. FailedPrecondition when
  // it is not the current one or is closed.
  absl::StatusOr<std::shared_ptr<Communicator>> Get(Generation generation) const;

  // Closes `generation` and all older ones for good: their communicator is aborted, now or when it
  // is installed. Never blocks.
  void Close(Generation generation, const std::string& reason);

 private:
  mutable absl::Mutex mutex_;
  std::shared_ptr<Communicator> current_ ABSL_GUARDED_BY(mutex_);
  Generation closed_ ABSL_GUARDED_BY(mutex_);  // this one and older are closed
};

}  // namespace starling::comm
