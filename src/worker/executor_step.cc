// The commands of a step: compute, reduce, vote, apply, and what becomes of the accumulator.
#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "starling/base/clock.h"
#include "starling/base/log.h"
#include "starling/base/rng.h"
#include "starling/optim/step.h"
#include "starling/plan/assign.h"
#include "starling/worker/executor.h"
#include "worker/executor_common.h"

namespace starling::worker {
namespace {

using comm::FaultPoint;
using membership::Completion;

comm::Layout FirstOwners(int64_t size, int members) {
  comm::Layout layout;
  for (int r = 0; r < members; ++r) {
    const plan::Interval range = plan::FirstOwned(size, members, r);
    layout.emplace_back();
    if (range.begin < range.end) layout.back().push_back({range.begin, range.end});
  }
  return layout;
}

template <typename T>
comm::ReducePart SumOf(std::vector<T>& values, DType dtype) {
  return {{values.data(), static_cast<int64_t>(values.size()), dtype}, comm::ReduceOp::kSum};
}

// Finite checks survive compilers; only an infinite or NaN norm makes a step worthless.
membership::Outcome OutcomeOf(double grad_norm) {
  return std::isfinite(grad_norm) ? membership::Outcome::kCommit : membership::Outcome::kSkip;
}

}  // namespace

train::UpdateScalars Executor::Scalars(double learning_rate, double clip_factor,
                                       int64_t update) const {
  return {learning_rate, 1.0 / static_cast<double>(options_.membership.micro_batches), clip_factor,
          update};
}

void Executor::MeasureSpeed(absl::Duration spent) {
  const double now = 1.0 / std::max(1e-6, absl::ToDoubleSeconds(spent));
  const double before = speed_.load(std::memory_order_relaxed);
  speed_.store(before == 0 ? now : 0.8 * before + 0.2 * now, std::memory_order_relaxed);
}

Completion Executor::Do(const membership::Compute& command) {
  const absl::Time start = SystemClock::Get().Now();
  const int64_t step = command.position.step.value();
  Pass(FaultPoint::kCompute);
  std::vector<data::MicroBatchId> wanted{{step, command.index}};
  for (const plan::Interval& interval : command.upcoming.intervals()) {
    for (int64_t i = interval.begin; i < interval.end && wanted.size() <= kPrefetch; ++i) {
      wanted.push_back({step, i});
    }
  }
  loader_->Request(std::move(wanted));
  absl::StatusOr<data::Batch> batch = loader_->Take({step, command.index});
  if (!batch.ok()) return Failure(batch.status());
  const uint64_t dropout_seed = Draw({.seed = options_.seed,
                                      .step = static_cast<uint64_t>(step),
                                      .micro_batch = static_cast<uint32_t>(command.index),
                                      .purpose = DrawPurpose::kDropout});
  const absl::StatusOr<train::MicroBatchLosses> losses =
      parts_.trainer->Compute(*batch, dropout_seed);
  if (!losses.ok()) return Failure(losses.status());
  losses_.mlm += losses->mlm;
  losses_.sop += losses->sop;
  losses_.tokens += losses->tokens;
  losses_.computed_here = true;
  absl::Duration spent = SystemClock::Get().Now() - start;
  if (spent < pace_) {
    std::this_thread::sleep_for(absl::ToChronoNanoseconds(pace_ - spent));
    spent = pace_;
  }
  MeasureSpeed(spent);
  Pass(FaultPoint::kComputed);
  return {};
}

Completion Executor::Do(const membership::Reduce& command) {
  auto communicator = group_.Get(command.generation);
  if (!communicator.ok()) return FromStatus(communicator.status(), command.generation);
  comm::Communicator& c = **communicator;
  train::Trainer& trainer = *parts_.trainer;
  const comm::Layout layout = FirstOwners(trainer.layout().size, c.size());
  const std::vector<comm::Range>& mine = layout[static_cast<size_t>(c.rank().value())];
  Pass(FaultPoint::kReduce);
  // Each element is summed at its first owner and then forwarded, so all ranks hold the same bits.
  absl::Status status = c.ReduceScatter(FloatBuffer(trainer.accumulator()),
                                        FloatBuffer(trainer.reduced()), layout, kCollectiveTimeout);
  Pass(FaultPoint::kGather);
  if (status.ok()) status = c.AllGather(FloatBuffer(trainer.reduced()), layout, kCollectiveTimeout);
  std::vector<double> square{0.0};
  if (status.ok()) {
    Pass(FaultPoint::kNorm);
    square[0] = trainer.SquaredNorm(mine);
    const comm::ReducePart part = SumOf(square, DType::kFloat64);
    status = c.AllReduce({&part, 1}, kCollectiveTimeout);
  }
  if (!status.ok()) return FromStatus(status, command.generation);
  Pass(FaultPoint::kNormed);
  measured_.position = command.position;
  measured_.grad_norm =
      std::sqrt(square[0]) / static_cast<double>(options_.membership.micro_batches);
  measured_.clip_factor = optim::ClipFactor(measured_.grad_norm, options_.clip);
  measured_.learning_rate =
      options_.learning_rate * options_.schedule.Factor(command.position.step.value());
  measured_.partial = trainer.Measure(
      mine, Scalars(measured_.learning_rate, measured_.clip_factor, command.update));
  return {};
}

Completion Executor::Do(const membership::Vote& command) {
  WaitForCopy(command.generation);
  auto communicator = group_.Get(command.generation);
  if (!communicator.ok()) return FromStatus(communicator.status(), command.generation);
  comm::Communicator& c = **communicator;
  const auto members = static_cast<size_t>(c.size());
  const auto self = static_cast<size_t>(c.rank().value());
  const size_t tensors = parts_.trainer->layout().tensors.size();
  const int64_t step = command.position.step.value();
  const int64_t digest_every = options_.membership.digest_every;
  const bool digest_due = digest_every > 0 && step > 0 && step % digest_every == 0;

  std::vector<double> sums{losses_.mlm, losses_.sop};
  // A partial norm belongs to exactly one rank only when it was measured in this generation's
  // layout; Reduce always runs before Vote in the same generation.
  sums.insert(sums.end(), measured_.partial.weight_squares.begin(),
              measured_.partial.weight_squares.end());
  sums.insert(sums.end(), measured_.partial.update_squares.begin(),
              measured_.partial.update_squares.end());
  std::vector<uint64_t> counts(3 + members + (digest_due ? 4 * members : 0), 0);
  counts[0] = static_cast<uint64_t>(command.count);
  counts[1] = command.mix;
  counts[2] = static_cast<uint64_t>(losses_.tokens);
  if (losses_.computed_here) counts[3 + self] = static_cast<uint64_t>(std::lround(speed() * 1000));
  if (digest_due) {
    const membership::Digest digest = parts_.trainer->Digest(all_);
    std::copy(digest.begin(), digest.end(),
              counts.begin() + static_cast<std::ptrdiff_t>(3 + members + 4 * self));
  }
  std::vector<uint64_t> flags{command.request_checkpoint ? 1u : 0u};
  const comm::ReducePart parts[] = {SumOf(sums, DType::kFloat64),
                                    SumOf(counts, DType::kUint64),
                                    {{flags.data(), 1, DType::kUint64}, comm::ReduceOp::kOr}};
  Pass(FaultPoint::kVote);
  if (absl::Status status = c.AllReduce(parts, kCollectiveTimeout); !status.ok()) {
    return FromStatus(status, command.generation);
  }
  Pass(FaultPoint::kVoted);
  membership::VoteResult result;
  result.generation = command.generation;
  result.at = command.position;
  result.outcome = OutcomeOf(measured_.grad_norm);
  result.count = static_cast<int64_t>(counts[0]);
  result.mix = counts[1];
  result.update =
      result.outcome == membership::Outcome::kCommit ? command.update : command.update - 1;
  result.learning_rate = measured_.learning_rate;
  result.mlm_loss = sums[0];
  result.sop_loss = sums[1];
  result.tokens = static_cast<int64_t>(counts[2]);
  result.grad_norm = measured_.grad_norm;
  result.clip_factor = measured_.clip_factor;
  const auto norms = sums.begin() + 2;
  result.weight_squares.assign(norms, norms + static_cast<std::ptrdiff_t>(tensors));
  result.update_squares.assign(norms + static_cast<std::ptrdiff_t>(tensors), sums.end());
  for (size_t r = 0; r < members; ++r)
    result.speeds.push_back(static_cast<plan::Speed>(counts[3 + r]));
  result.checkpoint_requested = flags[0] != 0;
  for (size_t r = 0; digest_due && r < members; ++r) {
    membership::Digest digest;
    std::copy_n(counts.begin() + static_cast<std::ptrdiff_t>(3 + members + 4 * r), 4,
                digest.begin());
    result.digests.push_back(digest);
  }
  return {.vote = std::move(result)};
}

Completion Executor::Do(const membership::Apply& command) {
  const membership::VoteResult& result = command.result;
  Pass(FaultPoint::kApply);
  absl::MutexLock lock(&state_mutex_);
  state_.version = result.After().version();
  if (result.outcome == membership::Outcome::kCommit) {
    parts_.trainer->Apply(all_, Scalars(result.learning_rate, result.clip_factor, result.update),
                          {result.weight_squares, result.update_squares});
    state_.updates = result.update;
  } else {
    STARLING_LOG(Warning) << "step=" << result.at.step.value() + 1
                          << " outcome=" << membership::ToString(result.outcome)
                          << " grad_norm=" << result.grad_norm;
  }
  Pass(FaultPoint::kApplied);
  return {};
}

Completion Executor::Do(const membership::ClearAccumulator& command) {
  parts_.trainer->ClearAccumulator();
  losses_ = {};
  absl::MutexLock lock(&held_mutex_);
  std::erase_if(held_,
                [&](const auto& held) { return !(held.second.position == command.position); });
  return {};
}

Completion Executor::Do(const membership::MergeHeld& command) {
  absl::MutexLock lock(&held_mutex_);
  const std::span<float> accumulator = parts_.trainer->accumulator();
  for (Incarnation owner : command.owners) {
    const auto it = held_.find(owner);
    if (it == held_.end()) {
      return Failure(
          absl::InternalError(absl::StrCat("no accumulator of ", ToHex(owner), " is held here")));
    }
    const Held& held = it->second;
    for (size_t i = 0; i < held.sums.size(); ++i) accumulator[i] += held.sums[i];
    losses_.mlm += held.losses.mlm;
    losses_.sop += held.losses.sop;
    losses_.tokens += held.losses.tokens;
    held_.erase(it);
  }
  return {};
}

}  // namespace starling::worker
