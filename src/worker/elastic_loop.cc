// A reader starts here. The life of one worker:
//
//   connect     the control stream opens; the core introduces itself (Register)
//   form        the coordinator sends a view; the training thread rolls forward what this worker
//               missed, connects the view's communicator, copies the state where it is lacking
//   prepare     a newcomer connects and copies the state while the members train on; a leaver hands
//               over what it has accumulated
//   train       micro-batches one by one, then reduce, vote, apply: one decided step; and again
//   revoke      somebody joined, left or died: the communicator is aborted at once, a micro-batch
//               under way is finished, and the survey answer says what this worker holds
//   form        … the next view, with only the lost micro-batches to be computed again
//   release     the coordinator lets go: done, drained, fenced
//
// The core (membership/worker_core.h) decides all of it. Commands go to the training thread through
// a queue and come back as completions; everything else is a message in or out.
#include "starling/worker/elastic_loop.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "starling/base/exit_codes.h"
#include "starling/base/log.h"

namespace starling::worker {
namespace {

// Messages are few and small; the limit only keeps a fault from eating memory (I12).
constexpr size_t kInputs = 4096;
constexpr absl::Duration kDrainParts = absl::Seconds(10);

}  // namespace

ElasticLoop::ElasticLoop(ElasticLoopOptions options, Executor* executor,
                         std::function<void(membership::WorkerMessage)> send)
    : options_(std::move(options)),
      executor_(executor),
      send_(std::move(send)),
      core_(options_.membership, options_.identity),
      inputs_(kInputs),
      commands_(1),
      beside_(kInputs) {}

void ElasticLoop::Post(membership::WorkerInput input) { inputs_.Push(std::move(input)); }

membership::Heartbeat ElasticLoop::CurrentHeartbeat() const {
  return {progress_.load() + executor_->progress(), waiting_.load(), executor_->speed()};
}

ElasticEnd ElasticLoop::Run() {
  alone_since_ = absl::Now();
  std::thread training([this] { TrainingThread(); });
  std::thread beside([this] { BesideThread(); });
  while (!end_) {
    if (std::optional<membership::WorkerInput> input = inputs_.PopUntil(NextDeadline()))
      Take(*input);
    CheckDeadlines();
  }
  commands_.Close();
  beside_.Close();
  executor_->Close(Generation(std::numeric_limits<uint64_t>::max()), end_->reason);
  training.join();
  beside.join();
  executor_->Drain(kDrainParts);
  inputs_.Close();
  return *end_;
}

void ElasticLoop::TrainingThread() {
  while (std::optional<membership::Command> command = commands_.Pop()) {
    inputs_.Push(executor_->Execute(*command));
  }
}

void ElasticLoop::BesideThread() {
  while (std::optional<membership::BesideCommand> command = beside_.Pop()) {
    inputs_.Push(executor_->ExecuteBeside(*command));
  }
}

void ElasticLoop::Take(const membership::WorkerInput& input) {
  if (std::holds_alternative<membership::StreamOpened>(input))
    alone_since_ = absl::InfiniteFuture();
  if (std::holds_alternative<membership::StreamLost>(input)) {
    alone_since_ = std::min(alone_since_, absl::Now());
  }
  if (const auto* notice = std::get_if<membership::LeaveNotice>(&input)) {
    leave_at_ = std::min(leave_at_, absl::Now() + absl::Milliseconds(notice->deadline_ms));
  }
  membership::WorkerOutputs outputs;
  core_.Receive(input, &outputs);
  for (const membership::WorkerOutput& output : outputs) {
    std::visit([this](const auto& o) { Do(o); }, output);
  }
  progress_.store(core_.progress());
  waiting_.store(core_.waiting());
  UpdateContext();
}

void ElasticLoop::Do(const membership::Run& output) { commands_.Push(output.command); }

void ElasticLoop::Do(const membership::RunBeside& output) { beside_.Push(output.command); }

void ElasticLoop::Do(const membership::Close& output) {
  executor_->Close(output.generation, output.reason);
}

void ElasticLoop::Do(const membership::SendToCoordinator& output) { send_(output.message); }

void ElasticLoop::Do(const membership::ExitProcess& output) {
  STARLING_LOG(Info) << "event=exit code=" << output.exit_code << " reason=\"" << output.reason
                     << "\"";
  end_ = ElasticEnd{output.exit_code, output.reason};
}

void ElasticLoop::Do(const membership::Note& output) { STARLING_LOG(Info) << output.text; }

absl::Time ElasticLoop::NextDeadline() const {
  return std::min(leave_at_, alone_since_ + options_.coordinator_patience);
}

void ElasticLoop::CheckDeadlines() {
  if (end_ || absl::Now() < NextDeadline()) return;
  if (leave_at_ <= absl::Now()) {
    end_ = ElasticEnd{static_cast<int>(ExitCode::kDrained), "the notice ran out"};
  } else if (core_.phase() != membership::WorkerCore::Phase::kActive) {
    end_ = ElasticEnd{
        static_cast<int>(ExitCode::kUnreachable),
        absl::StrCat("no coordinator for ", absl::FormatDuration(options_.coordinator_patience))};
  } else {
    alone_since_ = absl::Now();  // training goes on without it; look again later
  }
  if (end_) executor_->Close(core_.generation(), end_->reason);
}

// Every later log line says where it was written from.
void ElasticLoop::UpdateContext() {
  const Generation generation = core_.generation();
  if (generation == logged_generation_) return;
  logged_generation_ = generation;
  SetLogContext(absl::StrCat("worker=", options_.identity.member.name, " gen=", generation.value(),
                             " rank=", core_.rank() ? core_.rank()->value() : -1));
  STARLING_LOG(Info) << "event=view members=" << core_.view()->members.size()
                     << " version=" << membership::ToString(core_.position());
}

}  // namespace starling::worker
