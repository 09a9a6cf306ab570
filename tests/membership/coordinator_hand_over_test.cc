// The coordinator's core, message by message: leavers' accumulators, which change hands before
// their view does.
#include <catch2/catch_test_macros.hpp>

#include "membership/cluster.h"
#include "starling/membership/coordinator_core.h"

namespace starling::membership::testing {
namespace {

// Workers 1, 2 and 3 train, and 3 has asked to leave; it and its receiver, 1, were told.
void BeginDrain(Cluster& c) {
  c.Begin({1, 2, 3});
  c.Say(3, DrainNotice{60'000, "SIGTERM"});
  c.SayPrepared(1);
  c.SayPrepared(2);
  REQUIRE(c.Sent<HandOver>(3).size() == 1);
}

// 3's list has arrived at 1.
void ArriveAtReceiver(Cluster& c) {
  c.Say(1, HandedOver{c.Sent<HandOver>(1).back().channel->generation, {}});
  REQUIRE(c.core->phase() == Phase::kSurveying);
}

MemberState Holding(MemberState state, uint64_t owner, plan::IntervalSet list, int64_t step = 0) {
  state.held.push_back({Id(owner), {Timeline(1), Step(step), Attempt(0)}, std::move(list)});
  return state;
}

// Every micro-batch is claimed or assigned, and none twice.
void CheckWhole(const Form& form) {
  plan::IntervalSet all;
  for (const std::vector<plan::IntervalSet>* lists : {&form.claims, &form.assignment}) {
    for (const plan::IntervalSet& list : *lists) {
      CHECK_FALSE(all.Intersects(list));
      all.Add(list);
    }
  }
  CHECK(all == plan::IntervalSet::Whole(12));
}

}  // namespace

TEST_CASE("hand-over: the receiver counts the leaver's list, which nobody computes again",
          "[membership]") {
  Cluster c(SmallOptions(3));
  BeginDrain(c);
  const HandOver order = c.Sent<HandOver>(3).back();
  CHECK(c.Sent<HandOver>(1).size() == 1);
  CHECK(c.Sent<HandOver>(2).empty());
  CHECK(order.generation == Generation(1));
  CHECK(order.channel->members == std::vector{Cluster::MemberOf(3), Cluster::MemberOf(1)});
  const Prepare p = c.Sent<Prepare>(1).back();
  CHECK(order.channel->generation > p.view->generation);  // a number of its own
  CHECK(order.secret != p.secret);
  CHECK(order.secret == c.Sent<HandOver>(1).back().secret);
  CHECK(Revokes(c) == 0);
  ArriveAtReceiver(c);
  c.Answer(1, Holding(c.Complete(0, Set(0, 2)), 3, Set(8, 11)));
  c.Answer(2, c.Complete(0, Set(4, 5)));
  c.Answer(3, c.Complete(0, Set(8, 11)));
  REQUIRE(c.Members() == Ids{1, 2});
  const Form form = c.LastForm(1);
  CHECK(form.view->generation == p.view->generation);
  CHECK(form.merge == std::vector<Merge>{{Rank(0), Id(3)}});
  CHECK(form.claims[0] == plan::IntervalSet::Of({{0, 2}, {8, 11}}));
  CHECK(form.claims[1] == Set(4, 5));
  CheckWhole(form);
  CHECK(c.Sent<Release>(3).back().exit_code == 75);
  c.ReadyAll();
  CHECK(c.Out<Event>().back().event == "view");
  CHECK(c.Out<Event>().back().micro_batches_lost == 0);
}

TEST_CASE("hand-over: a leaver that is kept counts its own list, not the one held for it",
          "[membership]") {
  Options options = SmallOptions(3);
  options.min_workers = 2;
  Cluster c(options);
  BeginDrain(c);
  ArriveAtReceiver(c);
  c.Answer(1, Holding(c.Complete(0, Set(0, 2)), 3, Set(8, 11)));
  c.In(ProcessDied{"host", 2, "killed"});  // too few would remain
  c.Answer(3, c.Complete(0, Set(8, 11)));
  REQUIRE(c.Members() == Ids{1, 3});
  const Form form = c.LastForm(1);
  CHECK(form.purpose == Purpose::kStop);
  CHECK(form.merge.empty());
  CHECK(form.claims == std::vector{Set(0, 2), Set(8, 11)});
  CheckWhole(form);
}

TEST_CASE("hand-over: a list that two hold is counted once", "[membership]") {
  Cluster c(SmallOptions(3));
  BeginDrain(c);
  ArriveAtReceiver(c);
  c.Answer(1, Holding(c.Complete(0, Set(0, 2)), 3, Set(8, 11)));
  c.Answer(2, Holding(c.Complete(0, Set(4, 5)), 3, Set(8, 11)));
  c.Answer(3, c.Complete(0, Set(8, 11)));
  const Form form = c.LastForm(1);
  CHECK(form.merge == std::vector<Merge>{{Rank(0), Id(3)}});
  CHECK(form.claims[1] == Set(4, 5));
  CheckWhole(form);
}

TEST_CASE("hand-over: what is held of another position never counts", "[membership]") {
  Cluster c(SmallOptions(3));
  BeginDrain(c);
  c.Vote(1);
  ArriveAtReceiver(c);
  MemberState receiver = c.Complete(1);
  SECTION("an older step") { receiver = Holding(receiver, 3, Set(8, 11), 0); }
  SECTION("another attempt") {
    receiver = Holding(receiver, 3, Set(8, 11), 1);
    receiver.held.back().position.attempt = Attempt(1);
  }
  SECTION("by one that does not hold the state") {
    receiver = Holding(MemberState{}, 3, Set(8, 11), 1);
  }
  c.Answer(1, receiver);
  c.Answer(2, c.Complete(1, Set(4, 5)));
  c.Answer(3, c.Complete(1, Set(8, 11)));
  REQUIRE(c.Members() == Ids{1, 2});
  const Form form = c.LastForm(1);
  CHECK(form.merge.empty());
  CHECK(form.claims == std::vector{plan::IntervalSet{}, Set(4, 5)});
  CheckWhole(form);
}

TEST_CASE("hand-over: the receiver may be a decision behind the leaver", "[membership]") {
  Cluster c(SmallOptions(3));
  BeginDrain(c);
  const VoteResult result = c.Decide(1);
  ArriveAtReceiver(c);
  MemberState behind = c.Complete(0, Set(0, 4));
  behind.has_reduced = true;
  behind.pending_result = result;
  MemberState ahead = c.Complete(1, Set(8, 9));
  ahead.last_result = result;
  c.Answer(1, Holding(behind, 3, Set(8, 9), 1));
  c.Answer(2, behind);
  c.Answer(3, ahead);
  const Form form = c.LastForm(1);
  CHECK(form.result == result);
  CHECK(form.claims == std::vector{Set(8, 9), plan::IntervalSet{}});
  CHECK(form.merge.size() == 1);
  CheckWhole(form);
}

TEST_CASE("hand-over: one that fails leaves its micro-batches to be computed again",
          "[membership]") {
  Cluster c(SmallOptions(3));
  BeginDrain(c);
  const Generation channel = c.Sent<HandOver>(3).back().channel->generation;
  SECTION("at the receiver") {
    c.Say(1, Prepared{.generation = channel, .ok = false, .reason = "connection reset"});
  }
  SECTION("at the leaver") {
    c.Say(3, Prepared{.generation = channel, .ok = false, .reason = "connection reset"});
  }
  SECTION("or nobody says anything") { c.Advance(SmallOptions(3).stuck_after + absl::Seconds(1)); }
  REQUIRE(c.core->phase() == Phase::kSurveying);
  c.Answer(1, c.Complete(0, Set(0, 2)));
  c.Answer(2, c.Complete(0, Set(4, 5)));
  c.Answer(3, c.Complete(0, Set(8, 11)));
  REQUIRE(c.Members() == Ids{1, 2});
  const Form form = c.LastForm(1);
  CHECK(form.view->generation == c.Sent<Prepare>(1).back().view->generation);
  CHECK(form.merge.empty());
  CHECK(form.claims == std::vector{Set(0, 2), Set(4, 5)});
  CheckWhole(form);
  CHECK(c.Sent<Release>(3).back().exit_code == 75);
}

TEST_CASE("hand-over: one that died in the middle is lost", "[membership]") {
  Cluster c(SmallOptions(3));
  BeginDrain(c);
  const Generation proposed = c.Sent<Prepare>(1).back().view->generation;
  SECTION("the leaver") {
    c.In(ProcessDied{"host", 3, "killed"});
    REQUIRE(c.core->phase() == Phase::kSurveying);
    c.Answer(1, c.Complete(0, Set(0, 2)));
    c.Answer(2, c.Complete(0, Set(4, 5)));
    CHECK(c.Members() == Ids{1, 2});
  }
  SECTION("the receiver") {
    c.In(ProcessDied{"host", 1, "killed"});
    REQUIRE(c.core->phase() == Phase::kSurveying);
    c.Answer(2, c.Complete(0, Set(4, 5)));
    c.Answer(3, c.Complete(0, Set(8, 11)));
    CHECK(c.Members() == Ids{2});
    CHECK(c.Sent<Release>(3).back().exit_code == 75);
  }
  const Form form = c.LastForm(2);
  CHECK(form.view->generation > proposed);
  CHECK(form.merge.empty());
  CheckWhole(form);
}

TEST_CASE("hand-over: a leaver in a hurry hands over at once, prepared or not", "[membership]") {
  Cluster c(SmallOptions(3));
  c.Begin({1, 2, 3});
  c.Say(3, DrainNotice{1000, "preempted"});  // less than `detection`
  REQUIRE(c.Sent<HandOver>(3).size() == 1);
  const Generation proposed = c.Sent<Prepare>(1).back().view->generation;
  SECTION("in time") { ArriveAtReceiver(c); }
  SECTION("too late") {
    c.Advance(absl::Milliseconds(999));
    CHECK(c.core->phase() == Phase::kRunning);
    c.Advance(absl::Milliseconds(1));
    REQUIRE(c.core->phase() == Phase::kSurveying);
  }
  c.Answer(1, Holding(c.Complete(0), 3, Set(8, 11)));
  c.Answer(2, c.Complete(0));
  c.Answer(3, c.Complete(0, Set(8, 11)));
  REQUIRE(c.Members() == Ids{1, 2});
  CHECK(c.core->view()->generation > proposed);  // which nobody had connected
  CHECK(c.LastForm(1).claims[0] == Set(8, 11));
  CheckWhole(c.LastForm(1));
}

TEST_CASE("resize: two leave at once, each to a receiver of its own", "[membership]") {
  Cluster c(SmallOptions(4));
  c.Begin({1, 2, 3, 4});
  c.In(UserRequest{.id = 1, .kind = UserRequest::Kind::kResize, .target_workers = 2});
  c.SayPrepared(1);
  c.SayPrepared(2);
  REQUIRE(c.Sent<HandOver>(3).size() == 1);
  REQUIRE(c.Sent<HandOver>(4).size() == 1);
  CHECK(c.Sent<HandOver>(3)[0].channel->members[1] == Cluster::MemberOf(1));
  CHECK(c.Sent<HandOver>(4)[0].channel->members[1] == Cluster::MemberOf(2));
  CHECK(c.Sent<HandOver>(3)[0].channel->generation != c.Sent<HandOver>(4)[0].channel->generation);
  c.Say(2, HandedOver{c.Sent<HandOver>(4)[0].channel->generation, {}});
  CHECK(Revokes(c) == 0);  // until both are through
  ArriveAtReceiver(c);
  c.Answer(1, Holding(c.Complete(0, Set(0, 1)), 3, Set(6, 8)));
  c.Answer(2, Holding(c.Complete(0, Set(3, 4)), 4, Set(9, 11)));
  c.Answer(3, c.Complete(0, Set(6, 8)));
  c.Answer(4, c.Complete(0, Set(9, 11)));
  REQUIRE(c.Members() == Ids{1, 2});
  const Form form = c.LastForm(2);
  CHECK(form.merge == std::vector<Merge>{{Rank(0), Id(3)}, {Rank(1), Id(4)}});
  CHECK(form.claims == std::vector{plan::IntervalSet::Of({{0, 1}, {6, 8}}),
                                   plan::IntervalSet::Of({{3, 4}, {9, 11}})});
  CheckWhole(form);
  CHECK(Revokes(c) == 1);
  CHECK(c.Sent<Release>(3).back().exit_code == 75);
  CHECK(c.Sent<Release>(4).back().exit_code == 75);
}

}  // namespace starling::membership::testing
