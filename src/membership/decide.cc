#include "starling/membership/decide.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "membership/mutation.h"

namespace starling::membership {
namespace {

bool Counts(const MemberState& state, Timeline timeline) {
  return state.complete && state.position.timeline == timeline;
}

// All vote results of this timeline that anybody still knows.
std::vector<const VoteResult*> KnownResults(const DecideInput& input) {
  std::vector<const VoteResult*> results;
  const auto add = [&](const std::optional<VoteResult>& result) {
    if (result && result->at.timeline == input.timeline) results.push_back(&*result);
  };
  for (const auto& [incarnation, state] : input.survivors) {
    if (!Counts(state, input.timeline)) continue;
    add(state.last_result);
    add(state.pending_result);
  }
  for (const VoteResult& result : input.witnessed) {
    if (result.at.timeline == input.timeline) results.push_back(&result);
  }
  return results;
}

}  // namespace

Decision Decide(const DecideInput& input) {
  Decision decision;
  const std::vector<const VoteResult*> results = KnownResults(input);
  std::optional<Position> highest;
  const auto raise = [&](const Position& position) {
    if (!highest || position > *highest) highest = position;
  };
  for (const auto& [incarnation, state] : input.survivors) {
    if (Counts(state, input.timeline)) raise(state.position);
  }
  // A witnessed result can only lift survivors that stand right before it.
  for (const VoteResult* result : results) raise(result->After());
  if (!highest) {
    decision.reason = "no survivor holds the state";
    return decision;
  }
  decision.position = *highest;
  for (const VoteResult* result : results) {
    if (result->After() == *highest) decision.result = *result;
  }
  for (const auto& [incarnation, state] : input.survivors) {
    if (!Counts(state, input.timeline)) continue;
    const bool there = state.position == *highest;
    // A repeat and a skip change no element, so nothing reduced is needed to follow them.
    const bool follows = decision.result && state.position == decision.result->at &&
                         (state.has_reduced || decision.result->outcome != Outcome::kCommit);
    if (!there && !follows) continue;
    decision.holders.push_back(incarnation);
    if (Mutated(Mutation::kOldClaims) && !there) decision.claims[incarnation] = state.accumulated;
    if (there) {
      decision.updates = state.updates;
      if (!state.accumulated.empty()) decision.claims[incarnation] = state.accumulated;
    } else if (decision.result->outcome == Outcome::kCommit) {
      decision.updates = decision.result->update;
    } else {
      decision.updates = state.updates;
    }
  }
  if (decision.holders.empty()) {
    decision = Decision{};
    decision.reason = absl::StrCat("no survivor can reach the decided ", ToString(*highest));
    return decision;
  }
  decision.kind = Decision::Kind::kContinue;
  const bool behind =
      std::any_of(input.survivors.begin(), input.survivors.end(), [&](const auto& s) {
        return Counts(s.second, input.timeline) && s.second.position < *highest;
      });
  decision.reason = behind ? absl::StrCat("roll forward to ", ToString(*highest))
                           : absl::StrCat("finish the step after ", ToString(*highest));
  return decision;
}

}  // namespace starling::membership
