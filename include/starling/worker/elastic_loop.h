// The life of one worker: WorkerCore decides, the Executor does, and this loop carries inputs and
// outputs between them, the coordinator and the operating system. Control flow and data flow meet
// here and nowhere else.
//
// Threads: Run is the loop and belongs to the caller; a second thread, the training thread,
// executes commands one at a time, and a third one those that go on beside them. Post and the
// counters may be used from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "starling/base/bounded_queue.h"
#include "starling/membership/worker_core.h"
#include "starling/worker/executor.h"

namespace starling::worker {

struct ElasticLoopOptions {
  membership::Options membership;
  membership::WorkerIdentity identity;
  // Without a coordinator and in need of a new view: wait so long, then exit 69.
  absl::Duration coordinator_patience = absl::Minutes(10);
  // After a leave notice without an end of its own: exit 75 at the latest when this has passed.
  absl::Duration leave_within = absl::Seconds(15);
};

struct ElasticEnd {
  int exit_code = 0;
  std::string reason;
};

class ElasticLoop {
 public:
  // `send` hands a message to the coordinator's stream; it does not block and may drop it while the
  // stream is down, since the worker says everything again when it reconnects.
  ElasticLoop(ElasticLoopOptions options, Executor* executor,
              std::function<void(membership::WorkerMessage)> send);

  // Runs until the worker's life is over: released, drained, fenced, failed. Blocks.
  ElasticEnd Run();

  // Something happened: a message, a stream opened or lost, a leave notice, a part written.
  void Post(membership::WorkerInput input);

  // What the heartbeat says, from any thread.
  membership::Heartbeat CurrentHeartbeat() const;

 private:
  void Take(const membership::WorkerInput& input);
  void Do(const membership::Run& output);
  void Do(const membership::RunBeside& output);
  void Do(const membership::Close& output);
  void Do(const membership::SendToCoordinator& output);
  void Do(const membership::ExitProcess& output);
  void Do(const membership::Note& output);
  void TrainingThread();
  void BesideThread();
  absl::Time NextDeadline() const;
  void CheckDeadlines();
  void UpdateContext();

  const ElasticLoopOptions options_;
  Executor* const executor_;
  const std::function<void(membership::WorkerMessage)> send_;
  membership::WorkerCore core_;
  BoundedQueue<membership::WorkerInput> inputs_;
  BoundedQueue<membership::Command> commands_;
  BoundedQueue<membership::BesideCommand> beside_;
  std::optional<ElasticEnd> end_;
  absl::Time leave_at_ = absl::InfiniteFuture();
  absl::Time alone_since_ = absl::InfiniteFuture();  // no stream since
  Generation logged_generation_;
  std::atomic<int64_t> progress_{0};
  std::atomic<bool> waiting_{true};
};

}  // namespace starling::worker
