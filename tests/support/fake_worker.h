// Workers without a model, for tests of the control plane: the production WorkerCore and the real
// rpc client, driving an executor that completes commands at once. Thread-safe where it says.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>

#include "absl/synchronization/mutex.h"
#include "starling/base/bounded_queue.h"
#include "starling/membership/worker_core.h"
#include "starling/rpc/client.h"
#include "support/fake_executor.h"
#include "support/fake_network.h"

namespace starling::testing {

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
