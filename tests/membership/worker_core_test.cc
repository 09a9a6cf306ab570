// The worker's core, command by command.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "membership/worker_fixture.h"

namespace starling::membership {

using Phase = WorkerCore::Phase;
using fixture::MemberOf;
using fixture::Set;
using fixture::SmallOptions;
using fixture::Worker;

TEST_CASE("worker: a step is compute, reduce, vote, apply", "[membership]") {
  Worker w;
  CHECK(w.Said<Register>().size() == 1);
  w.Begin();
  REQUIRE(w.Runs<Compute>());
  CHECK(w.Ran<Compute>().back().index == 0);
  CHECK(w.Ran<Compute>().back().upcoming == Set(1, 2));
  w.Done();
  w.Done();
  REQUIRE(w.Runs<Reduce>());
  w.Done();
  REQUIRE(w.Runs<Vote>());
  CHECK(w.Ran<Vote>().back().count == 2);
  CHECK(w.Ran<Vote>().back().mix == Set(0, 2).MixSum());
  w.Done({.vote = w.Result()});
  REQUIRE(w.Runs<Apply>());
  REQUIRE(w.Said<Report>().size() == 1);
  CHECK(w.Said<Report>()[0].line->micro_batches == std::vector{Set(0, 2), Set(2, 4)});
  w.Done();
  CHECK(w.core.position().step == Step(1));
  CHECK(w.core.state().updates == 1);
  CHECK(w.Runs<ClearAccumulator>());
}

TEST_CASE("worker: a repeat clears and computes the same step again", "[membership]") {
  Worker w;
  w.Begin();
  w.Hear(RequestCheckpoint{});
  w.ToVote();
  CHECK(w.Ran<Vote>().back().request_checkpoint);
  w.Done({.vote = w.Result(Outcome::kRepeat)});
  w.Done();
  CHECK(w.core.position() == Position{Timeline(1), Step(0), Attempt(1)});
  CHECK(w.core.state().updates == 0);
  w.Done();  // ClearAccumulator
  w.ToVote();
  CHECK(w.Ran<Vote>().back().request_checkpoint);  // no version came of the first
}

TEST_CASE("worker: a sum that is not each micro-batch once stops everything with 70",
          "[membership]") {
  Worker w;
  w.Begin();
  w.ToVote();
  VoteResult twice = w.Result();
  twice.mix += 1;
  w.Done({.vote = twice});
  REQUIRE(w.Exit());
  CHECK(w.Exit()->exit_code == 70);
  CHECK(w.Ran<Apply>().empty());
  CHECK(w.Said<Leaving>().back().exit_code == 70);
}

TEST_CASE("worker: the survey is answered when the micro-batch under way is whole",
          "[membership]") {
  Worker w;
  w.Begin();
  w.Hear(Revoke{Term(1), Generation(1), "w2 died"});
  CHECK(w.Closed().back().generation == Generation(1));
  CHECK(w.Said<FormProgress>().size() == 1);
  CHECK(w.Said<SurveyAnswer>().empty());
  w.Done();
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].state.accumulated == Set(0, 1));
  CHECK(w.core.phase() == Phase::kRevoked);
  CHECK(w.Ran<Compute>().size() == 1);  // nothing new begins
}

TEST_CASE("worker: a vote that completes after Revoke is in the answer", "[membership]") {
  Worker w;
  w.Begin();
  w.ToVote();
  w.Hear(Revoke{Term(1), Generation(1), "w2 died"});
  CHECK(w.Said<SurveyAnswer>().empty());
  const VoteResult result = w.Result();
  w.Done({.vote = result});
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].state.pending_result == result);
  CHECK(w.Said<SurveyAnswer>()[0].state.has_reduced);
  CHECK(w.Ran<Apply>().empty());
}

TEST_CASE("worker: an apply that has begun is finished before the answer", "[membership]") {
  Worker w;
  w.Begin();
  w.ToVote();
  const VoteResult result = w.Result();
  w.Done({.vote = result});
  w.Hear(Revoke{Term(1), Generation(1), "w2 died"});
  CHECK(w.Said<SurveyAnswer>().empty());
  w.Done();
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].state.position.step == Step(1));
  CHECK(w.Said<SurveyAnswer>()[0].state.last_result == result);  // others may need it
}

