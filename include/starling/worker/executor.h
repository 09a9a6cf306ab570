// Does what WorkerCore commands: computing through the Trainer, moving through the communicator,
// reading through the Loader, writing through the AsyncWriter. It decides nothing.
//
// Threads: Execute is called by the training thread only, one command at a time; ExecuteBeside by
// one other thread. Close may be called from any thread, also while these block; counters are
// readable from any thread. What the two threads share: the state (p, m, v) behind its mutex, held
// accumulators behind another, and the accumulator, which the core lets only one of them touch.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "starling/base/fs.h"
#include "starling/checkpoint/async_writer.h"
#include "starling/comm/fault.h"
#include "starling/comm/group.h"
#include "starling/comm/transport.h"
#include "starling/data/loader.h"
#include "starling/membership/worker_core.h"
#include "starling/plan/lr_schedule.h"
#include "starling/train/trainer.h"

namespace starling::worker {

struct ExecutorOptions {
  membership::Options membership;
  std::string run_directory;
  Incarnation incarnation;
  uint64_t seed = 0;
  double learning_rate = 0;  // peak
  plan::LrSchedule schedule;
  double clip = 0;                 // global norm; 0 = none
  int64_t evaluation_batches = 0;  // at most so many; 0 = all
  std::vector<comm::Fault> faults;
};

// What the executor works with; all but the callback owned by it.
struct ExecutorParts {
  std::unique_ptr<train::Trainer> trainer;
  std::unique_ptr<comm::Transport> transport;
  std::shared_ptr<const data::MicroBatchSource> training;
  std::shared_ptr<const data::EvaluationSource> evaluation;  // may be null
};

class Executor {
 public:
  // `part_done` is called from the writer's thread once for each Snapshot.
  Executor(ExecutorOptions options, ExecutorParts parts,
           std::function<void(membership::PartWritten)> part_done);

  // Blocks until the command is done, failed or aborted.
  membership::Completion Execute(const membership::Command& command);

  // Likewise for what goes on in the background (executor_beside.cc).
  membership::BesideCompletion ExecuteBeside(const membership::BesideCommand& command);

  // Closes `generation` and older ones for good; wakes a blocked Execute. Never blocks.
  void Close(Generation generation, const std::string& reason);

  // Waits until parts being written are durable, or `timeout`.
  void Drain(absl::Duration timeout);

  const std::string& data_address() const { return parts_.transport->address(); }
  // Grows with every piece of work inside long commands.
  int64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  // Micro-batches per second while computing; 0 = not measured yet.
  double speed() const { return speed_.load(std::memory_order_relaxed); }

 private:
  membership::Completion Do(const membership::InitializeFromSeed& command);
  membership::Completion Do(const membership::LoadCheckpoint& command);
  membership::Completion Do(const membership::Connect& command);
  membership::Completion Do(const membership::CopyState& command);
  membership::Completion Do(const membership::Compute& command);
  membership::Completion Do(const membership::Reduce& command);
  membership::Completion Do(const membership::Vote& command);
  membership::Completion Do(const membership::Apply& command);
  membership::Completion Do(const membership::ClearAccumulator& command);
  membership::Completion Do(const membership::MergeHeld& command);
  membership::Completion Do(const membership::Evaluate& command);
  membership::Completion Do(const membership::Snapshot& command);

  membership::BesideCompletion Beside(const membership::PrepareView& command);
  membership::BesideCompletion Beside(const membership::SendAccumulator& command);
  membership::BesideCompletion Beside(const membership::ReceiveAccumulator& command);

  // The communicator of `view`, connected now unless it was before. `unreachable`, which may be
  // null, receives those that could not be reached.
  absl::StatusOr<std::shared_ptr<comm::Communicator>> ConnectView(
      const membership::View& view, const std::string& secret, Rank rank,
      std::vector<Incarnation>* unreachable);
  // Sends or receives complete states, in the order of chunks and then of receivers, so that nobody
  // waits in a circle. A receiver's result: the version of all chunks, or nothing when they are of
  // several. Blocks the state's mutex for one chunk at a time.
  absl::StatusOr<std::optional<Version>> CopyStates(
      comm::Communicator& communicator, const std::vector<membership::Transfer>& transfers);
  absl::Status GiveChunk(comm::Communicator& communicator, std::span<const float> chunk, Rank to,
                         std::vector<float>* staging);
  // Afterwards state_ says the chunk's version.
  absl::Status TakeChunk(comm::Communicator& communicator, std::span<float> chunk, Rank from);
  void LogCopy(const membership::PrepareView& command, const std::optional<Version>& version,
               absl::Duration took);
  // Waits while a copy must not be overtaken by a vote of `generation`.
  void WaitForCopy(Generation generation);

  // Completion for a status of a collective: aborted, or the broken peers.
  membership::Completion FromStatus(const absl::Status& status, Generation generation);
  train::UpdateScalars Scalars(double learning_rate, double clip_factor, int64_t update) const;
  void MeasureSpeed(absl::Duration spent);
  // The training thread passes a point in its view.
  void Pass(comm::FaultPoint point) { points_.Pass(point, view_->generation, rank_); }
  // At the first piece of a step's work in a new view: logs how long there was none.
  void LogStall();

  // Sums over the micro-batches in the accumulator; cleared with it.
  struct Losses {
    double mlm = 0;
    double sop = 0;
    int64_t tokens = 0;
    bool computed_here = false;  // this step: the speed is fresh
  };
  // What Reduce found, for the Vote that follows. Valid for `position`.
  struct Measured {
    membership::Position position;
    double learning_rate = 0;
    double grad_norm = 0;
    double clip_factor = 1;
    train::PartialNorms partial;
  };

  // What p, m and v hold. Guarded by the mutex: whoever writes them holds it, and the training
  // thread alone reads them without.
  struct State {
    Version version;
    int64_t updates = 0;  // the optimizer's own count
  };
  // An accumulator that a leaver handed over.
  struct Held {
    membership::Position position;
    std::vector<float> sums;  // empty: no micro-batch
    Losses losses;
  };

  const ExecutorOptions options_;
  ExecutorParts parts_;
  const std::function<void(membership::PartWritten)> part_done_;
  const std::vector<comm::Range> all_;  // the whole flat space
  std::unique_ptr<data::Loader> loader_;
  comm::Group group_;
  std::shared_ptr<const membership::View> view_;  // of the communicator, to name suspects
  absl::Mutex state_mutex_;
  State state_ ABSL_GUARDED_BY(state_mutex_);
  absl::Mutex held_mutex_;
  std::map<Incarnation, Held> held_ ABSL_GUARDED_BY(held_mutex_);
  absl::Mutex hold_mutex_;
  absl::Time hold_votes_until_ ABSL_GUARDED_BY(hold_mutex_) = absl::InfinitePast();
  Generation hold_below_ ABSL_GUARDED_BY(hold_mutex_);  // of generations older than this one
  Generation closed_ ABSL_GUARDED_BY(hold_mutex_);
  Losses losses_;
  Measured measured_;
  absl::Time worked_at_ = absl::InfinitePast();  // end of the last piece of a step's work …
  Generation worked_in_;                         // … and its view
  Rank rank_;                                    // in it
  absl::Duration pace_;                          // fault injection: least time of a micro-batch
  comm::FaultPoints points_;                     // … and where to die or to wait
  std::atomic<int64_t> progress_{0};
  std::atomic<double> speed_{0};
  std::unique_ptr<checkpoint::AsyncWriter> writer_;
};

}  // namespace starling::worker
