// One small class for each invariant of protocol.md §10. A checker hears facts as they happen and
// answers with the contradiction, if there is one; the world adds the seed and stops.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/facts.h"

namespace starling::sim {

// What a checker may look at beyond the fact itself.
struct RunFacts {
  int64_t micro_batches = 1;
  // A live, connected member of the last journalled view that holds its newest decided version.
  std::function<std::optional<std::string>()> reachable_holder;
};

class Checker {
 public:
  explicit Checker(const RunFacts* run) : run_(run) {}
  virtual ~Checker() = default;
  virtual void OnRecord(const membership::JournalRecord&) {}
  virtual void OnForm(const membership::View&) {}      // a worker was sent this view
  virtual void OnProposal(const membership::View&) {}  // or this one, which may never be formed
  virtual void OnDecided(const DecidedFact&) {}
  virtual void OnApplied(const AppliedFact&) {}
  virtual void OnActive(const ActiveFact&) {}
  virtual void OnLedger(const membership::LedgerLine&) {}
  virtual void OnJournalLost() {}
  // The run has come to rest at this version: what must be complete by then.
  virtual void OnRest(const Version&) {}
  // Invariant and contradiction, e.g. "I7: step t1:s4 …"; empty while all is well.
  const std::string& failure() const { return failure_; }

 protected:
  void Fail(std::string text) {
    if (failure_.empty()) failure_ = std::move(text);
  }
  const RunFacts* run_;

 private:
  std::string failure_;
};

std::vector<std::unique_ptr<Checker>> AllCheckers(const RunFacts* run);

}  // namespace starling::sim