TEST_CASE("worker: it follows a result that it missed, with the sums it has kept", "[membership]") {
  Worker w;
  w.Begin();
  w.ToVote();
  const VoteResult result = w.Result();
  w.Hear(Revoke{Term(1), Generation(1), "w2 died"});
  w.Done({.ok = false, .aborted = true});
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].state.has_reduced);
  Form f = w.FormOf(2, 1);
  f.result = result;
  w.Hear(f);
  REQUIRE(w.Runs<Apply>());
  CHECK(w.Ran<Apply>().back().result == result);
  w.Done();
  REQUIRE(w.Runs<Connect>());
  w.Done();
  REQUIRE(w.Said<Ready>().size() == 2);
  CHECK(w.core.position().step == Step(1));
  // It knows who contributed what to the step it missed.
  CHECK(w.Said<Ready>().back().unsettled.back().micro_batches == std::vector{Set(0, 2), Set(2, 4)});
  CHECK(w.Said<Ready>().back().unsettled.back().generation == Generation(1));
}

TEST_CASE("worker: claims are kept, and only the rest is computed", "[membership]") {
  Worker w;
  w.Begin();
  w.Done();  // micro-batch 0
  w.Hear(Revoke{Term(1), Generation(1), "w2 died"});
  w.Done();  // and 1
  Form f = w.FormOf(2);
  f.view = std::make_shared<View>(View{Generation(2), {MemberOf(1)}});
  f.claims = {Set(0, 2)};
  f.assignment = {Set(2, 4)};
  w.Hear(f);
  w.Done();
  w.Hear(Activate{Term(1), Generation(2)});
  CHECK(w.Ran<ClearAccumulator>().size() == 1);  // that of the beginning
  CHECK(w.Ran<Compute>().back().index == 2);
  w.ToVote();
  CHECK(w.Ran<Vote>().back().count == 4);
}

TEST_CASE("worker: sums of an older generation are not voted on in a newer one", "[membership]") {
  Worker w;
  w.Begin();
  w.ToVote();
  w.Hear(Revoke{Term(1), Generation(1), "reset"});
  w.Done({.ok = false, .aborted = true});
  Form f = w.FormOf(2);
  f.claims = {Set(0, 2), Set(2, 4)};
  f.assignment = {{}, {}};
  w.Hear(f);
  w.Done();
  w.Hear(Activate{Term(1), Generation(2)});
  CHECK(w.Runs<Reduce>());
  CHECK(w.Ran<Reduce>().back().generation == Generation(2));
}

TEST_CASE("worker: stale Forms, older terms and late Activates are ignored", "[membership]") {
  Worker w;
  w.Begin();
  w.Done();
  w.Hear(Revoke{Term(2), Generation(5), "newer coordinator"});
  w.Done();
  const size_t ran = w.Ran<Connect>().size();
  w.Hear(w.FormOf(5));  // the closed generation
  Form old_term = w.FormOf(7);
  w.Hear(old_term);  // term 1
  w.Hear(Activate{Term(2), Generation(5)});
  CHECK(w.Ran<Connect>().size() == ran);
  CHECK(w.core.phase() == Phase::kRevoked);
  Form next = w.FormOf(7);
  next.term = Term(2);
  w.Hear(next);
  CHECK(w.core.phase() == Phase::kForming);
}

TEST_CASE("worker: a joiner whose copy was cut off has no version", "[membership]") {
  Worker w;
  Form f = w.FormOf(4, 9);
  f.transfers = {{Rank(1), Rank(0)}};
  w.Hear(f);
  w.Done();
  REQUIRE(w.Runs<CopyState>());
  w.Hear(Revoke{Term(1), Generation(4), "w2 died"});
  w.Done({.ok = false, .aborted = true});
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK_FALSE(w.Said<SurveyAnswer>()[0].state.complete);
  w.Hear(f);  // late: must not revive it
  CHECK(w.core.phase() == Phase::kRevoked);
}

TEST_CASE("worker: a joiner that never got its Form answers the survey all the same",
          "[membership]") {
  Worker w;
  w.Hear(Revoke{Term(1), Generation(4), "w2 died"});
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].generation == Generation(4));
  CHECK_FALSE(w.Said<SurveyAnswer>()[0].state.complete);
}

TEST_CASE("worker: a checkpoint is bad when it cannot be read, not when loading is cut off",
          "[membership]") {
  Worker w;
  Form f = w.FormOf(2, 5);
  f.restore = RestoreSource{"step-5.t1", {Timeline(1), Step(5)}};
  f.transfers = {{Rank(0), Rank(1)}};
  w.Hear(f);
  REQUIRE(w.Runs<LoadCheckpoint>());
  SECTION("cut off") {
    w.Hear(Revoke{Term(1), Generation(2), "w2 died"});
    w.Done({.ok = false, .aborted = true});
    CHECK(w.Said<RestoreFailed>().empty());
  }
  SECTION("unreadable") {
    w.Done({.ok = false, .reason = "wrong CRC32C"});
    REQUIRE(w.Said<RestoreFailed>().size() == 1);
    CHECK(w.Said<RestoreFailed>()[0].checkpoint == "step-5.t1");
    w.Hear(Revoke{Term(1), Generation(2), "unreadable"});
  }
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK_FALSE(w.Said<SurveyAnswer>()[0].state.complete);
}

