// Queue between threads with a stated limit (I12). Thread-safe; any number of producers and
// consumers.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace starling {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // Appends and returns true; blocks while full. False, and `item` dropped, once closed.
  bool Push(T item) {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &BoundedQueue::CanPush));
    if (closed_) return false;
    items_.push_back(std::move(item));
    return true;
  }

  // Appends unless full or closed; never blocks. Returns whether it was appended.
  bool TryPush(T item) {
    absl::MutexLock lock(&mutex_);
    if (closed_ || items_.size() >= capacity_) return false;
    items_.push_back(std::move(item));
    return true;
  }

  // The oldest item; waits until `deadline`. Nothing at the deadline, or when closed and empty.
  std::optional<T> PopUntil(absl::Time deadline) {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithDeadline(absl::Condition(this, &BoundedQueue::CanPop), deadline);
    return TakeLocked();
  }
  std::optional<T> Pop() { return PopUntil(absl::InfiniteFuture()); }

  // The oldest item, if there is one now.
  std::optional<T> TryPop() {
    absl::MutexLock lock(&mutex_);
    return TakeLocked();
  }

  // Refuses later items and wakes everybody; items already in can still be taken. Idempotent.
  void Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }

  bool closed() const {
    absl::MutexLock lock(&mutex_);
    return closed_;
  }
  size_t size() const {
    absl::MutexLock lock(&mutex_);
    return items_.size();
  }

 private:
  bool CanPush() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closed_ || items_.size() < capacity_;
  }
  bool CanPop() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return closed_ || !items_.empty(); }
  std::optional<T> TakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  const size_t capacity_;
  mutable absl::Mutex mutex_;
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace starling
