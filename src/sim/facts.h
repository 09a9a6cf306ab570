// What the simulator's checkers are told: facts about the modelled run, at the moment they become
// true. A gradient is the multiset of micro-batch numbers it contains, and a version of the weights
// is a hash chain over everything that was applied to it, so that "the same bits" is "the same
// number" and the invariants of protocol.md §10 can be checked literally.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "starling/membership/journal.h"
#include "starling/membership/types.h"

namespace starling::sim {

using Multiset = std::map<int64_t, int>;  // micro-batch number → how often

// A sum over the ranks of one view: its bits depend on who added what, hence on the generation.
struct Reduced {
  membership::Position at;
  Generation generation;
  Multiset sum;
  uint64_t bits = 0;  // of the sum; filled in once, for all ranks
};

// A worker's modelled memory.
struct Model {
  bool whole = false;  // parameters and optimizer state are one version
  uint64_t chain = 0;  // that version's bits
  int64_t updates = 0;
  Multiset accumulator;
  std::optional<membership::Position> accumulator_at;
  std::shared_ptr<const Reduced> reduced;  // one object for all ranks
  struct Held {
    membership::Position at;
    Multiset accumulator;
  };
  std::map<Incarnation, Held> held;  // handed over by leavers
};

// A vote in which every rank of the view has arrived: the step is decided, whoever learns of it.
struct DecidedFact {
  membership::VoteResult result;
  std::vector<plan::IntervalSet> contributions;  // by rank
};

struct AppliedFact {
  Incarnation worker;
  membership::VoteResult result;
  std::shared_ptr<const Reduced> reduced;  // of a commit
  uint64_t chain_after = 0;
};

// A member's state as a view becomes active.
struct ActiveFact {
  Incarnation worker;
  membership::Position position;
  bool whole = false;
  uint64_t chain = 0;
};

}  // namespace starling::sim
