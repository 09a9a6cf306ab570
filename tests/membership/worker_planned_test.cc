// The worker's core in planned changes: proposals, copies in the background, hand-overs.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "membership/worker_fixture.h"

namespace starling::membership {

using Phase = WorkerCore::Phase;
using fixture::MemberOf;
using fixture::Set;
using fixture::SmallOptions;
using fixture::Worker;

TEST_CASE("newcomer: what it copied beside needs no other copy", "[membership]") {
  Worker w;
  const Prepare p = w.PrepareOf(4);
  w.Hear(p);
  REQUIRE(w.RanBeside<PrepareView>().size() == 1);
  CHECK(w.RanBeside<PrepareView>()[0].rank == Rank(1));
  CHECK(w.Said<Prepared>().empty());
  w.In(BesideCompletion{.command = w.RanBeside<PrepareView>()[0],
                        .copied = Version{Timeline(1), Step(7)},
                        .updates = 6});
  REQUIRE(w.Said<Prepared>().size() == 1);
  CHECK(w.Said<Prepared>()[0].generation == Generation(4));
  CHECK(w.Said<Prepared>()[0].copied == Version{Timeline(1), Step(7)});
  CHECK_FALSE(w.core.state().complete);  // nothing counts before the Form
  w.Hear(w.JoinOf(p, 7));
  REQUIRE(w.Runs<Connect>());
  w.Done();
  CHECK(w.Ran<CopyState>().empty());
  CHECK(w.Said<Ready>().size() == 1);
  CHECK(w.core.position().step == Step(7));
  CHECK(w.core.state().updates == 6);
}

TEST_CASE("newcomer: a Form that counts on a copy it lacks is a failed generation",
          "[membership]") {
  Worker w;
  const Prepare p = w.PrepareOf(4);
  w.Hear(p);
  BesideCompletion done{.command = w.RanBeside<PrepareView>()[0]};
  SECTION("of another version") { done.copied = Version{Timeline(1), Step(6)}; }
  SECTION("of several versions") {}
  SECTION("failed") { done.ok = false; }
  w.In(done);
  REQUIRE(w.Said<Prepared>().size() == 1);
  CHECK(w.Said<Prepared>()[0].ok == done.ok);
  w.Hear(w.JoinOf(p, 7));
  w.Done();  // Connect
  REQUIRE(w.Said<CommFailed>().size() == 1);
  CHECK(w.Said<CommFailed>()[0].generation == Generation(4));
  CHECK(w.Said<CommFailed>()[0].suspects.empty());
  CHECK(w.Closed().back().generation == Generation(4));
  CHECK(w.core.phase() == Phase::kRevoked);
  CHECK(w.Said<Ready>().empty());
}

TEST_CASE("newcomer: a copy that is made again does not count meanwhile", "[membership]") {
  Worker w;
  Prepare p = w.PrepareOf(4);
  w.Hear(p);
  w.In(BesideCompletion{.command = w.RanBeside<PrepareView>()[0],
                        .copied = Version{Timeline(1), Step(7)}});
  p.round = 1;
  w.Hear(p);
  REQUIRE(w.RanBeside<PrepareView>().size() == 2);
  CHECK(w.RanBeside<PrepareView>()[1].round == 1);
  w.In(BesideCompletion{.command = w.RanBeside<PrepareView>()[1], .ok = false, .aborted = true});
  w.Hear(w.JoinOf(p, 7));
  w.Done();  // Connect
  CHECK(w.Said<CommFailed>().size() == 1);
}

TEST_CASE("newcomer: no command runs while the state is written beside", "[membership]") {
  Worker w;
  const Prepare p = w.PrepareOf(4);
  w.Hear(p);
  Form f = w.JoinOf(p, 7);
  f.transfers = p.transfers;
  f.view = std::make_shared<View>(View{Generation(5), f.view->members});
  w.Hear(f);                                             // the change was made unprepared
  CHECK(w.Closed().back().generation == Generation(4));  // which ends the copy
  CHECK(w.Ran<Connect>().empty());
  w.In(BesideCompletion{.command = w.RanBeside<PrepareView>()[0], .ok = false, .aborted = true});
  CHECK(w.Said<Prepared>().empty());
  CHECK(w.Runs<Connect>());
  w.Done();
  CHECK(w.Runs<CopyState>());
}

TEST_CASE("prepare: a donor computes on and answers", "[membership]") {
  Worker w;
  w.Begin();
  Prepare p = w.PrepareOf(4);
  p.view = std::make_shared<View>(View{Generation(4), {MemberOf(1), MemberOf(2), MemberOf(3)}});
  p.transfers = {{Rank(0), Rank(2)}};
  p.hold = true;
  w.Hear(p);
  REQUIRE(w.RanBeside<PrepareView>().size() == 1);
  CHECK(w.RanBeside<PrepareView>()[0].hold);
  w.Done();
  CHECK(w.Ran<Compute>().size() == 2);
  w.In(BesideCompletion{.command = w.RanBeside<PrepareView>()[0],
                        .ok = false,
                        .reason = "cannot connect",
                        .suspects = {Incarnation(3)}});
  REQUIRE(w.Said<Prepared>().size() == 1);
  CHECK_FALSE(w.Said<Prepared>()[0].ok);
  CHECK(w.Said<Prepared>()[0].unreachable == std::vector{Incarnation(3)});
  CHECK(w.core.phase() == Phase::kActive);
}

TEST_CASE("prepare: proposals and orders of the past are ignored", "[membership]") {
  Worker w;
  w.Begin();
  w.Hear(Registered{Term(2), Registration(2)});
  w.Hear(w.PrepareOf(4, 1));  // of an older term
  w.Hear(Worker::OrderOf(1, 2, 1));
  w.Hear(Worker::OrderOf(2, 1, 1));
  w.Hear(w.PrepareOf(1, 2));  // of a generation that is no longer ahead
  HandOver other = Worker::OrderOf(1, 2, 2);
  other.generation = Generation(2);  // that is not this worker's
  w.Hear(other);
  Prepare foreign = w.PrepareOf(4, 2);
  foreign.view = std::make_shared<View>(View{Generation(4), {MemberOf(2), MemberOf(3)}});
  w.Hear(foreign);
  w.Done();
  CHECK(w.RanBeside<PrepareView>().empty());
  CHECK(w.RanBeside<SendAccumulator>().empty());
  CHECK(w.RanBeside<ReceiveAccumulator>().empty());
  CHECK(w.Ran<Compute>().size() == 2);
  w.Hear(Revoke{Term(2), Generation(5), "w2 died"});
  w.Done();
  w.Hear(w.PrepareOf(5, 2));  // closed
  CHECK(w.RanBeside<PrepareView>().empty());
}

TEST_CASE("leaver: it hands over what it has, whole, and computes nothing more", "[membership]") {
  Worker w;
  w.Begin();
  w.Hear(Worker::OrderOf(1, 2));
  CHECK(w.RanBeside<SendAccumulator>().empty());  // the micro-batch under way is finished first
  w.Done();
  REQUIRE(w.RanBeside<SendAccumulator>().size() == 1);
  const SendAccumulator sent = w.RanBeside<SendAccumulator>()[0];
  CHECK(sent.secret == "channel");
  CHECK(sent.channel->generation == Generation(9));
  CHECK(sent.held == MemberState::Held{Incarnation(1), w.core.position(), Set(0, 1)});
  CHECK(w.Ran<Compute>().size() == 1);
  SECTION("nor when it is sent") {
    w.In(BesideCompletion{.command = sent});
    CHECK(w.Said<Prepared>().empty());  // the receiver says that it is there
  }
  SECTION("nor when that failed, which it says") {
    w.In(BesideCompletion{.command = sent, .ok = false, .reason = "connection reset"});
    REQUIRE(w.Said<Prepared>().size() == 1);
    CHECK_FALSE(w.Said<Prepared>()[0].ok);
    CHECK(w.Said<Prepared>()[0].generation == Generation(9));
  }
  CHECK(w.Ran<Compute>().size() == 1);
  CHECK(w.RanBeside<SendAccumulator>().size() == 1);
  // Kept after all, it counts what it has.
  w.Hear(Revoke{Term(1), Generation(1), "w2 died"});
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].state.accumulated == Set(0, 1));
  w.Hear(w.AloneOf(0, Set(0, 1), false));
  w.Done();  // Connect
  w.Hear(Activate{Term(1), Generation(10)});
  CHECK(w.Ran<Compute>().back().index == 1);
}

