// Owns a worker's communicators, by generation, and fences them: a call for a closed generation is
// refused, and an abort reaches a communicator even while a thread is blocked in it. There are
// several only while the next one is being prepared. Thread-safe: the training thread and the one
// beside it install and use, each its own generations; the control thread closes.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "starling/comm/communicator.h"

namespace starling::comm {

class Group {
 public:
  // Takes over `communicator`. When its generation was already closed by Close it is aborted at
  // once.
  void Install(std::unique_ptr<Communicator> communicator);

  // The communicator of `generation`, kept alive by the returned pointer. FailedPrecondition when
  // there is none or it is closed.
  absl::StatusOr<std::shared_ptr<Communicator>> Get(Generation generation) const;

  // Closes `generation` and all older ones for good: their communicators are aborted, now or when
  // they are installed. Never blocks.
  void Close(Generation generation, const std::string& reason);

  // Drops the communicator of this one generation without aborting it: the peers see that this
  // process has finished with it.
  void Finish(Generation generation);

 private:
  mutable absl::Mutex mutex_;
  std::map<Generation, std::shared_ptr<Communicator>> open_ ABSL_GUARDED_BY(mutex_);
  Generation closed_ ABSL_GUARDED_BY(mutex_);  // this one and older are closed
};

}  // namespace starling::comm
