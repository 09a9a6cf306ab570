// The worker processes of `starling run` on this machine: starts them, notices their ends, starts
// dead ones again. Slots have stable names, w0, w1, …; a free slot is reused, the lowest first.
//
// One thread only, the one that lives as long as the process: the kernel ties a child's
// parent-death signal to the thread that started it.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace starling::cli {

struct LocalWorkersOptions {
  std::string program;                   // path of starling-worker
  std::vector<std::string> arguments;    // all but --name
  std::vector<std::string> environment;  // "NAME=value"
  std::string log_folder;                // NAME.out: what the process wrote; NAME.*.log: its log
  std::optional<absl::Duration> restart_delay = absl::Seconds(1);  // none = never start again
  absl::Duration restart_delay_limit = absl::Minutes(1);
};

// A process ended.
struct WorkerEnd {
  std::string name;
  int64_t pid = 0;
  int exit_code = 0;                         // 128 + N when signal N ended it
  bool wanted = false;                       // done, or drained on somebody's order
  std::string reason;                        // one sentence
  std::string log;                           // path of its newest log
  std::optional<absl::Duration> restart_in;  // it will be started again
};

class LocalWorkers {
 public:
  explicit LocalWorkers(LocalWorkersOptions options) : options_(std::move(options)) {}

  // Starts workers in free slots until `target` live or are about to be started again; cancels
  // restarts beyond it. Nobody alive is ended: the coordinator drains. Names of those started are
  // appended to `started`. Errors: the system starts no more processes.
  absl::Status FillTo(int target, absl::Time now, std::vector<std::string>* started);
  // Starts those whose restart is due. One that cannot be started counts as failed once more and is
  // due again later; the others are started all the same. Errors: the first of them.
  absl::Status StartDue(absl::Time now, std::vector<std::string>* started);
  // Earliest restart; InfiniteFuture when there is none.
  absl::Time NextStart() const;

  // What the coordinator says of a worker: it became a member; a person wants it to leave.
  void NoteMember(const std::string& name);
  void NoteDrained(const std::string& name);

  // Ends since the last call; never blocks. Schedules restarts unless `over`.
  std::vector<WorkerEnd> Reap(absl::Time now, bool over);

  // No process lives and none will be started again.
  bool AllGone() const;
  // Every slot's process ended by itself three times without having been a member, or for a reason
  // that trying again does not mend.
  bool AllHopeless() const;
  int alive() const;

  void Signal(int signal);

 private:
  struct Slot {
    pid_t pid = 0;  // 0 = none
    absl::Time started;
    absl::Time restart_at = absl::InfiniteFuture();
    int64_t output_begin = 0;  // of this life in NAME.out
    bool member = false;       // this life was one
    bool drained = false;      // this life is to end
    bool hopeless = false;     // ended for good
    int failures = 0;          // ends in a row
  };

  absl::Status Start(const std::string& name, Slot* slot, absl::Time now);
  WorkerEnd Ended(const std::string& name, Slot* slot, int status, absl::Time now, bool over);
  // Grows with the slot's failures. REQUIRES: options_.restart_delay.
  absl::Duration RestartDelay(const Slot& slot) const;
  std::string OutputPath(const std::string& name) const;
  std::string NewestLog(const std::string& name) const;
  std::string LastWords(const std::string& name, const Slot& slot) const;

  const LocalWorkersOptions options_;
  std::map<int, Slot> slots_;
};

// "w0", "w1", …
std::string SlotName(int slot);

}  // namespace starling::cli
