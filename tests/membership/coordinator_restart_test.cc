// The coordinator's core, message by message: restoring a checkpoint, restarts with a journal,
// without it and with an old one.
#include <catch2/catch_test_macros.hpp>

#include "membership/cluster.h"
#include "starling/membership/coordinator_core.h"

namespace starling::membership::testing {

TEST_CASE("restore: a silent member is waited for first, and its answer counts", "[membership]") {
  Cluster c(SmallOptions(1));
  c.Begin({1});
  c.Vote(1);
  c.Drop(1);
  c.Join(2);
  c.Advance(absl::Seconds(10));
  CHECK(c.core->phase() == Phase::kSurveying);
  c.Join(c.Returning(1, c.core->view(), c.Complete(1), false));
  CHECK(c.core->phase() == Phase::kSurveying);
  c.Answer(1, c.Complete(1));
  CHECK(c.Members() == Ids{1, 2});
  CHECK(c.LastForm(2).position == Position{Timeline(1), Step(1), Attempt(0)});
}

TEST_CASE("restore: from the newest good checkpoint of this history only", "[membership]") {
  Cluster c(SmallOptions(1));
  c.Begin({1});
  RestoredState state = c.journal;
  // Timeline 3 continues timeline 2 at step 20, which continues timeline 1 at step 10.
  state.forks = {{Timeline(2), {Timeline(1), Step(10)}}, {Timeline(3), {Timeline(2), Step(20)}}};
  state.form->position = {Timeline(3), Step(25), Attempt(0)};
  for (const auto& [t, s] :
       {std::pair(1, 10), std::pair(1, 15), std::pair(2, 18), std::pair(2, 30), std::pair(3, 22)}) {
    state.checkpoints.push_back(
        {absl::StrCat("step-", s, ".t", t), {Timeline(static_cast<uint64_t>(t)), Step(s)}, true});
  }
  const auto restored_from = [&](const std::set<std::string>& bad) {
    RestoredState with = state;
    with.bad_checkpoints = bad;
    Cluster next(SmallOptions(1), with);
    next.Join(102);
    next.In(ProcessDied{"host", 1, "killed"});
    next.Advance(absl::Minutes(1));
    return next.LastForm(102).restore->checkpoint;
  };
  CHECK(restored_from({}) == "step-22.t3");
  CHECK(restored_from({"step-22.t3"}) == "step-18.t2");
  CHECK(restored_from({"step-22.t3", "step-18.t2"}) == "step-10.t1");
}

TEST_CASE("restore: a checkpoint that cannot be read is journalled as bad and not chosen again",
          "[membership]") {
  RestoredState state;
  state.checkpoints = {{"step-5.t1", {Timeline(1), Step(5)}, true},
                       {"step-9.t1", {Timeline(1), Step(9)}, true}};
  Cluster c(SmallOptions(1), state);
  c.Join(1);
  REQUIRE(c.LastForm(1).restore->checkpoint == "step-9.t1");
  CHECK(c.LastForm(1).position.timeline == Timeline(2));
  c.Say(1, RestoreFailed{Generation(1), "step-9.t1", "wrong CRC32C"});
  c.Answer(1, MemberState{});
  CHECK(c.journal.bad_checkpoints.contains("step-9.t1"));
  CHECK(c.LastForm(1).restore->checkpoint == "step-5.t1");
  CHECK(c.LastForm(1).position == Position{Timeline(3), Step(5), Attempt(0)});
}

TEST_CASE("restore: when no checkpoint can be read the run ends with 65, not at step 0",
          "[membership]") {
  RestoredState state;
  state.checkpoints = {{"step-9.t1", {Timeline(1), Step(9)}, true}};
  Cluster c(SmallOptions(1), state);
  c.Join(1);
  c.Say(1, RestoreFailed{Generation(1), "step-9.t1", "wrong CRC32C"});
  c.Answer(1, MemberState{});
  const std::vector<Release> releases = c.Sent<Release>(1);
  REQUIRE(!releases.empty());
  CHECK(releases.back().exit_code == 65);
  CHECK(releases.back().reason.find("step-9.t1") != std::string::npos);
}

TEST_CASE("restart: when all members come back active, nothing changes", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  Cluster next(SmallOptions(2), c.journal);
  REQUIRE(next.core->phase() == Phase::kReconnecting);
  for (uint64_t id : {1, 2}) {
    next.Join(next.Returning(id, c.core->view(), next.Complete(0)));
  }
  CHECK(next.core->phase() == Phase::kRunning);
  CHECK(next.Out<Persist>().size() == 1);  // the new term
  CHECK(next.Sent<Revoke>(1).empty());
  CHECK(next.core->view()->generation == Generation(1));
}

TEST_CASE("restart: who stays away after the reconnect window is silent", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  Cluster next(SmallOptions(2), c.journal);
  next.Join(next.Returning(1, c.core->view(), next.Complete(0)));
  next.Advance(absl::Seconds(4));
  CHECK(next.core->phase() == Phase::kReconnecting);
  next.Advance(absl::Seconds(2));
  CHECK(next.core->phase() == Phase::kSurveying);
  next.Answer(1, next.Complete(0));
  CHECK(next.Members() == Ids{1});
  CHECK(next.core->view()->generation > Generation(1));
}

TEST_CASE("restart: a zombie of a view that was superseded is refused", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  const std::shared_ptr<const View> old = c.core->view();
  c.In(ProcessDied{"host", 2, "killed"});
  c.Answer(1, c.Complete(0));
  Cluster next(SmallOptions(2), c.journal);
  next.Join(next.Returning(2, old, next.Complete(3), false));
  CHECK(next.Sent<Refused>(2).back().exit_code == 76);
}

TEST_CASE("journal gone: a strict majority of the newest view is adopted, a minority is not",
          "[membership]") {
  const auto view = std::make_shared<View>(
      View{Generation(40), {Cluster::MemberOf(1), Cluster::MemberOf(2), Cluster::MemberOf(3)}});
  Cluster c(SmallOptions(3));
  const auto join = [&](uint64_t id) {
    Register m = c.Returning(id, view, c.Complete(30));
    m.highest_term = Term(5);
    c.Join(m);
  };
  join(1);
  c.Join(9);  // a newcomer must not start the run anew
  c.Advance(absl::Minutes(1));
  CHECK(c.core->phase() == Phase::kGathering);
  CHECK(c.Sent<Form>(9).empty());
  SECTION("majority") {
    join(2);
    REQUIRE(c.core->phase() == Phase::kSurveying);
  }
  SECTION("a person says --adopt") {
    c.In(UserRequest{.id = 1, .kind = UserRequest::Kind::kAdopt});
    REQUIRE(c.core->phase() == Phase::kSurveying);
  }
  for (const auto& [id, registration] : c.registrations) {
    if (id != 9) c.Answer(id, c.Complete(30));
  }
  c.Advance(absl::Seconds(1));
  CHECK(c.core->view()->generation > Generation(40));
  CHECK(c.LastForm(1).position == Position{Timeline(1), Step(30), Attempt(0)});
  CHECK(c.LastForm(1).term > Term(5));
}

TEST_CASE("journal stale: a newer view that members report wins over it", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  Cluster next(SmallOptions(2), c.journal);
  const auto view =
      std::make_shared<View>(View{Generation(90), {Cluster::MemberOf(1), Cluster::MemberOf(2)}});
  for (uint64_t id : {1, 2}) {
    next.Join(next.Returning(id, view, next.Complete(70)));
  }
  REQUIRE(next.core->phase() == Phase::kSurveying);
  CHECK(next.Sent<Revoke>(1).back().generation == Generation(90));
  for (uint64_t id : {1, 2}) next.Answer(id, next.Complete(70));
  CHECK(next.core->view()->generation > Generation(90));
}

TEST_CASE("generations: reserved numbers are not used again after a restart", "[membership]") {
  Cluster c(SmallOptions(1));
  c.Begin({1});
  const Generation reserved = c.journal.generations_up_to;
  Cluster next(SmallOptions(1), c.journal);
  next.Join(2);
  next.In(ProcessDied{"host", 1, "killed"});
  next.Advance(absl::Minutes(1));
  CHECK(next.core->view()->generation > reserved);
  CHECK(next.journal.generations_up_to >= next.core->view()->generation);
}

}  // namespace starling::membership::testing
