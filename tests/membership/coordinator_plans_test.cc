// The coordinator's core, message by message: planned changes, which are prepared beside the
// training.
#include <catch2/catch_test_macros.hpp>

#include "absl/strings/match.h"
#include "membership/cluster.h"
#include "starling/membership/coordinator_core.h"

namespace starling::membership::testing {
namespace {

// Worker 3 joins 1 and 2, whose step is over before its copy is whole, every time it is made.
void CopyTooSlowly(Cluster& c, int64_t* step) {
  for (int64_t round = 0; round < 3; ++round) {
    REQUIRE(c.Sent<Prepare>(3).back().round == round);
    const Version copied = c.Newest();
    c.Vote(++*step);
    c.SayPrepared(2);
    c.SayPrepared(1);
    c.SayPrepared(3, round == 1 ? std::nullopt : std::optional(copied));
  }
}

}  // namespace

TEST_CASE("plan: joins and leaves that come together become one view", "[membership]") {
  Options options = SmallOptions(3);
  Cluster c(options);
  c.Begin({1, 2, 3});
  c.In(UserRequest{.id = 1, .kind = UserRequest::Kind::kResize, .target_workers = 5});
  c.Join(4);
  CHECK(c.Sent<Prepare>(4).empty());  // more may come
  c.Join(5);
  CHECK(c.Sent<Prepare>(5).size() == 1);
  c.Say(2, DrainNotice{60'000, "SIGTERM"});
  const Prepare p = c.Sent<Prepare>(4).back();
  CHECK(p.view->generation > c.Sent<Prepare>(4).front().view->generation);
  CHECK(c.Sent<Prepare>(2).size() == 1);  // the leaver is not in the second one
  c.PrepareAll();
  REQUIRE(c.core->phase() == Phase::kSurveying);
  for (uint64_t id : {1, 2, 3}) c.Answer(id, c.Complete(0));
  CHECK(c.Members() == Ids{1, 3, 4, 5});
  const Form form = c.LastForm(4);
  CHECK(form.view->generation == p.view->generation);
  CHECK(form.secret == p.secret);
  CHECK(form.transfers.empty());
  c.ReadyAll();
  CHECK(c.core->phase() == Phase::kRunning);
  CHECK(Revokes(c) == 1);
}

TEST_CASE("plan: a newcomer that comes alone is waited with for others for a moment",
          "[membership]") {
  Options options = SmallOptions(4);
  options.min_workers = 2;
  Cluster c(options);
  c.Join(1);
  c.Join(2);
  c.Advance(options.gather_after);
  c.ReadyAll();
  c.Join(3);
  CHECK(c.Sent<Prepare>(3).empty());
  c.Advance(options.join_settle());
  CHECK(c.Sent<Prepare>(3).size() == 1);
}

TEST_CASE("plan: several donors share one newcomer's copy, and newcomers begin at others",
          "[membership]") {
  Options options = SmallOptions(7);
  Cluster c(options);
  c.Begin({1, 2, 3, 4, 5, 6, 7});
  c.In(UserRequest{.id = 1, .kind = UserRequest::Kind::kDrain, .worker = "w7"});
  c.Join(8);
  CHECK(c.Sent<Prepare>(8).empty());  // the view is full: its place is free once w7 is out
  c.Join(9);
  c.In(UserRequest{.id = 2, .kind = UserRequest::Kind::kDrain, .worker = "w6"});
  const Prepare p = c.Sent<Prepare>(9).back();
  REQUIRE(p.view->members.size() == 7);
  std::vector<Transfer> expected;
  for (int32_t k = 0; k < 4; ++k) expected.push_back({Rank(k), Rank(5)});
  for (int32_t k = 0; k < 4; ++k) expected.push_back({Rank(k + 1), Rank(6)});
  CHECK(p.transfers == expected);
}

TEST_CASE("plan: training goes on until all is prepared", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  c.Vote(1);
  c.Join(3);
  c.SayPrepared(1);
  c.SayPrepared(3, c.Newest());
  CHECK(c.core->phase() == Phase::kRunning);
  CHECK(Revokes(c) == 0);
  c.SayPrepared(2);
  CHECK(c.core->phase() == Phase::kSurveying);
  CHECK(Revokes(c) == 1);
}

TEST_CASE("plan: a step decided during the survey means a copy after all", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  c.Join(3);
  c.PrepareAll();
  MemberState voted = c.Complete(0, Set(0, 6));
  voted.has_reduced = true;
  voted.pending_result = c.Decide(1);
  c.Answer(1, voted);
  c.Answer(2, voted);
  const Form form = c.LastForm(3);
  CHECK(form.position.step == Step(1));
  CHECK(form.transfers == std::vector<Transfer>{{Rank(0), Rank(2)}});
  CHECK(form.view->generation == c.Sent<Prepare>(3).back().view->generation);
}

TEST_CASE("plan: a copy that was left behind is made again, by donors and newcomers alone",
          "[membership]") {
  Options options = SmallOptions(6);
  Cluster c(options);
  c.Begin({1, 2, 3, 4, 5, 6});
  c.Join(7);
  const Version old = c.Newest();
  c.Vote(1);
  for (uint64_t id = 1; id <= 6; ++id) c.SayPrepared(id);
  c.SayPrepared(7, old);
  CHECK(c.core->phase() == Phase::kRunning);
  const Prepare again = c.Sent<Prepare>(7).back();
  CHECK(again.round == 1);
  CHECK(again.view == c.Sent<Prepare>(7).front().view);  // connected already
  CHECK_FALSE(again.hold);
  CHECK(c.Sent<Prepare>(4).size() == 2);
  CHECK(c.Sent<Prepare>(5).size() == 1);
  // An answer to the round before counts for nothing.
  c.Say(7, Prepared{again.view->generation, 0, true, "", {}, c.Newest()});
  for (uint64_t id = 1; id <= 4; ++id) c.SayPrepared(id);
  CHECK(c.core->phase() == Phase::kRunning);
  c.SayPrepared(7, c.Newest());
  REQUIRE(c.core->phase() == Phase::kSurveying);
  for (uint64_t id = 1; id <= 6; ++id) c.Answer(id, c.Complete(1));
  CHECK(c.LastForm(7).transfers.empty());
}

TEST_CASE("plan: the last time a copy is made the donors hold their votes", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  c.Join(3);
  const Version old = c.Newest();
  c.Vote(1);
  for (int round = 0; round < 2; ++round) {
    CHECK_FALSE(c.Sent<Prepare>(1).back().hold);
    c.SayPrepared(1);
    c.SayPrepared(2);
    c.SayPrepared(3, old);
  }
  CHECK(c.Sent<Prepare>(1).back().round == 2);
  CHECK(c.Sent<Prepare>(1).back().hold);
  c.PrepareAll();
  CHECK(c.core->phase() == Phase::kSurveying);
}

TEST_CASE("plan: a copy that is never current is put off for longer each time, and disturbs nobody",
          "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  c.Join(3);
  int64_t step = 0;
  for (int doublings = 0; doublings < 7; ++doublings) {
    const absl::Duration delay = absl::Seconds(1 << std::min(doublings, 5));
    CopyTooSlowly(c, &step);
    CHECK(c.Count("join_put_off") == doublings + 1);
    CHECK(c.core->phase() == Phase::kRunning);
    const size_t asked = c.Sent<Prepare>(3).size();
    const Generation number = c.Sent<Prepare>(3).back().view->generation;
    c.Advance(delay - absl::Milliseconds(1));
    CHECK(c.Sent<Prepare>(3).size() == asked);
    c.Advance(absl::Seconds(1));
    REQUIRE(c.Sent<Prepare>(3).size() == asked + 1);
    CHECK(c.Sent<Prepare>(3).back().view->generation > number);
  }
  CHECK(Revokes(c) == 0);
  CHECK(c.Members() == Ids{1, 2});
  // Once it has joined, the delay is the first one again.
  c.PrepareAll();
  for (uint64_t id : {1, 2}) c.Answer(id, c.Complete(step));
  REQUIRE(c.Members() == Ids{1, 2, 3});
  c.ReadyAll();
  c.In(ProcessDied{"host", 3, "killed"});
  for (uint64_t id : {1, 2}) c.Answer(id, c.Complete(step));
  c.ReadyAll();
  c.Join(103);
  c.Say(103, Prepared{c.Sent<Prepare>(103).back().view->generation, 0, false, "disk full", {}, {}});
  CHECK(absl::StrContains(c.Out<Event>().back().reason, "tries again in 1s"));
}

TEST_CASE("plan: a newcomer that others cannot reach is put off, the rest of the change is made",
          "[membership]") {
  Cluster c(SmallOptions(3));
  c.Begin({1, 2, 3});
  c.Join(4);
  c.Say(3, DrainNotice{60'000, "SIGTERM"});
  const Generation g = c.Sent<Prepare>(1).back().view->generation;
  c.Say(2, Prepared{g, 0, false, "timed out", {Id(4)}, {}});
  CHECK(c.Told("join_put_off"));
  CHECK(c.core->phase() == Phase::kRunning);
  const Prepare p = c.Sent<Prepare>(1).back();
  CHECK(p.view->generation > g);
  CHECK(p.view->members == std::vector{Cluster::MemberOf(1), Cluster::MemberOf(2)});
}

TEST_CASE("plan: members that cannot prepare make the change unprepared", "[membership]") {
  Cluster c(SmallOptions(3));
  c.Begin({1, 2, 3});
  c.Say(3, DrainNotice{60'000, "SIGTERM"});
  const Generation g = c.Sent<Prepare>(1).back().view->generation;
  c.Say(2, Prepared{g, 0, false, "timed out", {Id(1)}, {}});
  REQUIRE(c.core->phase() == Phase::kSurveying);
  for (uint64_t id : {1, 2, 3}) c.Answer(id, c.Complete(0));
  CHECK(c.Members() == Ids{1, 2});
  CHECK(c.core->view()->generation > g);
}

TEST_CASE(
    "plan: a newcomer that says nothing is put off, members that say nothing are not waited for",
    "[membership]") {
  Options options = SmallOptions(2);
  Cluster c(options);
  c.Begin({1, 2});
  SECTION("a newcomer") {
    c.Join(3);
    c.SayPrepared(1);
    c.SayPrepared(2);
    c.Advance(options.stuck_after - absl::Seconds(1));
    CHECK_FALSE(c.Told("join_put_off"));
    c.Advance(absl::Seconds(2));
    CHECK(c.Told("join_put_off"));
    CHECK(Revokes(c) == 0);
  }
  SECTION("a member") {
    c.In(UserRequest{.id = 1, .kind = UserRequest::Kind::kDrain, .worker = "w2"});
    c.Advance(options.stuck_after + absl::Seconds(2));
    CHECK(c.core->phase() == Phase::kSurveying);
  }
}

TEST_CASE("plan: a loss meanwhile abandons the proposal, whose number is never used again",
          "[membership]") {
  Cluster c(SmallOptions(3));
  c.Begin({1, 2, 3});
  c.Join(4);
  const Generation g = c.Sent<Prepare>(4).back().view->generation;
  size_t transfers = 1;
  SECTION("before anything is prepared") {}
  SECTION("when the copy is made, which counts all the same") {
    c.SayPrepared(4, c.Newest());
    transfers = 0;
  }
  c.In(ProcessDied{"host", 2, "killed"});
  c.Answer(1, c.Complete(0));
  c.Answer(3, c.Complete(0));
  CHECK(c.Members() == Ids{1, 3, 4});
  CHECK(c.core->view()->generation > g);
  CHECK(c.LastForm(4).secret != c.Sent<Prepare>(4).back().secret);
  CHECK(c.LastForm(4).transfers.size() == transfers);
  // A late answer to what was abandoned means nothing.
  c.Say(1, Prepared{g, 0, false, "closed", {}, {}});
  CHECK(c.core->phase() == Phase::kForming);
  c.ReadyAll();
  // Nor after a restart: it was reserved in the journal.
  Cluster next(SmallOptions(3), c.journal);
  const MemberState state = next.Complete(0);
  for (uint64_t id : {1, 3, 4}) next.Join(next.Returning(id, c.core->view(), state, false));
  for (uint64_t id : {1, 3, 4}) next.Answer(id, state);
  CHECK(next.core->view()->generation > c.core->view()->generation);
}

TEST_CASE("plan: who leaves or goes while it is prepared makes another proposal", "[membership]") {
  Cluster c(SmallOptions(3));
  c.Begin({1, 2, 3});
  c.Join(4);
  const Generation g = c.Sent<Prepare>(1).back().view->generation;
  SECTION("the newcomer goes: there is nothing to change") {
    c.Drop(4);
    c.SayPrepared(1);
    CHECK(c.Sent<Prepare>(1).size() == 1);
    CHECK(c.core->phase() == Phase::kRunning);
  }
  SECTION("a member leaves") {
    c.Say(2, DrainNotice{60'000, "SIGTERM"});
    CHECK(c.Sent<Prepare>(1).back().view->generation > g);
    CHECK(c.core->phase() == Phase::kRunning);
  }
  SECTION("a member's stream was new before the old one's end was seen") {
    // What it was told may have gone with the old one.
    c.Join(c.Returning(2, c.core->view(), c.Complete(0)));
    CHECK(c.Sent<Prepare>(2).size() == 2);
    CHECK(c.Sent<Prepare>(2).back().view->generation > g);
  }
  CHECK(Revokes(c) == 0);
}

TEST_CASE("plan: nothing is prepared any more when the last step is done or all are to stop",
          "[membership]") {
  Options options = SmallOptions(2);
  options.total_steps = 1;
  Cluster c(options);
  c.Begin({1, 2});
  SECTION("the last step") {
    c.Join(3);
    c.Vote(1);
    c.SayPrepared(1);
    c.SayPrepared(2);
    c.SayPrepared(3, c.Newest());
    CHECK(Revokes(c) == 0);
  }
  SECTION("a stop") {
    c.Join(3);
    c.In(UserRequest{.id = 1, .kind = UserRequest::Kind::kStop, .reason = "Ctrl-C"});
    CHECK(c.core->phase() == Phase::kSurveying);
    c.Answer(1, c.Complete(0));
    c.Answer(2, c.Complete(0));
    CHECK(c.LastForm(1).purpose == Purpose::kStop);
  }
  CHECK(c.Members() == Ids{1, 2});
}

}  // namespace starling::membership::testing
