// The coordinator at work: one thread owns membership::CoordinatorCore, feeds it what comes in over
// gRPC, and carries out what it says in order: journal, messages, ledger, metrics, events,
// manifests. There are no decisions in here. Used by `starling coordinator` and, embedded, by
// `starling run`. Thread-safe.
//
// Durability: journal records are synced before anything after them leaves, several by one sync
// when they come together; ledger lines are synced before a worker is told to forget them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "starling/base/clock.h"
#include "starling/base/fs.h"
#include "starling/comm/fault.h"
#include "starling/membership/coordinator_core.h"
#include "starling/rpc/requests.h"

namespace starling::coordinator {

// One decided step, for progress lines.
struct StepSummary {
  int64_t step = 0;
  double loss = 0;  // mean over the step's micro-batches, both objectives
  double tokens_per_second = 0;
  int workers = 0;
  uint64_t generation = 0;
  double goodput = 0;
};

struct DriverOptions {
  membership::Options membership;
  std::string run_folder;            // created when absent
  std::string bind = "127.0.0.1:0";  // control plane; port 0 = any free one
  std::string advertise_host;  // written to `endpoint`; empty = that of `bind`, or this host's name
                               // when `bind` is a wildcard
  std::string http;            // status page and metrics, HOST:PORT; empty = none
  int64_t global_batch = 1;    // samples a step
  uint64_t seed = 0;           // for manifests
  int keep_checkpoints = 3;
  bool adopt = false;  // a person says: continue from whatever members of a lost journal report
  std::vector<comm::Fault> faults;  // those at points of manifests act
  Fs* fs = &RealFs();
  const Clock* clock = &SystemClock::Get();

  // All optional; called on the driver's thread, so they return at once and call nothing that waits
  // for the driver.
  std::function<void(int target_workers)> on_target_changed;
  std::function<void(const StepSummary&)> on_step;
  std::function<void(const membership::WriteEvaluation&)> on_evaluation;
  std::function<void(const membership::Event&)> on_event;
  std::function<void(const membership::Ended&)> on_ended;  // last of all
};

class Driver {
 public:
  // Takes the run folder's lock, reads journal and ledger (torn tails are cut off), listens, writes
  // `endpoint`, and starts the thread. The caller writes config.resolved.yaml. Errors, with exit
  // codes by ExitCodeFor:
  //   AlreadyExists (73)    another coordinator holds the folder: who, is in the message
  //   InvalidArgument (78)  options contradict each other, or the journal's run has another meaning
  //                         and accept_config_change is not set
  //   DataLoss (65)         the journal or the ledger is damaged in the middle
  //   Unavailable (71)      an address cannot be listened on
  //   the file system's     the folder cannot be created or written to
  static absl::StatusOr<std::unique_ptr<Driver>> Start(DriverOptions options);

  // As Abandon and Wait.
  virtual ~Driver() = default;

  // HOST:PORT of the control plane as clients use it, and of the status page ("" = none).
  virtual const std::string& endpoint() const = 0;
  virtual const std::string& http_address() const = 0;

  // Asks as a person does; `reply` comes once, on the driver's thread, or at once when it has
  // ended.
  virtual void Request(membership::UserRequest request,
                       std::function<void(rpc::RequestReply)> reply) = 0;

  // A launcher knows that a process of its own died: no reason to wait for its stream to end.
  virtual void ReportDead(const std::string& host, int64_t pid, const std::string& reason) = 0;

  // Blocks until the driver's thread answers. DeadlineExceeded when it does not within `timeout`,
  // Unavailable when it has ended.
  virtual absl::StatusOr<rpc::StatusReport> GetStatus(absl::Duration timeout) = 0;

  // Ends the coordinator alone, soon: workers are told nothing and go on; another coordinator may
  // take up the folder. Returns at once; Wait then returns `exit_code`.
  virtual void Abandon(int exit_code, const std::string& reason) = 0;

  // Blocks until the run is over, the driver was abandoned, or its files failed (74), and its
  // thread has tidied up. Callable many times.
  virtual membership::Ended Wait() = 0;
  // As Wait, until `timeout`: whether it has ended.
  virtual bool WaitFor(absl::Duration timeout) = 0;
};

}  // namespace starling::coordinator
