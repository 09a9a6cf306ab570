// A run on this machine while it lasts: the coordinator in this process, workers as its children,
// progress on the terminal, signals. Owned by `starling run`; its only thread is the caller's,
// which must be the one that lives as long as the process (see local_workers.h).
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cli/local_workers.h"
#include "cli/progress.h"
#include "starling/coordinator/driver.h"

namespace starling::cli {

struct RunSessionOptions {
  coordinator::DriverOptions driver;  // its callbacks are the session's
  LocalWorkersOptions workers;
  int target_workers = 1;
  int64_t total_steps = 0;
  std::string resolved_config;  // written to the run folder once its lock is held
};

class RunSession {
 public:
  // Blocks SIGINT, SIGTERM and SIGCHLD. Call before any other thread starts.
  explicit RunSession(RunSessionOptions options);
  ~RunSession();
  RunSession(const RunSession&) = delete;
  RunSession& operator=(const RunSession&) = delete;

  // Trains until the run is complete, stopped or beyond hope; returns the exit code. Blocks.
  int Run();

 private:
  using Said = std::variant<int /* target */, coordinator::StepSummary, membership::WriteEvaluation,
                            membership::Event, membership::Ended>;

  absl::Status Start();
  void Say(Said said) ABSL_LOCKS_EXCLUDED(mutex_);  // on the driver's thread
  void Wait(absl::Time until);
  void TakeSignals();
  void TakeSaid();
  void Hear(int target);
  void Hear(const coordinator::StepSummary& step);
  void Hear(const membership::WriteEvaluation& evaluation);
  void Hear(const membership::Event& event);
  void Hear(const membership::Ended& ended);
  void LookAfterWorkers();
  void Show(const WorkerEnd& end);
  void GiveUpIfHopeless();
  void Stop(int exit_code, const std::string& reason);
  int KillAll();
  int Finish();
  std::string ProgressLine(const coordinator::StepSummary& step);
  std::string Summary(int exit_code) const;

  RunSessionOptions options_;
  const absl::Time started_;
  Progress progress_;
  LocalWorkers workers_;
  int signals_ = -1;  // signalfd
  int wakeup_ = -1;   // eventfd: something was said
  absl::Mutex mutex_;
  std::deque<Said> said_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<coordinator::Driver> driver_;  // after what its callbacks use

  std::optional<membership::Ended> ended_;
  std::optional<int> exit_code_;  // decided here; wins over the coordinator's unless that is 0
  std::optional<coordinator::StepSummary> last_step_;
  std::string checkpoint_;                           // newest one's folder
  std::optional<WorkerEnd> last_end_;                // of a worker that failed
  std::deque<std::pair<absl::Time, int64_t>> pace_;  // (time, step) of the last steps, for the ETA
  bool stop_asked_ = false;                          // by us
  bool interrupted_ = false;                         // Ctrl-C once
  bool over_ = false;                                // nobody is started any more
  bool killed_ = false;
  bool trained_ = false;  // a step was decided since the start
};

}  // namespace starling::cli
