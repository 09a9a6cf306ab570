// The collectives of workers without a model (fake_worker.h): mailboxes in memory. Thread-safe.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "starling/membership/types.h"

namespace starling::testing {

using Weights = std::vector<float>;  // 64 of them
inline constexpr int64_t kFakeWeights = 64;

// What one rank says in a collective.
struct FakePayload {
  plan::IntervalSet micro_batches;
  int64_t count = 0;
  uint64_t mix = 0;
  bool request_checkpoint = false;
  Weights weights;
  int64_t updates = 0;
  Version version;                // of the weights
  membership::Position position;  // of an accumulator that is handed over
};

// Mailboxes of all generations, and a budget of micro-batches that lets a test stop the workers in
// the middle of a step. Thread-safe.
class FakeNetwork {
 public:
  // How a wait ended.
  enum class End { kOk, kAborted, kBroken };

  void Post(Generation generation, const std::string& tag, Rank rank, FakePayload payload) {
    absl::MutexLock lock(&mutex_);
    boxes_[{generation, tag}][rank] = std::move(payload);
  }

  // Waits for the payload of `rank` of `view`; kAborted when `self` has closed the generation or
  // died, kBroken, naming them, when other members have.
  End Await(Incarnation self, const membership::View& view, const std::string& tag, Rank rank,
            FakePayload* payload, std::vector<Incarnation>* suspects) {
    absl::MutexLock lock(&mutex_);
    const Generation generation = view.generation;
    const auto broken = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return std::any_of(view.members.begin(), view.members.end(),
                         [&](const auto& m) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                           return LeftLocked(generation, m.incarnation);
                         });
    };
    const auto ready = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return boxes_[{generation, tag}].contains(rank) || broken();
    };
    mutex_.Await(absl::Condition(&ready));
    const auto& box = boxes_[{generation, tag}];
    if (LeftLocked(generation, self)) return End::kAborted;
    if (const auto it = box.find(rank); it != box.end()) {
      *payload = it->second;
      return End::kOk;
    }
    for (const membership::Member& member : view.members) {
      if (LeftLocked(generation, member.incarnation)) suspects->push_back(member.incarnation);
    }
    return End::kBroken;
  }

  // `who` takes no part in `generation` and older ones any more.
  void Leave(Generation generation, Incarnation who) {
    absl::MutexLock lock(&mutex_);
    Generation& closed = closed_[who];
    closed = std::max(closed, generation);
  }
  // `who` takes no part in anything any more.
  void Die(Incarnation who) { Leave(Generation(~uint64_t{0}), who); }

  // Micro-batches that may be computed in all, from the beginning; computing waits at the limit.
  void AllowUpTo(int64_t micro_batches) {
    absl::MutexLock lock(&mutex_);
    allowed_ = micro_batches;
  }
  // Takes one from the budget; false when `self` closed the generation while waiting.
  bool TakeTurn(Generation generation, Incarnation self) {
    absl::MutexLock lock(&mutex_);
    const auto free = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return taken_ < allowed_ || LeftLocked(generation, self);
    };
    mutex_.Await(absl::Condition(&free));
    if (LeftLocked(generation, self)) return false;
    ++taken_;
    return true;
  }
  // Waits until the budget is used up: every worker then waits at the limit or in a collective.
  void AwaitUsedUp() {
    absl::MutexLock lock(&mutex_);
    const auto used = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return taken_ >= allowed_; };
    mutex_.Await(absl::Condition(&used));
  }

  // Anything that no correct run shows, e.g. a sum with a micro-batch twice.
  void Complain(std::string what) {
    absl::MutexLock lock(&mutex_);
    complaints_.push_back(std::move(what));
  }
  std::vector<std::string> complaints() const {
    absl::MutexLock lock(&mutex_);
    return complaints_;
  }

 private:
  bool LeftLocked(Generation generation, Incarnation who) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto it = closed_.find(who);
    return it != closed_.end() && it->second >= generation;
  }

  mutable absl::Mutex mutex_;
  std::map<std::pair<Generation, std::string>, std::map<Rank, FakePayload>> boxes_
      ABSL_GUARDED_BY(mutex_);
  std::map<Incarnation, Generation> closed_ ABSL_GUARDED_BY(mutex_);  // newest one left
  int64_t allowed_ ABSL_GUARDED_BY(mutex_) = int64_t{1} << 60;
  int64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::string> complaints_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::testing
