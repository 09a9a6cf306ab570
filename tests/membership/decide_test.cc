// From survey answers to the next view's beginning, case by case (protocol.md §5.4).
#include "starling/membership/decide.h"

#include <catch2/catch_test_macros.hpp>

namespace starling::membership {
namespace {

using Kind = Decision::Kind;

const Incarnation kA(1), kB(2), kC(3);

Position At(int64_t step, uint32_t attempt = 0, uint64_t timeline = 1) {
  return {Timeline(timeline), Step(step), Attempt(attempt)};
}

VoteResult Result(Position at, Outcome outcome = Outcome::kCommit, int64_t update = 0) {
  VoteResult r;
  r.generation = Generation(3);
  r.at = at;
  r.outcome = outcome;
  r.update = update;
  return r;
}

MemberState State(Position position, plan::IntervalSet accumulated = {}, bool reduced = false) {
  MemberState s;
  s.complete = true;
  s.position = position;
  s.updates = position.step.value();
  s.accumulated = std::move(accumulated);
  s.has_reduced = reduced;
  return s;
}

plan::IntervalSet Set(int64_t begin, int64_t end) { return plan::IntervalSet::Of({{begin, end}}); }

}  // namespace

TEST_CASE("decide: nobody has seen a vote, so the step is finished with all claims",
          "[membership]") {
  const Decision d = Decide({.survivors = {{kA, State(At(5), Set(0, 3))},
                                           {kB, State(At(5), Set(4, 6), true)},
                                           {kC, State(At(5))}},
                             .witnessed = {},
                             .timeline = Timeline(1)});
  CHECK(d.kind == Kind::kContinue);
  CHECK(d.position == At(5));
  CHECK(d.updates == 5);
  CHECK(d.holders == std::vector{kA, kB, kC});
  CHECK(d.claims == std::map<Incarnation, plan::IntervalSet>{{kA, Set(0, 3)}, {kB, Set(4, 6)}});
}

TEST_CASE("decide: a vote that one survivor has seen is rolled forward for all", "[membership]") {
  MemberState seen = State(At(5), Set(0, 3), true);
  seen.pending_result = Result(At(5), Outcome::kCommit, 6);
  const Decision d = Decide({.survivors = {{kA, State(At(5), Set(3, 6), true)}, {kB, seen}},
                             .witnessed = {},
                             .timeline = Timeline(1)});
  CHECK(d.position == At(6));
  CHECK(d.updates == 6);
  CHECK(d.result == seen.pending_result);
  CHECK(d.holders == std::vector{kA, kB});
  CHECK(d.claims.empty());  // what was accumulated is in the decided step
}

TEST_CASE("decide: a survivor that has applied the vote keeps its claims of the next step",
          "[membership]") {
  MemberState applied = State(At(6), Set(0, 2));
  applied.last_result = Result(At(5), Outcome::kCommit, 6);
  const Decision d = Decide({.survivors = {{kA, applied}, {kB, State(At(5), Set(3, 6), true)}},
                             .witnessed = {},
                             .timeline = Timeline(1)});
  CHECK(d.position == At(6));
  CHECK(d.result == applied.last_result);
  CHECK(d.holders == std::vector{kA, kB});
  CHECK(d.claims == std::map<Incarnation, plan::IntervalSet>{{kA, Set(0, 2)}});
}

TEST_CASE("decide: the coordinator is a witness too", "[membership]") {
  const VoteResult result = Result(At(5), Outcome::kCommit, 6);
  const Decision d = Decide({.survivors = {{kA, State(At(5), Set(0, 6), true)}},
                             .witnessed = {Result(At(4), Outcome::kCommit, 5), result},
                             .timeline = Timeline(1)});
  CHECK(d.position == At(6));
  CHECK(d.result == result);
}

TEST_CASE("decide: a repeat keeps the step and drops what was accumulated", "[membership]") {
  MemberState seen = State(At(5), Set(0, 3), true);
  seen.pending_result = Result(At(5), Outcome::kRepeat, 5);
  // Nothing of the state changes, so a member without the sums follows as well.
  const Decision d = Decide({.survivors = {{kA, seen}, {kB, State(At(5), Set(3, 6))}},
                             .witnessed = {},
                             .timeline = Timeline(1)});
  CHECK(d.position == At(5, 1));
  CHECK(d.updates == 5);
  CHECK(d.holders == std::vector{kA, kB});
  CHECK(d.claims.empty());
}

TEST_CASE("decide: a skip advances the number and not the updates", "[membership]") {
  MemberState seen = State(At(5), Set(0, 3), true);
  seen.updates = 4;
  seen.pending_result = Result(At(5), Outcome::kSkip, 4);
  const Decision d = Decide({.survivors = {{kA, seen}}, .witnessed = {}, .timeline = Timeline(1)});
  CHECK(d.position == At(6));
  CHECK(d.updates == 4);
}

TEST_CASE("decide: updates are the optimizer's count, not the step", "[membership]") {
  MemberState state = State(At(9));
  state.updates = 6;  // three were skipped
  CHECK(Decide({.survivors = {{kA, state}}, .witnessed = {}, .timeline = Timeline(1)}).updates ==
        6);
}

TEST_CASE("decide: states of an older timeline do not count", "[membership]") {
  MemberState zombie = State(At(90, 0, 1), Set(0, 3), true);
  zombie.pending_result = Result(At(90, 0, 1));
  const Decision d = Decide({.survivors = {{kA, zombie}, {kB, State(At(5, 0, 2), Set(1, 2))}},
                             .witnessed = {Result(At(91, 0, 1))},
                             .timeline = Timeline(2)});
  CHECK(d.position == At(5, 0, 2));
  CHECK(d.holders == std::vector{kB});
  CHECK(d.claims == std::map<Incarnation, plan::IntervalSet>{{kB, Set(1, 2)}});
}

TEST_CASE("decide: an incomplete copy is no holder and no witness", "[membership]") {
  MemberState copying = State(At(7));
  copying.complete = false;
  copying.last_result = Result(At(8));
  const Decision d = Decide(
      {.survivors = {{kA, copying}, {kB, State(At(5))}}, .witnessed = {}, .timeline = Timeline(1)});
  CHECK(d.position == At(5));
  CHECK(d.holders == std::vector{kB});
}

TEST_CASE("decide: without a holder the answer is restore", "[membership]") {
  CHECK(Decide({.survivors = {}, .witnessed = {}, .timeline = Timeline(1)}).kind == Kind::kRestore);
  CHECK(
      Decide({.survivors = {{kA, MemberState{}}}, .witnessed = {}, .timeline = Timeline(1)}).kind ==
      Kind::kRestore);
  // The vote is known, but nobody has the sums that it speaks of.
  CHECK(Decide({.survivors = {{kA, State(At(5), Set(0, 6))}},
                .witnessed = {Result(At(5), Outcome::kCommit, 6)},
                .timeline = Timeline(1)})
            .kind == Kind::kRestore);
}

TEST_CASE("decide: the same input gives the same decision", "[membership]") {
  const DecideInput input{.survivors = {{kB, State(At(5), Set(4, 6))}, {kA, State(At(5))}},
                          .witnessed = {Result(At(4))},
                          .timeline = Timeline(1)};
  const Decision one = Decide(input), two = Decide(input);
  CHECK(one.position == two.position);
  CHECK(one.claims == two.claims);
  CHECK(one.holders == two.holders);
  CHECK(one.result == two.result);
}

}  // namespace starling::membership
