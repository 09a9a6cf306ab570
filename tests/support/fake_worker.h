// Workers without a model, for tests of the control plane: the production WorkerCore and the real
// rpc client, driving an executor that completes commands at once. A gradient is the set of
// micro-batches it holds; the weights are 64 numbers that count what was applied, so copies can be
// compared bit by bit. Collectives go through a FakeNetwork in memory. Thread-safe where it says.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "starling/base/bounded_queue.h"
#include "starling/base/fs.h"
#include "starling/base/host.h"
#include "starling/checkpoint/reader.h"
#include "starling/checkpoint/writer.h"
#include "starling/membership/worker_core.h"
#include "starling/rpc/client.h"

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

// The executor of one worker: does a command and says how it ended. One thread, a second one for
// DoBeside, and any for Close.
class FakeExecutor {
 public:
  FakeExecutor(FakeNetwork* network, membership::Options options, Incarnation self,
               std::string checkpoints)
      : network_(network),
        options_(std::move(options)),
        self_(self),
        checkpoints_(std::move(checkpoints)) {}

  // From any thread.
  void Close(Generation generation) { network_->Leave(generation, self_); }

  membership::Completion Do(const membership::Command& command) {
    return std::visit([this](const auto& c) { return On(c); }, command);
  }
  membership::BesideCompletion DoBeside(const membership::BesideCommand& command) {
    membership::BesideCompletion completion =
        std::visit([this](const auto& c) { return Beside(c); }, command);
    completion.command = command;
    return completion;
  }
  // Set by Snapshot: a part that is durable now.
  std::optional<membership::PartWritten> TakePart() { return std::exchange(part_, std::nullopt); }

  Weights weights() const {
    absl::MutexLock lock(&mutex_);
    return weights_;
  }

 private:
  using Completion = membership::Completion;

  membership::BesideCompletion Beside(const membership::PrepareView& c) {
    membership::BesideCompletion completion;
    const std::string tag = absl::StrCat("prepare", c.round);
    {
      absl::MutexLock lock(&mutex_);
      network_->Post(c.view->generation, tag, c.rank,
                     {.weights = weights_, .updates = updates_, .version = version_});
    }
    const bool all = c.round == 0;  // later rounds are the copiers' own
    for (size_t r = 0; r < c.view->members.size(); ++r) {
      const Rank from(static_cast<int32_t>(r));
      const bool donor = std::any_of(
          c.transfers.begin(), c.transfers.end(),
          [&](const membership::Transfer& t) { return t.to == c.rank && t.from == from; });
      if (!all && !donor) continue;
      FakePayload got;
      const auto end = network_->Await(self_, *c.view, tag, from, &got, &completion.suspects);
      if (end != FakeNetwork::End::kOk) {
        completion.ok = false;
        completion.aborted = end == FakeNetwork::End::kAborted;
        return completion;
      }
      if (!donor) continue;
      completion.copied = completion.copied && *completion.copied != got.version
                              ? Version{Timeline(~uint64_t{0}), Step(0)}
                              : got.version;
      completion.updates = got.updates;
      SetWeights(got.weights, got.version, got.updates);
    }
    return completion;
  }
  membership::BesideCompletion Beside(const membership::SendAccumulator& c) {
    network_->Post(c.channel->generation, "hand", Rank(0),
                   {.micro_batches = accumulator_, .position = c.held.position});
    return {};
  }
  membership::BesideCompletion Beside(const membership::ReceiveAccumulator& c) {
    membership::BesideCompletion completion;
    FakePayload got;
    const auto end =
        network_->Await(self_, *c.channel, "hand", Rank(0), &got, &completion.suspects);
    completion.ok = end == FakeNetwork::End::kOk;
    completion.aborted = end == FakeNetwork::End::kAborted;
    if (!completion.ok) return completion;
    const Incarnation owner = c.channel->members[0].incarnation;
    completion.held = {owner, got.position, got.micro_batches};
    absl::MutexLock lock(&mutex_);
    held_[owner] = got.micro_batches;
    return completion;
  }

