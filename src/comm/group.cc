#include "starling/comm/group.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace starling::comm {

void Group::Install(std::unique_ptr<Communicator> communicator) {
  const std::shared_ptr<Communicator> installed = std::move(communicator);
  {
    absl::MutexLock lock(&mutex_);
    if (installed->generation() > closed_) {
      open_[installed->generation()] = installed;
      return;
    }
  }
  installed->Abort("its generation was closed before it was installed");
}

absl::StatusOr<std::shared_ptr<Communicator>> Group::Get(Generation generation) const {
  absl::MutexLock lock(&mutex_);
  const auto it = open_.find(generation);
  if (it != open_.end()) return it->second;
  return absl::FailedPreconditionError(
      absl::StrCat("generation ", generation.value(),
                   generation <= closed_ ? " is closed" : " is not connected here"));
}

void Group::Close(Generation generation, const std::string& reason) {
  std::vector<std::shared_ptr<Communicator>> aborted;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = std::max(closed_, generation);
    while (!open_.empty() && open_.begin()->first <= closed_) {
      aborted.push_back(std::move(open_.begin()->second));
      open_.erase(open_.begin());
    }
  }
  for (const auto& communicator : aborted) communicator->Abort(reason);
}

void Group::Finish(Generation generation) {
  std::shared_ptr<Communicator> finished;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  const auto it = open_.find(generation);
  if (it == open_.end()) return;
  finished = std::move(it->second);
  open_.erase(it);
}

}  // namespace starling::comm
