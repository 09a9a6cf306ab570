// Its life, connections and errors. A step's commands are in executor_step.cc, those that fill,
// copy and save the state in executor_state.cc, what goes on beside the training in
// executor_beside.cc.
#include "starling/worker/executor.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "starling/base/clock.h"
#include "starling/base/log.h"
#include "worker/executor_common.h"

namespace starling::worker {
namespace {

using comm::FaultPoint;
using membership::Completion;

constexpr absl::Duration kConnectTimeout = absl::Seconds(20);

// What a member does for a step: computes, or takes part in the step's own collectives.
bool IsStepWork(const membership::Command& command) {
  return std::holds_alternative<membership::Compute>(command) ||
         std::holds_alternative<membership::Reduce>(command) ||
         std::holds_alternative<membership::Vote>(command);
}

}  // namespace

Executor::Executor(ExecutorOptions options, ExecutorParts parts,
                   std::function<void(membership::PartWritten)> part_done)
    : options_(std::move(options)),
      parts_(std::move(parts)),
      part_done_(std::move(part_done)),
      all_{{0, parts_.trainer->layout().size}},
      loader_(data::Loader::Create(parts_.training, kPrefetch)),
      points_(options_.faults),
      writer_(std::make_unique<checkpoint::AsyncWriter>(RealFs())) {
  for (const comm::Fault& fault : options_.faults) {
    if (fault.kind == comm::Fault::Kind::kPace) pace_ = fault.duration;
  }
}

Completion Executor::Execute(const membership::Command& command) {
  const bool works = IsStepWork(command);
  if (works) LogStall();
  Completion completion = std::visit([this](const auto& c) { return Do(c); }, command);
  if (works) worked_at_ = SystemClock::Get().Now();
  return completion;
}

void Executor::LogStall() {
  const Generation generation = view_->generation;
  if (generation != worked_in_ && worked_in_ != Generation()) {
    const absl::Duration stall = SystemClock::Get().Now() - worked_at_;
    STARLING_LOG(Info) << "event=switched from_gen=" << worked_in_.value() << " stall_ms="
                       << absl::StrFormat("%.3f", absl::ToDoubleMilliseconds(stall));
  }
  worked_in_ = generation;
}

void Executor::Close(Generation generation, const std::string& reason) {
  parts_.transport->CancelConnect(generation);
  group_.Close(generation, reason);
  absl::MutexLock lock(&hold_mutex_);
  closed_ = std::max(closed_, generation);
}

void Executor::Drain(absl::Duration timeout) {
  if (absl::Status status = writer_->Drain(timeout); !status.ok()) {
    STARLING_LOG(Warning) << "checkpoint parts are still being written: " << status.message();
  }
}

Completion Executor::FromStatus(const absl::Status& status, Generation generation) {
  if (status.ok()) return {};
  Completion completion = Failure(status);
  completion.aborted = EndedHere(status);
  if (absl::StatusOr<std::shared_ptr<comm::Communicator>> current = group_.Get(generation);
      current.ok()) {
    for (Rank suspect : (*current)->suspects()) {
      completion.suspects.push_back(
          view_->members[static_cast<size_t>(suspect.value())].incarnation);
    }
  }
  return completion;
}

absl::StatusOr<std::shared_ptr<comm::Communicator>> Executor::ConnectView(
    const membership::View& view, const std::string& secret, Rank rank,
    std::vector<Incarnation>* unreachable) {
  if (auto prepared = group_.Get(view.generation); prepared.ok()) return prepared;
  points_.Pass(FaultPoint::kConnect, view.generation, rank);
  comm::GroupSpec spec{.run_id = options_.membership.run_id,
                       .generation = view.generation,
                       .rank = rank,
                       .peers = {},
                       .secret = secret};
  for (const membership::Member& member : view.members) {
    spec.peers.push_back({member.incarnation, member.data_address, member.host});
  }
  std::vector<Rank> ranks;
  auto communicator = parts_.transport->Connect(spec, kConnectTimeout, &ranks);
  for (Rank missing : ranks) {
    if (unreachable == nullptr) break;
    unreachable->push_back(view.members[static_cast<size_t>(missing.value())].incarnation);
  }
  if (!communicator.ok()) return communicator.status();
  group_.Install(comm::WithFaults(*std::move(communicator), options_.faults));
  points_.Pass(FaultPoint::kConnected, view.generation, rank);
  return group_.Get(view.generation);
}

Completion Executor::Do(const membership::Connect& command) {
  view_ = command.view;
  rank_ = command.rank;
  std::vector<Incarnation> unreachable;
  const auto communicator = ConnectView(*command.view, command.secret, command.rank, &unreachable);
  if (communicator.ok()) return {};
  Completion completion = Failure(communicator.status());
  completion.aborted = EndedHere(communicator.status());
  completion.suspects = std::move(unreachable);
  return completion;
}

}  // namespace starling::worker
