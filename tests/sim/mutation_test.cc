// The simulator must be able to fail: each of these bugs, injected into the cores one at a time, is
// caught by a checker within 2,000 seeds. Prints how many it took.
#include "membership/mutation.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "starling/sim/run.h"

namespace starling::sim {
namespace {

using membership::Mutation;

struct Bug {
  Mutation mutation;
  const char* name;
};
constexpr Bug kBugs[] = {
    {Mutation::kApplyBeforeVote, "apply before the vote"},
    {Mutation::kGenerationReused, "a generation is used again"},
    {Mutation::kGenerationNotReserved, "generations are not reserved in the journal"},
    {Mutation::kLeaverForgotten, "a leaver's intervals count, and nobody merges them"},
    {Mutation::kNameCountedTwice, "a name that joined again counts twice"},
    {Mutation::kActivatedUnready, "activated with one member not ready"},
    {Mutation::kFormNotPersisted, "a view is sent without being journalled"},
    {Mutation::kVoteAfterAnswer, "a vote is accepted after the survey was answered"},
    {Mutation::kLastResultDropped, "the last result is missing from the survey"},
    {Mutation::kStaleHandOver, "a hand-over of the last step is merged"},
    {Mutation::kProposalNumberReused, "a proposal's number is used twice"},
    {Mutation::kFencedReturns, "a fenced member is let in again"},
    {Mutation::kSkipLost, "a skipped step is written as committed"},
    {Mutation::kRestoreOffAncestry, "restored from a checkpoint of another history"},
    {Mutation::kStaleCopyHolds, "a newcomer with an old copy counts as complete"},
    {Mutation::kOldClaims, "claims of an older position are kept"},
    {Mutation::kSettledEarly, "a step is settled before all have reported it"},
    {Mutation::kTermNotRaised, "the term does not grow at a restart"},
    {Mutation::kRepeatKeepsAccumulator, "a repeat keeps the accumulator"},
    {Mutation::kSurveyCutShort, "the survey does not wait for the last answer"},
    {Mutation::kClaimsComputedAgain, "claimed micro-batches are assigned again"},
    {Mutation::kManifestUnsettled, "a manifest is written before its step is settled"},
};
static_assert(std::size(kBugs) == static_cast<size_t>(Mutation::kEnd) - 1);

class Injected {
 public:
  explicit Injected(Mutation mutation) { membership::injected_mutation = mutation; }
  ~Injected() { membership::injected_mutation = Mutation::kNone; }
};

constexpr uint64_t kSeeds = 2000;

// The first seed that fails, 0 if none does.
uint64_t CaughtBy(std::string* failure) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    try {
      *failure = Run({.seed = seed}).failure;
    } catch (const std::exception& e) {
      *failure = std::string("a core does not survive it: ") + e.what();
    }
    if (!failure->empty()) return seed;
  }
  return 0;
}

}  // namespace

TEST_CASE("mutation: each injected bug is caught within 2,000 seeds", "[sim]") {
#ifndef __OPTIMIZE__
  SKIP("takes many minutes without optimisation");
#endif
  for (const Bug& bug : kBugs) {
    const Injected injected(bug.mutation);
    std::string failure;
    const uint64_t seeds = CaughtBy(&failure);
    std::printf("%5llu seeds  %-52s %.100s\n", static_cast<unsigned long long>(seeds), bug.name,
                failure.c_str());
    if (seeds == 0) FAIL_CHECK("not caught: " << bug.name);
  }
}

TEST_CASE("mutation: a violation replays with the events that led to it", "[sim]") {
  const Injected injected(Mutation::kApplyBeforeVote);
  const Options options{.seed = 1, .min_workers = 4, .max_workers = 4, .seconds = 60};
  const Summary one = Run(options), two = Run(options);
  CHECK(!one.failure.empty());
  CHECK(one.failure == two.failure);
  const std::vector<std::string> last = LastEvents(options, 30);
  CHECK(last.size() == 30);
  CHECK(last.back().find("FAILURE") != std::string::npos);
}

}  // namespace starling::sim
