// The coordinator's core, message by message: members that die, break their stream, fall silent,
// stand still, cannot be reached or leave.
#include <catch2/catch_test_macros.hpp>

#include "membership/cluster.h"
#include "starling/membership/coordinator_core.h"

namespace starling::membership::testing {

TEST_CASE("loss: survivors keep their claims, only the lost work is assigned", "[membership]") {
  Cluster c(SmallOptions(3));
  c.Begin({1, 2, 3});
  c.Drop(3);
  REQUIRE(c.core->phase() == Phase::kSurveying);
  CHECK(c.Sent<Revoke>(1).size() == 1);
  c.Answer(1, c.Complete(0, Set(0, 3)));
  c.Answer(2, c.Complete(0, Set(4, 8)));
  CHECK(c.core->phase() == Phase::kSurveying);  // 3 has its grace to reconnect
  c.Advance(absl::Milliseconds(200));
  REQUIRE(c.core->phase() == Phase::kForming);
  CHECK(c.Members() == Ids{1, 2});
  const Form form = c.LastForm(1);
  CHECK(form.claims == std::vector{Set(0, 3), Set(4, 8)});
  plan::IntervalSet assigned = form.assignment[0];
  CHECK_FALSE(assigned.Intersects(form.assignment[1]));
  assigned.Add(form.assignment[1]);
  CHECK(assigned == plan::IntervalSet::Of({{3, 4}, {8, 12}}));
  CHECK(form.transfers.empty());  // no copy stands between a loss and the next step
  CHECK(c.Told("lost"));
}

TEST_CASE("loss: a process that is known to be dead is not waited for", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  c.In(ProcessDied{"host", 2, "killed by signal 9"});
  CHECK(c.core->phase() == Phase::kSurveying);
  c.Answer(1, c.Complete(0));
  CHECK(c.core->phase() == Phase::kForming);
  CHECK(c.Members() == Ids{1});
}

TEST_CASE("loss: why the stream ended, is the reason shown", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  c.In(StreamClosed{c.registrations.at(2), "it did not read"});
  c.Answer(1, c.Complete(0));
  c.Advance(absl::Milliseconds(200));
  const std::vector<Event> events = c.Out<Event>();
  const auto lost = std::find_if(events.begin(), events.end(),
                                 [](const Event& event) { return event.event == "lost"; });
  REQUIRE(lost != events.end());
  CHECK(lost->reason == "it did not read");
}

TEST_CASE("loss: a vote that only the lost member reported is rolled forward", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  const VoteResult result = c.Decide(1);
  c.Say(2, Report{result, std::nullopt});
  c.Drop(2);
  MemberState behind = c.Complete(0, Set(0, 6));
  behind.has_reduced = true;
  c.Answer(1, behind);
  c.Advance(absl::Milliseconds(200));
  const Form form = c.LastForm(1);
  CHECK(form.position.step == Step(1));
  CHECK(form.result == result);
  CHECK(form.claims[0].empty());
  CHECK(c.journal.form->result == result);  // its only other witness may be this journal
}

TEST_CASE("loss: after a coordinator's restart the journalled result is still a witness",
          "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  const VoteResult result = c.Decide(1);
  c.Say(2, Report{result, c.LineOf(result)});
  c.Drop(2);
  MemberState behind = c.Complete(0, Set(0, 6));
  behind.has_reduced = true;
  c.Answer(1, behind);
  c.Advance(absl::Milliseconds(200));
  REQUIRE(c.Out<WriteLedger>().size() == 1);
  // The Form was journalled and never arrived.
  Cluster next(SmallOptions(2), c.journal);
  next.Join(next.Returning(
      1, std::make_shared<View>(View{Generation(1), {Cluster::MemberOf(1), Cluster::MemberOf(2)}}),
      behind, false));
  REQUIRE(next.core->phase() == Phase::kSurveying);
  next.Answer(1, behind);
  CHECK(next.LastForm(1).position.step == Step(1));
  CHECK(next.LastForm(1).result == result);
}

TEST_CASE("reset: a member that reconnects within its grace stays", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  c.Drop(2);
  c.Answer(1, c.Complete(0));
  c.Join(c.Returning(2, c.core->view(), c.Complete(0, Set(6, 8))));
  CHECK(c.Sent<Revoke>(2).size() == 1);
  c.Answer(2, c.Complete(0, Set(6, 8)));
  CHECK(c.Members() == Ids{1, 2});
  CHECK(c.LastForm(2).claims[1] == Set(6, 8));
}

TEST_CASE("reset: reconnecting does not make the term grow", "[membership]") {
  Cluster c(SmallOptions(1));
  c.Begin({1});
  const Term term = c.Sent<Registered>(1).back().term;
  Register m = c.Returning(1, c.core->view(), c.Complete(0));
  m.highest_term = term;
  c.Join(m);
  CHECK(c.Sent<Registered>(1).back().term == term);
  CHECK(c.Sent<Registered>(1).back().expects_activity);
  CHECK(c.core->phase() == Phase::kRunning);
  m.highest_term = Term(9);  // a coordinator that this journal does not know
  c.Join(m);
  CHECK(c.Sent<Registered>(1).back().term == Term(10));
}

TEST_CASE("reset: messages of an older registration are dropped", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  const Registration old = c.registrations.at(2);
  c.Join(c.Returning(2, c.core->view(), c.Complete(0)));
  c.In(FromWorker{old, CommFailed{c.core->view()->generation, "late", {}}});
  c.In(StreamClosed{old});
  CHECK(c.core->phase() == Phase::kRunning);
}

TEST_CASE("silence: a member that says nothing for `detection` is lost", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  c.beating = false;
  for (int i = 0; i < 4; ++i) {
    c.Advance(absl::Seconds(1));
    c.Beat(1);
  }
  REQUIRE(c.core->phase() == Phase::kSurveying);
  c.Answer(1, c.Complete(0));
  CHECK(c.Members() == Ids{1});
}

TEST_CASE("silence: the coordinator's own pause is nobody's silence", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  c.Advance(absl::Seconds(2));
  c.now += absl::Seconds(20);  // stopped, and its inputs with it
  c.In(Wake{});
  CHECK(c.core->phase() == Phase::kRunning);
  c.Beat(1);
  c.Beat(2);
  c.Advance(absl::Seconds(2));
  CHECK(c.core->phase() == Phase::kRunning);
}

TEST_CASE("stuck: a member whose counter stands still while others wait is dropped",
          "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  c.beating = false;
  for (int i = 0; i < 33 && c.core->phase() == Phase::kRunning; ++i) {
    c.Advance(absl::Seconds(1));
    c.Beat(1, true);
    c.Beat(2, false, 7);
  }
  REQUIRE(c.core->phase() == Phase::kSurveying);
  c.Answer(1, c.Complete(0));
  CHECK(c.Members() == Ids{1});
}

TEST_CASE("collectives: a failed one ends its generation with the same members", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  c.Say(1, CommFailed{Generation(1), "reset", {Incarnation(2)}});
  CHECK(c.core->phase() == Phase::kSurveying);
  c.Answer(1, c.Complete(0));
  c.Answer(2, c.Complete(0));
  CHECK(c.Members() == Ids{1, 2});
  CHECK(c.core->view()->generation == Generation(2));
}

TEST_CASE("connecting: the second failure drops whom fewer can reach", "[membership]") {
  Cluster c(SmallOptions(3));
  for (uint64_t id : {1, 2, 3}) c.Join(id);
  // 1 is the oldest, and both others fail to reach it.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Generation g = c.core->view()->generation;
    CHECK(c.Members() == Ids{1, 2, 3});
    c.Say(2, ConnectFailed{g, {Incarnation(1)}, "timed out"});
    c.Say(3, ConnectFailed{g, {Incarnation(1)}, "timed out"});
    for (uint64_t id : {1, 2, 3}) c.Answer(id, c.Complete(0));
  }
  CHECK(c.Members() == Ids{2, 3});
  CHECK(c.Told("lost"));
}