  Completion On(const membership::InitializeFromSeed& c) {
    SetWeights(Weights(kFakeWeights, 0.0f), c.version, 0);
    return {};
  }
  Completion On(const membership::LoadCheckpoint& c) {
    const auto opened = checkpoint::OpenCheckpoint(JoinPath(checkpoints_, c.source.checkpoint));
    if (!opened.ok()) return Failure(std::string(opened.status().message()));
    Weights loaded(kFakeWeights);
    const absl::Status read =
        opened->ReadInto("w", checkpoint::TensorKind::kParameter, 0, kFakeWeights, loaded.data());
    if (!read.ok()) return Failure(std::string(read.message()));
    SetWeights(std::move(loaded), c.version, opened->manifest().optimizer_steps);
    return {.updates = opened->manifest().optimizer_steps};
  }
  Completion On(const membership::Connect& c) {
    view_ = c.view;
    rank_ = c.rank;
    return Exchange("connect", {}, nullptr);
  }
  Completion On(const membership::CopyState& c) {
    FakePayload mine{.weights = weights(), .updates = updates()};
    Completion completion;
    for (const membership::Transfer& transfer : c.transfers) {
      if (transfer.from == rank_) network_->Post(c.generation, "copy", rank_, mine);
      if (transfer.to != rank_) continue;
      FakePayload got;
      const auto end =
          network_->Await(self_, *view_, "copy", transfer.from, &got, &completion.suspects);
      if (end != FakeNetwork::End::kOk) return Broken("copy", end, std::move(completion));
      SetWeights(got.weights, c.version, got.updates);
      completion.updates = got.updates;
    }
    return completion;
  }
  Completion On(const membership::Compute& c) {
    if (!network_->TakeTurn(view_->generation, self_)) {
      return {.ok = false, .aborted = true, .reason = "closed"};
    }
    if (accumulator_.Contains(c.index)) {
      network_->Complain(absl::StrCat("micro-batch ", c.index, " computed twice by one worker"));
    }
    accumulator_.Add(c.index);
    return {};
  }
  Completion On(const membership::Reduce& c) {
    std::vector<FakePayload> all;
    Completion completion = Exchange("reduce" + membership::ToString(c.position),
                                     {.micro_batches = accumulator_}, &all);
    if (!completion.ok) return completion;
    plan::IntervalSet sum;
    for (const FakePayload& payload : all) {
      if (sum.Intersects(payload.micro_batches)) {
        network_->Complain("a micro-batch is in the sum twice: " +
                           payload.micro_batches.ToString());
      }
      sum.Add(payload.micro_batches);
    }
    if (sum.count() != options_.micro_batches) {
      network_->Complain("the sum is not whole: " + sum.ToString());
    }
    return completion;
  }
  Completion On(const membership::Vote& c) {
    std::vector<FakePayload> all;
    Completion completion = Exchange(
        "vote" + membership::ToString(c.position),
        {.count = c.count, .mix = c.mix, .request_checkpoint = c.request_checkpoint}, &all);
    if (!completion.ok) return completion;
    membership::VoteResult result{.generation = c.generation, .at = c.position};
    for (const FakePayload& payload : all) {
      result.count += payload.count;
      result.mix += payload.mix;
      result.checkpoint_requested = result.checkpoint_requested || payload.request_checkpoint;
      result.speeds.push_back(10'000);
    }
    result.update = c.update;
    result.learning_rate = 0.5;
    result.mlm_loss = 2.0 * static_cast<double>(result.count);
    result.sop_loss = 1.0 * static_cast<double>(result.count);
    result.tokens = 100 * result.count;
    result.grad_norm = 1.5;
    completion.vote = std::move(result);
    return completion;
  }
  Completion On(const membership::Apply& c) {
    Weights next = weights();
    if (c.result.outcome == membership::Outcome::kCommit) {
      next[static_cast<size_t>(c.result.After().step.value() % kFakeWeights)] += 1.0f;
    }
    SetWeights(std::move(next), c.result.After().version(), c.result.update);
    return {};
  }
  Completion On(const membership::ClearAccumulator&) {
    accumulator_ = {};
    return {};
  }
  Completion On(const membership::MergeHeld& c) {
    absl::MutexLock lock(&mutex_);
    for (Incarnation owner : c.owners) {
      if (accumulator_.Intersects(held_[owner])) {
        network_->Complain("a held accumulator has what is there already");
      }
      accumulator_.Add(held_[owner]);
    }
    return {};
  }
  Completion On(const membership::Evaluate&) {
    return {.evaluation = {.mlm_loss = 2.0, .masked = 4, .masked_correct = 1}};
  }
  Completion On(const membership::Snapshot& c) {
    const plan::Interval range =
        plan::FirstOwned(kFakeWeights, c.members, c.rank.value(), /*block=*/4);
    const Weights now = weights();
    const checkpoint::PartSpec spec{options_.run_id, c.version, c.generation, self_, c.rank, 0};
    std::vector<checkpoint::TensorSlice> slices;
    if (range.end > range.begin) {
      slices.push_back(
          {{"w",
            checkpoint::TensorKind::kParameter,
            DType::kFloat32,
            {kFakeWeights},
            range.begin,
            range.end},
           std::string_view(reinterpret_cast<const char*>(now.data() + range.begin),
                            sizeof(float) * static_cast<size_t>(range.end - range.begin))});
    }
    const auto part = checkpoint::WritePart(
        RealFs(), JoinPath(checkpoints_, checkpoint::FolderName(c.version)), spec, slices);
    part_ = membership::PartWritten{
        c.version,
        c.generation,
        c.rank,
        c.updates,
        part.ok(),
        part.ok() ? checkpoint::EncodePart(*part) : std::string(part.status().message())};
    return {};
  }

  // Everybody's payloads by rank.
  Completion Exchange(const std::string& tag, FakePayload mine, std::vector<FakePayload>* all) {
    network_->Post(view_->generation, tag, rank_, std::move(mine));
    Completion completion;
    for (size_t r = 0; r < view_->members.size(); ++r) {
      FakePayload got;
      const auto end = network_->Await(self_, *view_, tag, Rank(static_cast<int32_t>(r)), &got,
                                       &completion.suspects);
      if (end != FakeNetwork::End::kOk) return Broken(tag, end, std::move(completion));
      if (all != nullptr) all->push_back(std::move(got));
    }
    return completion;
  }
  static Completion Broken(const std::string& what, FakeNetwork::End end, Completion completion) {
    completion.ok = false;
    completion.aborted = end == FakeNetwork::End::kAborted;
    completion.reason = what + " broke";
    return completion;
  }
  static Completion Failure(std::string reason) {
    return {.ok = false, .reason = std::move(reason)};
  }
  void SetWeights(Weights weights, Version version, int64_t updates) {
    absl::MutexLock lock(&mutex_);
    weights_ = std::move(weights);
    version_ = version;
    updates_ = updates;
  }
  int64_t updates() const {
    absl::MutexLock lock(&mutex_);
    return updates_;
  }

  FakeNetwork* const network_;
  const membership::Options options_;
  const Incarnation self_;
  const std::string checkpoints_;
  std::shared_ptr<const membership::View> view_;
  Rank rank_;
  plan::IntervalSet accumulator_;
  std::optional<membership::PartWritten> part_;
  mutable absl::Mutex mutex_;
  int64_t updates_ ABSL_GUARDED_BY(mutex_) = 0;
  Version version_ ABSL_GUARDED_BY(mutex_);
  std::map<Incarnation, plan::IntervalSet> held_ ABSL_GUARDED_BY(mutex_);
  Weights weights_ ABSL_GUARDED_BY(mutex_);
};

struct FakeWorkerOptions {
  membership::Options membership;
  std::string name;
  uint64_t incarnation = 0;
  rpc::Target target;       // of the control plane
  std::string checkpoints;  // folder
  uint64_t data_hash = 7;
};

// A worker as threads: core, executor, what goes on beside it, rpc client. Thread-safe.
class FakeWorker {
 public:
  FakeWorker(FakeNetwork* network, FakeWorkerOptions options)
      : options_(std::move(options)),
        network_(network),
        self_(options_.incarnation),
        core_(options_.membership, Identity(options_)),
        executor_(network, options_.membership, self_, options_.checkpoints) {
    rpc::ControlOptions control;
    control.target = options_.target;
    control.heartbeat_interval = options_.membership.heartbeat_interval();
    control.heartbeat = [this] { return membership::Heartbeat{progress_, waiting_, 10.0}; };
    control.callbacks.on_opened = [this] { inputs_.Push(membership::StreamOpened{}); };
    control.callbacks.on_lost = [this](const absl::Status&) {
      inputs_.Push(membership::StreamLost{});
    };
    control.callbacks.on_message = [this](membership::CoordinatorMessage message) {
      inputs_.Push(membership::FromCoordinator{std::move(message)});
    };
    executor_thread_ = std::thread([this] { Execute(); });
    beside_thread_ = std::thread([this] {
      while (auto command = beside_.Pop()) inputs_.Push(executor_.DoBeside(*command));
    });
    client_ = rpc::ControlClient::Start(std::move(control));
    core_thread_ = std::thread([this] { Run(); });
  }
  ~FakeWorker() { Kill(); }

