#include "starling/comm/group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::comm {

void Group::Install(std::unique_ptr<Communicator> communicator) {
  const std::shared_ptr<Communicator> installed = std::move(communicator);
  std::shared_ptr<Communicator> replaced;
  bool closed = false;
  {
    absl::MutexLock lock(&mutex_);
    replaced = std::exchange(current_, installed);
    closed = installed->generation() <= closed_;
  }
  if (replaced != nullptr) replaced->Abort("replaced by a newer generation");
  if (closed) installed->Abort("its generation was closed before it was installed");
}

absl::StatusOr<std::shared_ptr<Communicator>> Group::Get(Generation generation) const {
  absl::MutexLock lock(&mutex_);
  if (current_ == nullptr || current_->generation() != generation) {
    return absl::FailedPreconditionError(absl::StrCat(
        "generation ", generation.value(), " is not the current one (",
        current_ == nullptr ? "there is none" : absl::StrCat(current_->generation().value()), ")"));
  }
  if (generation <= closed_) {
    return absl::FailedPreconditionError(
        absl::StrCat("generation ", generation.value(), " is closed"));
  }
  return current_;
}

void Group::Close(Generation generation, const std::string& reason) {
  std::shared_ptr<Communicator> aborted;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = std::max(closed_, generation);
    if (current_ != nullptr && current_->generation() <= closed_) aborted = current_;
  }
  if (aborted != nullptr) aborted->Abort(reason);
}

}  // namespace starling::comm
