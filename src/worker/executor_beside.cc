// What goes on beside the training: proposed views are connected, states copied to newcomers and
// accumulators of leavers handed over (protocol.md §5).
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "starling/base/clock.h"
#include "starling/base/log.h"
#include "starling/base/status.h"
#include "starling/worker/executor.h"
#include "worker/executor_common.h"

namespace starling::worker {
namespace {

using comm::FaultPoint;
using membership::BesideCompletion;

constexpr Rank kLeaver(0), kReceiver(1);             // in a hand-over's channel
constexpr int64_t kMaxIntervals = int64_t{1} << 20;  // of an untrusted list

// Goes before the intervals and the sums of an accumulator.
struct AccumulatorHeader {
  uint64_t timeline = 0;
  int64_t step = 0;
  uint64_t attempt = 0;
  double mlm_loss = 0;
  double sop_loss = 0;
  int64_t tokens = 0;
  int64_t intervals = 0;

  comm::Buffer buffer() { return {this, sizeof(*this) / sizeof(uint64_t), DType::kUint64}; }
};

comm::Buffer Bounds(std::vector<int64_t>& bounds) {
  return {bounds.data(), static_cast<int64_t>(bounds.size()), DType::kInt64};
}

// begin, end, begin, end, … of intervals within [0, micro_batches).
absl::StatusOr<plan::IntervalSet> ReadBounds(const std::vector<int64_t>& bounds,
                                             int64_t micro_batches) {
  plan::IntervalSet set;
  for (size_t i = 0; i < bounds.size(); i += 2) {
    const plan::Interval interval{bounds[i], bounds[i + 1]};
    if (interval.begin < 0 || interval.begin >= interval.end || interval.end > micro_batches) {
      return absl::DataLossError("the list of an accumulator that was sent is malformed");
    }
    set.Add(interval);
  }
  return set;
}

BesideCompletion Failed(const absl::Status& status, std::vector<Incarnation> suspects = {}) {
  BesideCompletion completion;
  completion.ok = false;
  completion.aborted = EndedHere(status);
  completion.reason = std::string(status.message());
  completion.suspects = std::move(suspects);
  return completion;
}

}  // namespace

BesideCompletion Executor::ExecuteBeside(const membership::BesideCommand& command) {
  BesideCompletion completion = std::visit([this](const auto& c) { return Beside(c); }, command);
  completion.command = command;
  return completion;
}

BesideCompletion Executor::Beside(const membership::PrepareView& command) {
  std::vector<Incarnation> suspects;
  const auto communicator = ConnectView(*command.view, command.secret, command.rank, &suspects);
  if (!communicator.ok()) return Failed(communicator.status(), std::move(suspects));
  if (command.hold && membership::Sends(command.transfers, command.rank)) {
    absl::MutexLock lock(&hold_mutex_);
    hold_below_ = command.view->generation;
    hold_votes_until_ = SystemClock::Get().Now() + options_.membership.join_stall_max;
  }
  const absl::Time start = SystemClock::Get().Now();
  const auto copied = CopyStates(**communicator, command.transfers);
  if (!copied.ok()) {
    for (Rank suspect : (*communicator)->suspects()) {
      suspects.push_back(command.view->members[static_cast<size_t>(suspect.value())].incarnation);
    }
    return Failed(copied.status(), std::move(suspects));
  }
  if (membership::Receives(command.transfers, command.rank)) {
    LogCopy(command, *copied, SystemClock::Get().Now() - start);
  }
  BesideCompletion completion;
  completion.copied = *copied;
  absl::MutexLock lock(&state_mutex_);
  completion.updates = state_.updates;
  return completion;
}

void Executor::LogCopy(const membership::PrepareView& command,
                       const std::optional<Version>& version, absl::Duration took) {
  const double bytes = 3.0 * sizeof(float) * static_cast<double>(parts_.trainer->layout().size);
  STARLING_LOG(Info) << "event=copied for_gen=" << command.view->generation.value()
                     << " round=" << command.round
                     << " version=" << (version ? membership::ToString(*version) : "mixed")
                     << " bytes=" << absl::StrFormat("%.0f", bytes)
                     << " ms=" << absl::StrFormat("%.3f", absl::ToDoubleMilliseconds(took))
                     << " gb_per_s="
                     << absl::StrFormat("%.2f", bytes / 1e9 / absl::ToDoubleSeconds(took));
}

void Executor::WaitForCopy(Generation generation) {
  absl::MutexLock lock(&hold_mutex_);
  const auto free = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(hold_mutex_) {
    return generation >= hold_below_ || closed_ >= generation ||
           SystemClock::Get().Now() >= hold_votes_until_;
  };
  hold_mutex_.AwaitWithDeadline(absl::Condition(&free), hold_votes_until_);
}

BesideCompletion Executor::Beside(const membership::SendAccumulator& command) {
  const Generation channel = command.channel->generation;
  const auto communicator = ConnectView(*command.channel, command.secret, kLeaver, nullptr);
  if (!communicator.ok()) return Failed(communicator.status());
  const auto& intervals = command.held.micro_batches.intervals();
  const membership::Position& position = command.held.position;
  AccumulatorHeader header{position.timeline.value(),
                           position.step.value(),
                           position.attempt.value(),
                           losses_.mlm,
                           losses_.sop,
                           losses_.tokens,
                           static_cast<int64_t>(intervals.size())};
  std::vector<int64_t> bounds;
  for (const plan::Interval& interval : intervals) {
    bounds.push_back(interval.begin);
    bounds.push_back(interval.end);
  }
  absl::Status status;
  const auto send = [&](comm::Buffer piece) {
    if (status.ok()) status = (*communicator)->Send(piece, kReceiver, kCollectiveTimeout);
  };
  points_.Pass(FaultPoint::kHandOver, channel, kLeaver);
  send(header.buffer());
  if (!bounds.empty()) {
    send(Bounds(bounds));
    points_.Pass(FaultPoint::kHandingOver, channel, kLeaver);
    send(FloatBuffer(parts_.trainer->accumulator()));
  }
  group_.Finish(channel);
  points_.Pass(FaultPoint::kHandedOver, channel, kLeaver);
  return status.ok() ? BesideCompletion{} : Failed(status);
}

BesideCompletion Executor::Beside(const membership::ReceiveAccumulator& command) {
  const Generation channel = command.channel->generation;
  const auto communicator = ConnectView(*command.channel, command.secret, kReceiver, nullptr);
  if (!communicator.ok()) return Failed(communicator.status());
  AccumulatorHeader header;
  std::vector<int64_t> bounds;
  std::vector<float> sums;
  absl::Status status;
  const auto receive = [&](comm::Buffer piece) {
    if (status.ok()) status = (*communicator)->Receive(piece, kLeaver, kCollectiveTimeout);
  };
  points_.Pass(FaultPoint::kHandOver, channel, kReceiver);
  receive(header.buffer());
  if (header.intervals < 0 || header.intervals > kMaxIntervals) {
    status = absl::DataLossError(
        absl::StrCat("an accumulator of ", header.intervals, " intervals was sent"));
  } else if (header.intervals > 0) {
    bounds.resize(static_cast<size_t>(2 * header.intervals));
    sums.resize(parts_.trainer->accumulator().size());
    receive(Bounds(bounds));
    points_.Pass(FaultPoint::kHandingOver, channel, kReceiver);
    receive(FloatBuffer(sums));
  }
  group_.Finish(channel);
  if (!status.ok()) return Failed(status);
  points_.Pass(FaultPoint::kHandedOver, channel, kReceiver);
  auto micro_batches = ReadBounds(bounds, options_.membership.micro_batches);
  if (!micro_batches.ok()) return Failed(micro_batches.status());
  const Incarnation owner = command.channel->members[0].incarnation;
  const membership::Position position{Timeline(header.timeline), Step(header.step),
                                      Attempt(static_cast<uint32_t>(header.attempt))};
  BesideCompletion completion;
  completion.held = {owner, position, *std::move(micro_batches)};
  absl::MutexLock lock(&held_mutex_);
  held_[owner] = {position, std::move(sums), {header.mlm_loss, header.sop_loss, header.tokens}};
  return completion;
}

}  // namespace starling::worker