TEST_CASE("leaver: the survey is answered while the accumulator is sent, and nothing runs",
          "[membership]") {
  Worker w;
  w.Begin();
  w.Hear(Worker::OrderOf(1, 2));
  w.Done();
  w.Hear(Revoke{Term(1), Generation(1), "w2 died"});
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].state.accumulated == Set(0, 1));
  const size_t connects = w.Ran<Connect>().size();
  w.Hear(w.AloneOf(0, Set(0, 1), false));
  CHECK(w.Closed().back().generation == Generation(9));  // which ends the channel
  CHECK(w.Ran<Connect>().size() == connects);
  w.In(
      BesideCompletion{.command = w.RanBeside<SendAccumulator>()[0], .ok = false, .aborted = true});
  CHECK(w.Ran<Connect>().size() == connects + 1);
  CHECK(w.Said<Prepared>().empty());
}

TEST_CASE("leaver: without a coordinator it computes on, for the others need its share",
          "[membership]") {
  Worker w;
  w.Begin();
  w.Hear(Worker::OrderOf(1, 2));
  SECTION("before it has begun to hand over") {
    w.In(StreamLost{});
    w.Done();
    CHECK(w.RanBeside<SendAccumulator>().empty());
  }
  SECTION("once what it sends is sent") {
    w.Done();
    w.In(StreamLost{});
    CHECK(w.Ran<Compute>().size() == 1);
    w.In(BesideCompletion{.command = w.RanBeside<SendAccumulator>()[0]});
  }
  CHECK(w.Ran<Compute>().size() == 2);
  w.ToVote();
  CHECK(w.Ran<Vote>().back().count == 2);
}