TEST_CASE("worker: a failed collective closes its generation at once", "[membership]") {
  Worker w;
  w.Begin();
  while (w.Runs<Compute>()) w.Done();
  w.Done({.ok = false, .reason = "connection reset", .suspects = {Incarnation(2)}});
  REQUIRE(w.Said<CommFailed>().size() == 1);
  CHECK(w.Said<CommFailed>()[0].suspects == std::vector{Incarnation(2)});
  CHECK(w.Closed().back().generation == Generation(1));
  CHECK(w.core.phase() == Phase::kRevoked);
  // The report may have been lost with the stream: it is said again.
  w.In(StreamLost{});
  w.In(StreamOpened{});
  w.Hear(Registered{Term(2), Registration(2)});
  CHECK(w.Said<CommFailed>().size() == 2);
}

TEST_CASE("worker: after reconnecting it says again what may have been lost", "[membership]") {
  Options options = SmallOptions();
  options.total_steps = 1;
  options.evaluation = true;
  Worker w(options);
  w.Begin();
  w.ToVote();
  w.Done({.vote = w.Result()});
  w.Done();  // Apply
  REQUIRE(w.Runs<Snapshot>());
  w.Done();
  REQUIRE(w.Runs<Evaluate>());
  w.Done();
  w.In(PartDone{{{Timeline(1), Step(1)}, Generation(1), Rank(0), 1, true, "{}"}});
  w.In(StreamLost{});
  w.In(StreamOpened{});
  CHECK(w.Said<Register>().back().active);
  CHECK(w.Said<Register>().back().unsettled.size() == 1);
  w.Hear(Registered{Term(2), Registration(2)});
  CHECK(w.Said<PartWritten>().size() == 2);
  CHECK(w.Said<Evaluated>().size() == 2);
  CHECK(w.Said<Report>().size() == 2);
  w.Hear(Settled{{Timeline(1), Step(1)}});
  w.In(StreamOpened{});
  CHECK(w.Said<Register>().back().unsettled.empty());
}

TEST_CASE("worker: training goes on without a coordinator", "[membership]") {
  Worker w;
  w.Begin();
  w.In(StreamLost{});
  w.ToVote();
  w.Done({.vote = w.Result()});
  w.Done();
  w.Done();
  CHECK(w.Runs<Compute>());
  CHECK(w.core.position().step == Step(1));
}

TEST_CASE("worker: SIGTERM twice is one notice; release ends it", "[membership]") {
  Worker w;
  w.Begin();
  w.In(LeaveNotice{10'000, "SIGTERM"});
  w.In(LeaveNotice{10'000, "SIGTERM"});
  CHECK(w.Said<DrainNotice>().size() == 1);
  CHECK_FALSE(w.Exit());
  w.Hear(Release{75, "drained"});
  CHECK(w.Exit()->exit_code == 75);
  CHECK(w.core.phase() == Phase::kStopped);
}

TEST_CASE("worker: asked to leave before it knows anybody, it leaves at once", "[membership]") {
  Worker w;
  w.In(StreamLost{});
  w.In(LeaveNotice{10'000, "SIGTERM"});
  REQUIRE(w.Exit().has_value());
  CHECK(w.Exit()->exit_code == 75);
}

TEST_CASE("worker: a command of its own that fails makes it leave", "[membership]") {
  Worker w;
  w.Begin();
  w.Done({.ok = false, .reason = "out of memory"});
  CHECK(w.Said<Leaving>().size() == 1);
  CHECK(w.Exit()->exit_code == 1);
}

TEST_CASE("worker: in a stopping view it checkpoints and waits", "[membership]") {
  Worker w;
  Form f = w.FormOf(1);
  f.from_seed = true;
  f.purpose = Purpose::kStop;
  w.Hear(f);
  w.Done();
  w.Done();
  w.Hear(Activate{Term(1), Generation(1)});
  REQUIRE(w.Runs<Snapshot>());
  CHECK(w.Ran<Snapshot>().back().version == Version{Timeline(1), Step(0)});
  w.Done();
  CHECK(w.Ran<Compute>().empty());
}

}  // namespace starling::membership