TEST_CASE("connecting: the only copy of the state is never the one that is dropped",
          "[membership]") {
  Cluster c(SmallOptions(1));
  c.Begin({1});
  c.Vote(1);
  c.Join(2);
  c.PrepareAll();
  c.Answer(1, c.Complete(1));
  REQUIRE(c.Members() == Ids{1, 2});
  for (int attempt = 0; attempt < 2; ++attempt) {
    c.Say(1, ConnectFailed{c.core->view()->generation, {Incarnation(2)}, "timed out"});
    c.Answer(1, c.Complete(1));
    c.Answer(2, MemberState{});
  }
  CHECK(c.Members() == Ids{1});
  CHECK(c.LastForm(1).position == Position{Timeline(1), Step(1), Attempt(0)});
}

TEST_CASE("drain: the others go on, the leaver is released with 75", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  c.Say(2, DrainNotice{10'000, "SIGTERM"});
  c.PrepareAll();
  c.Answer(1, c.Complete(0));
  c.Answer(2, c.Complete(0));
  REQUIRE(c.Members() == Ids{1});
  CHECK(c.Sent<Release>(2).back().exit_code == 75);
  CHECK(c.journal.draining.contains(Incarnation(2)));
}

TEST_CASE("drain: the only copy stays until a newcomer has one", "[membership]") {
  Cluster c(SmallOptions(1));
  c.Begin({1});
  c.Vote(1);
  c.Join(2);
  c.Say(1, DrainNotice{10'000, "SIGTERM"});
  c.Answer(1, c.Complete(1));
  REQUIRE(c.Members() == Ids{1, 2});
  c.ReadyAll();
  c.PrepareAll();
  REQUIRE(c.core->phase() == Phase::kSurveying);
  c.Answer(1, c.Complete(1));
  c.Answer(2, c.Complete(1));
  CHECK(c.Members() == Ids{2});
  CHECK(c.Sent<Release>(1).back().exit_code == 75);
}

TEST_CASE("drain: when everybody leaves, the version is checkpointed and all exit 75",
          "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  c.Vote(1);
  c.Say(1, DrainNotice{10'000, "preempted"});
  c.Say(2, DrainNotice{10'000, "preempted"});
  c.Answer(1, c.Complete(1));
  c.Answer(2, c.Complete(1));
  REQUIRE(c.LastForm(1).purpose == Purpose::kStop);
  CHECK(c.Members() == Ids{1, 2});
  c.ReadyAll();
  const Generation g = c.core->view()->generation;
  const Version version{Timeline(1), Step(1)};
  c.Say(1, PartWritten{version, g, Rank(0), 1, true, "{0}"});
  CHECK(c.Out<WriteManifest>().empty());
  c.Say(2, PartWritten{version, g, Rank(1), 1, true, "{1}"});
  REQUIRE(c.Out<WriteManifest>().size() == 1);
  CHECK(c.Out<WriteManifest>()[0].parts == std::vector<std::string>{"{0}", "{1}"});
  CHECK(c.Sent<Release>(1).empty());
  CHECK(c.Out<WriteManifest>()[0].version == version);
  c.In(ManifestWritten{"step-1.t1", version, true, ""});
  CHECK(c.Sent<Release>(1).back().exit_code == 75);
  CHECK(c.Sent<Release>(2).back().exit_code == 75);
  c.Drop(1);
  c.Drop(2);
  REQUIRE(c.Out<Ended>().size() == 1);
  CHECK(c.Out<Ended>()[0].exit_code == 75);
  CHECK(c.core->view()->generation == g);  // nobody forms a view while all leave
}

}  // namespace starling::membership::testing