TEST_CASE("leaver: it hands over out of a collective, where it may wait for another leaver",
          "[membership]") {
  Worker w;
  w.Begin();
  while (w.Runs<Compute>()) w.Done();
  REQUIRE(w.Runs<Reduce>());
  const bool voting = GENERATE(false, true);
  if (voting) w.Done();
  w.Hear(Worker::OrderOf(1, 2));
  REQUIRE(w.RanBeside<SendAccumulator>().size() == 1);
  CHECK(w.RanBeside<SendAccumulator>()[0].held.micro_batches == Set(0, 2));
  // The others came all the same: what follows writes, and waits until all is sent.
  w.Done({.vote = voting ? std::optional(w.Result()) : std::nullopt});
  CHECK(w.Ran<Vote>().size() == (voting ? 1 : 0));
  CHECK(w.Ran<Apply>().empty());
  w.In(BesideCompletion{.command = w.RanBeside<SendAccumulator>()[0]});
  if (!voting) {
    REQUIRE(w.Runs<Vote>());
    w.Done({.vote = w.Result()});
  }
  REQUIRE(w.Runs<Apply>());
  w.Done();
  w.Done();  // ClearAccumulator
  CHECK(w.core.position().step == Step(1));
  CHECK(w.RanBeside<SendAccumulator>().size() == 1);
  CHECK(w.Ran<Compute>().size() == 2);  // its share of the next step is others' after the switch
}

TEST_CASE("leaver: sums that were reduced meanwhile are handed over before the vote",
          "[membership]") {
  Worker w;
  w.Begin();
  while (w.Runs<Compute>()) w.Done();
  w.Hear(Worker::OrderOf(1, 2));
  w.Done();                       // Reduce
  w.Hear(Worker::OrderOf(1, 2));  // of the next proposal, while the first is being followed
  CHECK(w.RanBeside<SendAccumulator>().size() == 1);
  w.In(BesideCompletion{.command = w.RanBeside<SendAccumulator>()[0]});
  REQUIRE(w.RanBeside<SendAccumulator>().size() == 2);
  CHECK(w.Ran<Vote>().empty());
  w.In(BesideCompletion{.command = w.RanBeside<SendAccumulator>()[1]});
  CHECK(w.Runs<Vote>());
}

