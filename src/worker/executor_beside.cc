// What goes on beside the training: proposed views are connected, states copied to newcomers and
// accumulators of leavers handed over (protocol.md §5).
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "starling/base/clock.h"
#include "starling/base/log.h"
#include "starling/base/status.h"
#include "starling/worker/executor.h"

namespace starling::worker {
namespace {

using comm::FaultPoint;
using membership::BesideCompletion;
using membership::Transfer;

// What is read whole at one version, and is on its way at a time: 1 MiB.
constexpr size_t kChunk = size_t{1} << 18;
constexpr absl::Duration kTransferTimeout = absl::Minutes(30);  // as last resort
constexpr int64_t kMaxIntervals = int64_t{1} << 20;             // of an untrusted list

// Goes before each chunk.
struct ChunkHeader {
  uint64_t timeline = 0;
  int64_t step = 0;
  int64_t updates = 0;
};
// Goes before an accumulator and the intervals of its micro-batches.
struct AccumulatorHeader {
  uint64_t timeline = 0;
  int64_t step = 0;
  uint64_t attempt = 0;
  int64_t tokens = 0;
  int64_t intervals = 0;
};

template <typename T>
comm::Buffer Words(T* header) {
  static_assert(sizeof(T) % sizeof(uint64_t) == 0);
  return {header, static_cast<int64_t>(sizeof(T) / sizeof(uint64_t)), DType::kUint64};
}

comm::Buffer Floats(float* values, size_t count) {
  return {values, static_cast<int64_t>(count), DType::kFloat32};
}

bool Receives(const membership::PrepareView& command) {
  return std::any_of(command.transfers.begin(), command.transfers.end(),
                     [&](const Transfer& t) { return t.to == command.rank; });
}

std::vector<Rank> DonorsOf(Rank receiver, const std::vector<Transfer>& transfers) {
  std::vector<Rank> donors;
  for (const Transfer& transfer : transfers) {
    if (transfer.to == receiver) donors.push_back(transfer.from);
  }
  return donors;
}

std::vector<Rank> Receivers(const std::vector<Transfer>& transfers) {
  std::vector<Rank> receivers;
  for (const Transfer& transfer : transfers) receivers.push_back(transfer.to);
  std::sort(receivers.begin(), receivers.end());
  receivers.erase(std::unique(receivers.begin(), receivers.end()), receivers.end());
  return receivers;
}

bool Aborted(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsFailedPrecondition(status);
}

BesideCompletion Failed(const absl::Status& status) {
  BesideCompletion completion;
  completion.ok = false;
  completion.aborted = Aborted(status);
  completion.reason = std::string(status.message());
  return completion;
}

}  // namespace

BesideCompletion Executor::ExecuteBeside(const membership::BesideCommand& command) {
  BesideCompletion completion = std::visit([this](const auto& c) { return Beside(c); }, command);
  completion.command = command;
  return completion;
}

BesideCompletion Executor::Beside(const membership::PrepareView& command) {
  BesideCompletion completion;
  const auto communicator =
      ConnectView(*command.view, command.secret, command.rank, &completion.suspects);
  if (!communicator.ok()) {
    BesideCompletion failed = Failed(communicator.status());
    failed.suspects = std::move(completion.suspects);
    return failed;
  }
  const bool gives = std::any_of(command.transfers.begin(), command.transfers.end(),
                                 [&](const Transfer& t) { return t.from == command.rank; });
  if (command.hold && gives) {
    absl::MutexLock lock(&hold_mutex_);
    hold_below_ = command.view->generation;
    hold_votes_until_ = SystemClock::Get().Now() + options_.membership.join_stall_max;
  }
  const absl::Time start = SystemClock::Get().Now();
  const auto copied = CopyStates(**communicator, command.transfers);
  if (!copied.ok()) {
    BesideCompletion failed = Failed(copied.status());
    for (Rank suspect : (*communicator)->suspects()) {
      failed.suspects.push_back(
          command.view->members[static_cast<size_t>(suspect.value())].incarnation);
    }
    return failed;
  }
  completion.copied = *copied;
  if (Receives(command)) LogCopy(command, *copied, SystemClock::Get().Now() - start);
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

absl::StatusOr<std::optional<Version>> Executor::CopyStates(
    comm::Communicator& communicator, const std::vector<Transfer>& transfers) {
  const Rank self = communicator.rank();
  train::Trainer& trainer = *parts_.trainer;
  std::vector<float> staging;
  std::optional<Version> copied;
  bool mixed = false;
  const auto give = [&](std::span<float> chunk, Rank to) {
    ChunkHeader header;
    staging.resize(chunk.size());
    {
      absl::MutexLock lock(&state_mutex_);
      header = {state_.version.timeline.value(), state_.version.step.value(), state_.updates};
      std::memcpy(staging.data(), chunk.data(), chunk.size_bytes());
    }
    absl::Status status = communicator.Send(Words(&header), to, kTransferTimeout);
    if (!status.ok()) return status;
    return communicator.Send(Floats(staging.data(), staging.size()), to, kTransferTimeout);
  };
  const auto take = [&](std::span<float> chunk, Rank from) {
    ChunkHeader header;
    STARLING_RETURN_IF_ERROR(communicator.Receive(Words(&header), from, kTransferTimeout));
    const Version version{Timeline(header.timeline), Step(header.step)};
    mixed = mixed || (copied && *copied != version);
    copied = version;
    absl::MutexLock lock(&state_mutex_);
    state_ = {version, header.updates};
    return communicator.Receive(Floats(chunk.data(), chunk.size()), from, kTransferTimeout);
  };
  const std::vector<Rank> receivers = Receivers(transfers);
  std::vector<std::vector<Rank>> donors;
  for (Rank receiver : receivers) donors.push_back(DonorsOf(receiver, transfers));
  size_t number = 0;
  for (const std::span<float> buffer :
       {trainer.parameters(), trainer.first_moment(), trainer.second_moment()}) {
    for (size_t begin = 0; begin < buffer.size(); begin += kChunk, ++number) {
      const auto chunk = buffer.subspan(begin, std::min(kChunk, buffer.size() - begin));
      for (size_t j = 0; j < receivers.size(); ++j) {
        const Rank donor = donors[j][number % donors[j].size()];
        if (donor != self && receivers[j] != self) continue;
        progress_.fetch_add(1, std::memory_order_relaxed);
        points_.Pass(FaultPoint::kCopy, communicator.generation(), self);
        STARLING_RETURN_IF_ERROR(donor == self ? give(chunk, receivers[j]) : take(chunk, donor));
      }
    }
  }
  const bool took_part = !receivers.empty();
  if (took_part) points_.Pass(FaultPoint::kCopied, communicator.generation(), self);
  return mixed ? std::nullopt : copied;
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
  const membership::View& channel = *command.channel;
  BesideCompletion completion;
  const auto communicator = ConnectView(channel, command.secret, Rank(0), &completion.suspects);
  if (!communicator.ok()) return Failed(communicator.status());
  const auto& intervals = command.held.micro_batches.intervals();
  const membership::Position& position = command.held.position;
  AccumulatorHeader header{position.timeline.value(), position.step.value(),
                           position.attempt.value(), losses_.tokens,
                           static_cast<int64_t>(intervals.size())};
  double losses[] = {losses_.mlm, losses_.sop};
  std::vector<int64_t> bounds;
  for (const plan::Interval& interval : intervals) {
    bounds.push_back(interval.begin);
    bounds.push_back(interval.end);
  }
  const std::span<float> sums = parts_.trainer->accumulator();
  const Rank to(1);
  comm::Communicator& c = **communicator;
  points_.Pass(FaultPoint::kHandOver, channel.generation, Rank(0));
  absl::Status status = c.Send(Words(&header), to, kTransferTimeout);
  if (status.ok()) status = c.Send({losses, 2, DType::kFloat64}, to, kTransferTimeout);
  if (!intervals.empty()) {
    if (status.ok()) {
      status = c.Send({bounds.data(), static_cast<int64_t>(bounds.size()), DType::kInt64}, to,
                      kTransferTimeout);
    }
    points_.Pass(FaultPoint::kHandingOver, channel.generation, Rank(0));
    if (status.ok()) status = c.Send(Floats(sums.data(), sums.size()), to, kTransferTimeout);
  }
  group_.Finish(channel.generation);
  points_.Pass(FaultPoint::kHandedOver, channel.generation, Rank(0));
  return status.ok() ? completion : Failed(status);
}

BesideCompletion Executor::Beside(const membership::ReceiveAccumulator& command) {
  const membership::View& channel = *command.channel;
  BesideCompletion completion;
  const auto communicator = ConnectView(channel, command.secret, Rank(1), &completion.suspects);
  if (!communicator.ok()) return Failed(communicator.status());
  comm::Communicator& c = **communicator;
  const Rank from(0);
  AccumulatorHeader header;
  double losses[2] = {};
  std::vector<int64_t> bounds;
  Held held;
  points_.Pass(FaultPoint::kHandOver, channel.generation, Rank(1));
  absl::Status status = c.Receive(Words(&header), from, kTransferTimeout);
  if (status.ok()) status = c.Receive({losses, 2, DType::kFloat64}, from, kTransferTimeout);
  if (status.ok() && (header.intervals < 0 || header.intervals > kMaxIntervals)) {
    status = absl::DataLossError(
        absl::StrCat("an accumulator of ", header.intervals, " intervals was sent"));
  }
  if (status.ok() && header.intervals > 0) {
    bounds.resize(static_cast<size_t>(2 * header.intervals));
    held.sums.resize(parts_.trainer->accumulator().size());
    status =
        c.Receive({bounds.data(), 2 * header.intervals, DType::kInt64}, from, kTransferTimeout);
    points_.Pass(FaultPoint::kHandingOver, channel.generation, Rank(1));
    if (status.ok()) {
      status = c.Receive(Floats(held.sums.data(), held.sums.size()), from, kTransferTimeout);
    }
  }
  group_.Finish(channel.generation);
  if (!status.ok()) return Failed(status);
  points_.Pass(FaultPoint::kHandedOver, channel.generation, Rank(1));
  membership::MemberState::Held list;
  list.owner = channel.members[0].incarnation;
  list.position = {Timeline(header.timeline), Step(header.step),
                   Attempt(static_cast<uint32_t>(header.attempt))};
  for (size_t i = 0; i < bounds.size(); i += 2) {
    if (bounds[i] < 0 || bounds[i] >= bounds[i + 1] ||
        bounds[i + 1] > options_.membership.micro_batches) {
      return Failed(absl::DataLossError("the list of an accumulator that was sent is malformed"));
    }
    list.micro_batches.Add(plan::Interval{bounds[i], bounds[i + 1]});
  }
  held.position = list.position;
  held.losses = {losses[0], losses[1], header.tokens};
  absl::MutexLock lock(&held_mutex_);
  held_[list.owner] = std::move(held);
  completion.held = std::move(list);
  return completion;
}

}  // namespace starling::worker
