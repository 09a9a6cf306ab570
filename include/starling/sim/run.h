// One simulated run by seed: a phase with faults (safety is checked), then a quiet one in which the
// run must recover. The seed picks sizes, rates and which faults exist at all, so that rare mixes
// happen ("swarm"); what the options give replaces the seed's choice and leaves its others alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace starling::sim {

struct Options {
  uint64_t seed = 1;
  int min_workers = 3;  // the seed picks a number of slots in this range
  int max_workers = 8;
  // Simulated time, three quarters of it with faults. Without it the run goes to its last step.
  std::optional<double> seconds;
  std::optional<int64_t> micro_batches;           // M
  std::optional<double> step_seconds;             // of all workers together
  std::optional<double> detection;                // seconds of silence that mean dead
  std::optional<std::set<std::string>> faults;    // of FaultNames(): all of these and no other
  std::function<void(const std::string&)> trace;  // every message and decision
};

// What may be in Options::faults.
std::vector<std::string> FaultNames();

struct Summary {
  uint64_t seed = 0;
  uint64_t hash = 0;    // of all outputs: equal for equal seeds
  std::string failure;  // empty: all invariants held. Else number, facts, seed
  int64_t events = 0;
  int workers = 0;
  int64_t steps = 0;  // decided
  int64_t views = 0;
  int64_t restores = 0;
  int64_t computed = 0;      // micro-batches
  int64_t recomputed = 0;    // of them: of a step and attempt that somebody had computed before
  double stall_seconds = 0;  // of all members: from the end of a generation to the next
  double longest_stall = 0;
  int64_t stalls = 0;
  double simulated_seconds = 0;
};

Summary Run(const Options& options);

// The last lines of the run's trace: of a run that failed, what led to it.
std::vector<std::string> LastEvents(Options options, size_t count);

}  // namespace starling::sim
