// `starling run` with real workers on a small Russian text, as processes: started, watched through
// ledger and status, disturbed, and checked. One thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/run_program.h"
#include "cli/watch.h"
#include "support/temp_dir.h"

namespace starling::testing {

// Tokenizer and token files, made once by the program itself.
struct SmallData {
  std::string tokenizer, tokens, validation;
};
const SmallData& TheSmallData();

constexpr int kMicroBatches = 8;  // of a step

class RealRun {
 public:
  // `more`: YAML lines after the sections run, data, model, training and optimizer; training keys
  // go into `training`.
  explicit RealRun(int steps, const std::string& training = "", const std::string& more = "");
  ~RealRun();  // kills what still runs

  const std::string& folder() const { return run_; }
  std::string config() const { return dir_ / "c.yaml"; }

  // Starts `starling run`. Micro-batches take at least `pace_ms`, so that there is time to disturb.
  // `faults`: more of STARLING_FAULT.
  void Start(int workers, std::vector<std::string> more = {}, int pace_ms = 30,
             const std::string& faults = "");
  // The same as processes of their own: `starling coordinator`, which waits for so many workers,
  // and `starling-worker`s, by name.
  void StartCoordinator(int workers, const std::string& faults = "");
  void StartWorker(const std::string& name, int pace_ms = 30, const std::string& faults = "");
  void SignalWorker(const std::string& name, int signal);
  int WaitForWorker(const std::string& name);  // its exit code
  // SIGKILL to the coordinator alone, or waiting for its death of itself.
  void KillCoordinator();
  pid_t pid() const { return pid_; }

  // Exit code of the program; fails the test when it does not end in time.
  int WaitForExit();
  void Signal(int signal);  // to the program
  // SIGKILL to the program and its workers.
  void KillEverything();
  bool running() const { return pid_ != 0; }

  // Waits until the ledger has `step` or later. Fails the test after a minute.
  void WaitForStep(int64_t step);
  // Waits until there is such an event. Fails the test after a minute.
  void WaitForEvent(const std::string& event);
  // Waits until standard error holds this text. Fails the test after a minute.
  void WaitUntilSaid(const std::string& text);
  // Waits until so many members are active; returns the status. Looks whenever a file of the run
  // changes, so steps must go on.
  nlohmann::json WaitForMembers(size_t members);
  nlohmann::json Status();
  // SIGKILL to the workers with these ranks, at once.
  void KillRanks(const std::set<int>& ranks);
  // `starling VERB …` on this run.
  ProgramResult Ask(std::vector<std::string> words);

  std::vector<nlohmann::json> Lines(const std::string& file) const;  // of a .jsonl of the folder
  int64_t LastStep() const;
  size_t CountEvents(const std::string& event) const;
  std::string said() const;  // standard error of the last Start

  // The surviving history: every step from 1 to `steps` once, each with every micro-batch once, a
  // digest on each step but a view's last, samples without gap, and no copy that differed.
  // Lines of steps that were decided while no coordinator was there have none: `away`.
  void CheckLedger(int64_t steps, bool away = false) const;
  std::map<int64_t, std::filesystem::path> Checkpoints() const;  // complete ones by step
  std::map<int64_t, double> Losses() const;  // by step, of the surviving history
  // The losses are those of `calm`: only the order of sums differs.
  // Nobody wrote them down for steps that were decided while no coordinator was there.
  void CheckSameCurve(const std::map<int64_t, double>& calm, bool away = false) const;

 private:
  std::optional<nlohmann::json> TryStatus();

  TempDir dir_;
  std::string run_;
  pid_t pid_ = 0;
  std::map<std::string, pid_t> workers_;  // started by StartWorker
  std::optional<Watch> watch_;            // of the last Start
  int starts_ = 0;
};

}  // namespace starling::testing