  // As SIGKILL: its streams and collectives break, nothing is said. Idempotent; blocks until its
  // threads have ended.
  void Kill() {
    inputs_.Close();
    network_->Die(self_);
    commands_.Close();
    beside_.Close();
    client_->Stop(absl::ZeroDuration());
    if (core_thread_.joinable()) core_thread_.join();
    if (executor_thread_.joinable()) executor_thread_.join();
    if (beside_thread_.joinable()) beside_thread_.join();
  }

  // Blocks until the coordinator has told it to leave; its exit code, or nothing at the deadline.
  std::optional<int> AwaitExit(absl::Duration timeout) {
    absl::MutexLock lock(&mutex_);
    const auto exited = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return exit_.has_value(); };
    mutex_.AwaitWithTimeout(absl::Condition(&exited), timeout);
    return exit_;
  }

  void Notice() { inputs_.Push(membership::LeaveNotice{10'000, "notice"}); }
  Weights weights() const { return executor_.weights(); }

 private:
  static membership::WorkerIdentity Identity(const FakeWorkerOptions& options) {
    membership::WorkerIdentity identity;
    // No process of ours may pass for it: pid 1 never dies.
    identity.member = {Incarnation(options.incarnation), options.name, "fake-host", 1, "fake"};
    identity.run_id = options.membership.run_id;
    identity.numerics_version = "fake";
    identity.config_hash = options.membership.config_hash;
    identity.model_hash = options.membership.model_hash;
    identity.data_hash = options.data_hash;
    return identity;
  }

  void Run() {
    while (std::optional<membership::WorkerInput> input = inputs_.Pop()) {
      membership::WorkerOutputs outputs;
      core_.Receive(*input, &outputs);
      progress_ = core_.progress();
      waiting_ = core_.waiting();
      for (membership::WorkerOutput& output : outputs) {
        if (!Perform(output)) return;
      }
    }
  }
  bool Perform(membership::WorkerOutput& output) {
    if (auto* run = std::get_if<membership::Run>(&output)) {
      commands_.Push(std::move(run->command));
    } else if (auto* beside = std::get_if<membership::RunBeside>(&output)) {
      beside_.Push(std::move(beside->command));
    } else if (const auto* close = std::get_if<membership::Close>(&output)) {
      executor_.Close(close->generation);
    } else if (auto* send = std::get_if<membership::SendToCoordinator>(&output)) {
      client_->Send(std::move(send->message));
    } else if (const auto* exit = std::get_if<membership::ExitProcess>(&output)) {
      client_->Stop(absl::Seconds(1));
      absl::MutexLock lock(&mutex_);
      exit_ = exit->exit_code;
      return false;
    }
    return true;
  }
  void Execute() {
    while (std::optional<membership::Command> command = commands_.Pop()) {
      inputs_.Push(executor_.Do(*command));
      if (auto part = executor_.TakePart()) inputs_.Push(membership::PartDone{*std::move(part)});
    }
  }

  const FakeWorkerOptions options_;
  FakeNetwork* const network_;
  const Incarnation self_;
  membership::WorkerCore core_;  // of the core's thread
  FakeExecutor executor_;
  BoundedQueue<membership::WorkerInput> inputs_{4096};
  BoundedQueue<membership::Command> commands_{16};
  BoundedQueue<membership::BesideCommand> beside_{64};
  std::atomic<int64_t> progress_ = 0;
  std::atomic<bool> waiting_ = true;
  std::unique_ptr<rpc::ControlClient> client_;
  absl::Mutex mutex_;
  std::optional<int> exit_ ABSL_GUARDED_BY(mutex_);
  std::thread core_thread_, executor_thread_, beside_thread_;
};

}  // namespace starling::testing
