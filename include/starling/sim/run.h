// One simulated run by seed: a phase with faults (safety is checked), then a quiet one in which the
// run must come to its end. The seed picks sizes, rates and which faults exist at all, so that rare
// mixes happen ("swarm").
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace starling::sim {

struct Options {
  uint64_t seed = 1;
  int min_workers = 3;  // the seed picks a number of slots in this range
  int max_workers = 8;
  std::function<void(const std::string&)> trace;  // every message and decision
};

struct Summary {
  uint64_t seed = 0;
  uint64_t hash = 0;    // of all outputs: equal for equal seeds
  std::string failure;  // empty: all invariants held. Else number, facts, seed
  int64_t events = 0;
  int64_t steps = 0;  // decided
  int64_t views = 0;
  int64_t restores = 0;
  double simulated_seconds = 0;
};

Summary Run(const Options& options);

}  // namespace starling::sim
