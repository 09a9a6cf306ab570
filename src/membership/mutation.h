// Places where the simulator's own test can inject a bug, one at a time, to show that the checkers
// would see it. In the library nothing can: Mutated() is constant. tests/sim compiles the sources
// of membership and sim once more with STARLING_INJECT_BUGS, where it is a switch.
#pragma once

namespace starling::membership {

enum class Mutation {
  kNone,
  kApplyBeforeVote,
  kGenerationReused,
  kGenerationNotReserved,
  kLeaverForgotten,
  kNameCountedTwice,
  kActivatedUnready,
  kFormNotPersisted,
  kVoteAfterAnswer,
  kLastResultDropped,
  kStaleHandOver,
  kProposalNumberReused,
  kFencedReturns,
  kSkipLost,
  kRestoreOffAncestry,
  kStaleCopyHolds,
  kOldClaims,
  kSettledEarly,
  kTermNotRaised,
  kRepeatKeepsAccumulator,
  kSurveyCutShort,
  kClaimsComputedAgain,
  kManifestUnsettled,
  kEnd,
};

#ifdef STARLING_INJECT_BUGS
inline Mutation injected_mutation = Mutation::kNone;
inline bool Mutated(Mutation mutation) { return injected_mutation == mutation; }
#else
constexpr bool Mutated(Mutation) { return false; }
#endif

}  // namespace starling::membership
