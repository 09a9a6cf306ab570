// From the survey to the next view's beginning (protocol.md §5.4): a pure function.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "starling/membership/types.h"

namespace starling::membership {

struct DecideInput {
  // Answers of the survivors: members of the last journalled view, and of no other.
  std::map<Incarnation, MemberState> survivors;
  // Results that the coordinator itself witnessed through reports (highest last).
  std::vector<VoteResult> witnessed;
  Timeline timeline;  // current one; states of older timelines do not count
};

struct Decision {
  // kContinue: `position` is the highest decided one, reached by everybody through `result`.
  // kRestore: no survivor holds the state.
  enum class Kind { kContinue, kRestore } kind = Kind::kRestore;
  Position position;
  int64_t updates = 0;
  std::optional<VoteResult> result;  // the vote that led to `position`, when somebody may need it
  std::map<Incarnation, plan::IntervalSet> claims;  // of step position.step + 1
  std::vector<Incarnation> holders;  // complete at `position` once they have rolled forward
  std::string reason;                // for events and people
};

// The decision, the same for the same input.
//   P  = max over complete survivors of (position, and After() of every vote result they or the
//        coordinator know);
//   holders = complete survivors with position = P, or position = result.at with reduced sums;
//   claims  = accumulated lists tagged P.
// Invariant: a result decided at p exists only if every member of its view had the reduced sums at
// p.
Decision Decide(const DecideInput& input);

}  // namespace starling::membership
