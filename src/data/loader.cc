#include "starling/data/loader.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "starling/base/log.h"

namespace starling::data {
namespace {

class ThreadedLoader final : public Loader {
 public:
  ThreadedLoader(std::shared_ptr<const MicroBatchSource> source, size_t capacity)
      : source_(std::move(source)), capacity_(capacity), thread_([this] { Run(); }) {}

  ~ThreadedLoader() override {
    {
      absl::MutexLock lock(&mutex_);
      stopping_ = true;
    }
    thread_.join();
  }

  void Request(std::vector<MicroBatchId> wanted) override {
    absl::MutexLock lock(&mutex_);
    std::erase_if(ready_, [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return std::find(wanted.begin(), wanted.end(), entry.first) == wanted.end() &&
             !IsAwaited(entry.first);
    });
    discard_making_ =
        making_.has_value() && std::find(wanted.begin(), wanted.end(), *making_) == wanted.end();
    wanted_.clear();
    for (const MicroBatchId id : wanted) {
      if (!ready_.contains(id) && making_ != id) wanted_.push_back(id);
    }
  }

  absl::StatusOr<Batch> Take(MicroBatchId id) override {
    absl::MutexLock lock(&mutex_);
    if (!ready_.contains(id) && making_ != id) urgent_.push_back(id);
    ++awaited_[id];
    const auto is_ready = [this, id]()
                              ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ready_.contains(id); };
    mutex_.Await(absl::Condition(&is_ready));
    const auto entry = ready_.find(id);
    absl::StatusOr<Batch> batch = std::move(entry->second);
    ready_.erase(entry);
    if (--awaited_[id] == 0) {
      awaited_.erase(id);
    } else {
      urgent_.push_back(id);  // somebody else waits for the same batch: make it once more
    }
    std::erase(wanted_, id);
    return batch;
  }

 private:
  bool IsAwaited(MicroBatchId id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return awaited_.contains(id);
  }
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !urgent_.empty() || (!wanted_.empty() && ready_.size() < capacity_);
  }

  MicroBatchId NextLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::deque<MicroBatchId>& queue = urgent_.empty() ? wanted_ : urgent_;
    const MicroBatchId id = queue.front();
    queue.pop_front();
    std::erase(wanted_, id);
    return id;
  }

  void Run() {
    absl::MutexLock lock(&mutex_);
    for (;;) {
      mutex_.Await(absl::Condition(this, &ThreadedLoader::HasWork));
      if (stopping_) return;
      const MicroBatchId id = NextLocked();
      if (ready_.contains(id)) continue;
      making_ = id;
      discard_making_ = false;
      mutex_.Unlock();
      absl::StatusOr<Batch> batch = source_->Make(id);
      mutex_.Lock();
      making_.reset();
      if (!discard_making_ || IsAwaited(id)) ready_.insert_or_assign(id, std::move(batch));
    }
  }

  const std::shared_ptr<const MicroBatchSource> source_;
  const size_t capacity_;
  absl::Mutex mutex_;
  std::deque<MicroBatchId> urgent_ ABSL_GUARDED_BY(mutex_);      // asked for by Take, not made yet
  std::deque<MicroBatchId> wanted_ ABSL_GUARDED_BY(mutex_);      // the rest of the last Request
  std::map<MicroBatchId, int> awaited_ ABSL_GUARDED_BY(mutex_);  // callers inside Take
  std::optional<MicroBatchId> making_ ABSL_GUARDED_BY(mutex_);   // set while the thread makes one
  bool discard_making_ ABSL_GUARDED_BY(mutex_) = false;  // set by a Request that leaves it out
  std::map<MicroBatchId, absl::StatusOr<Batch>> ready_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: starts when everything above exists
};

}  // namespace

std::unique_ptr<Loader> Loader::Create(std::shared_ptr<const MicroBatchSource> source,
                                       size_t capacity) {
  STARLING_CHECK(capacity > 0);
  return std::make_unique<ThreadedLoader>(std::move(source), capacity);
}

}  // namespace starling::data