TEST_CASE("receiver: what it holds is in its answer, and enters the sum where the Form says so",
          "[membership]") {
  Worker w;
  w.Begin();
  w.ReceiveHeld(Set(2, 3));
  REQUIRE(w.Said<HandedOver>().size() == 1);
  CHECK(w.Said<HandedOver>()[0].channel == Generation(9));
  CHECK(w.Said<HandedOver>()[0].held.micro_batches == Set(2, 3));
  CHECK(w.Ran<Compute>().size() == 1);  // it computes meanwhile
  w.Done();
  w.Hear(Revoke{Term(1), Generation(1), "w2 drains"});
  w.Done();
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].state.held.size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].state.accumulated == Set(0, 2));
  SECTION("merged") {
    w.Hear(w.AloneOf(0, Set(0, 3), true));
    w.Done();  // Connect
    REQUIRE(w.Runs<MergeHeld>());
    CHECK(w.Ran<MergeHeld>()[0].owners == std::vector{Incarnation(2)});
    w.Done();
    CHECK(w.core.state().accumulated == Set(0, 3));
    CHECK(w.Said<Ready>().size() == 2);
    CHECK(w.Ran<ClearAccumulator>().size() == 1);  // that of the beginning
    w.Hear(Activate{Term(1), Generation(10)});
    CHECK(w.Ran<Compute>().back().index == 3);
    w.ToVote();
    CHECK(w.Ran<Vote>().back().count == 4);
  }
  SECTION("dropped: its owner stays") {
    w.Hear(w.AloneOf(0, Set(0, 2), false));
    w.Done();
    CHECK(w.Ran<MergeHeld>().empty());
    CHECK(w.Said<Ready>().size() == 2);
    CHECK(w.core.state().accumulated == Set(0, 2));
  }
  SECTION("merged, and then that generation fails: it is this member's own now") {
    w.Hear(w.AloneOf(0, Set(0, 3), true));
    w.Done();
    w.Hear(Revoke{Term(1), Generation(10), "again"});
    w.Done();  // MergeHeld
    REQUIRE(w.Said<SurveyAnswer>().size() == 2);
    CHECK(w.Said<SurveyAnswer>()[1].state.accumulated == Set(0, 3));
    CHECK(w.Said<SurveyAnswer>()[1].state.held.empty());
  }
  CHECK(w.core.state().held.empty());
}

TEST_CASE("receiver: rolled forward, it clears the last step's sum before it adds the leaver's",
          "[membership]") {
  Worker w;
  w.Begin();
  w.ToVote();
  w.ReceiveHeld(Set(2, 3), 1);  // the leaver is a step ahead
  CHECK(w.Said<HandedOver>().size() == 1);
  const VoteResult result = w.Result();
  w.Hear(Revoke{Term(1), Generation(1), "w2 drains"});
  w.Done({.vote = result});
  Form f = w.AloneOf(1, Set(2, 3), true);
  f.result = result;
  w.Hear(f);
  w.Done();  // Apply
  w.Done();  // Connect
  REQUIRE(w.Runs<ClearAccumulator>());
  CHECK(w.Ran<ClearAccumulator>().back().position.step == Step(1));
  w.Done();
  REQUIRE(w.Runs<MergeHeld>());
  w.Done();
  w.Hear(Activate{Term(1), Generation(10)});
  REQUIRE(w.Runs<Compute>());  // and not another ClearAccumulator
  CHECK(w.Ran<Compute>().back().index == 0);
  w.ToVote();
  CHECK(w.Ran<Vote>().back().count == 4);
}

TEST_CASE("receiver: when the step is decided, what it holds of it is over", "[membership]") {
  Worker w;
  w.Begin();
  w.ReceiveHeld(Set(2, 3));
  CHECK(w.core.state().held.size() == 1);
  w.Done();
  w.ToVote();
  w.Done({.vote = w.Result()});
  w.Done();  // Apply
  CHECK(w.core.state().held.empty());
  w.ReceiveHeld(Set(2, 3));  // late
  CHECK(w.core.state().held.empty());
  CHECK(w.Said<HandedOver>().size() == 1);
  REQUIRE(w.Said<Prepared>().size() == 1);  // and nobody waits for it
  CHECK_FALSE(w.Said<Prepared>()[0].ok);
  CHECK(w.Said<Prepared>()[0].generation == Generation(9));
}

TEST_CASE("receiver: a newer accumulator of one owner takes the place of the older",
          "[membership]") {
  Worker w;
  w.Begin();
  w.ReceiveHeld(Set(2, 3));
  w.ReceiveHeld(Set(2, 4));
  REQUIRE(w.core.state().held.size() == 1);
  CHECK(w.core.state().held[0].micro_batches == Set(2, 4));
}

}  // namespace starling::membership
