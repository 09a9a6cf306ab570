// The coordinator's core, message by message: start, newcomers and their refusal, waiting for
// members, resize.
#include <catch2/catch_test_macros.hpp>

#include "membership/cluster.h"
#include "starling/membership/coordinator_core.h"

namespace starling::membership::testing {
namespace {

// Worker 2 of a run of {1, 2, 3} dies and comes back five times; the last life has just registered.
Incarnation KeepDying(Cluster& c) {
  c.Begin({1, 2, 3});
  for (uint64_t life = 1;; ++life) {
    const uint64_t id = (life - 1) * 100 + 2, next = life * 100 + 2;
    c.In(ProcessDied{"host", static_cast<int64_t>(id), "killed"});
    c.Answer(1, c.Complete(0));
    c.Answer(3, c.Complete(0));
    c.ReadyAll();
    c.Join(next);
    if (life == 5) return Incarnation(next);
    c.PrepareAll();
    c.Answer(1, c.Complete(0));
    c.Answer(3, c.Complete(0));
    c.ReadyAll();
    REQUIRE(c.Members() == Ids{1, 3, next});
  }
}

}  // namespace

TEST_CASE("start: the first view forms when the expected number is there", "[membership]") {
  Cluster c(SmallOptions(3));
  c.Join(1);
  c.Join(2);
  CHECK(c.core->phase() == Phase::kGathering);
  c.Join(3);
  REQUIRE(c.core->phase() == Phase::kForming);
  CHECK(c.Members() == Ids{1, 2, 3});
  const Form form = c.LastForm(2);
  CHECK(form.from_seed);
  CHECK(form.position == Position{Timeline(1), Step(0), Attempt(0)});
  CHECK(form.assignment[1] == Set(4, 8));
  CHECK_FALSE(form.secret.empty());
  c.ReadyAll();
  CHECK(c.core->phase() == Phase::kRunning);
  CHECK(c.Sent<Activate>(1).size() == 1);
}

TEST_CASE("start: without the missing ones after gather_after, when there are enough",
          "[membership]") {
  Options options = SmallOptions(3);
  options.min_workers = 2;
  Cluster c(options);
  c.Join(1);
  c.Advance(absl::Seconds(6));
  CHECK(c.core->phase() == Phase::kGathering);
  c.Join(2);
  CHECK(c.core->phase() == Phase::kForming);
  CHECK(c.Members() == Ids{1, 2});
}

TEST_CASE("start: the view is journalled before anybody is told of it", "[membership]") {
  Cluster c(SmallOptions(1));
  c.Join(1);
  size_t persisted = c.all.size(), sent = c.all.size();
  for (size_t i = 0; i < c.all.size(); ++i) {
    const auto* persist = std::get_if<Persist>(&c.all[i]);
    if (persist != nullptr && std::holds_alternative<FormRecord>(persist->record)) persisted = i;
    const auto* send = std::get_if<SendToWorker>(&c.all[i]);
    if (send != nullptr && std::holds_alternative<Form>(*send->message)) sent = std::min(sent, i);
  }
  CHECK(persisted < sent);
  CHECK(sent < c.all.size());
}

TEST_CASE("join: a newcomer copies the state and the others keep their claims", "[membership]") {
  Cluster c(SmallOptions(1));
  c.Begin({1});
  c.Vote(1);
  c.Join(2);
  CHECK(c.core->phase() == Phase::kRunning);
  CHECK(c.Sent<Prepare>(2).back().transfers == std::vector<Transfer>{{Rank(0), Rank(1)}});
  c.PrepareAll();
  REQUIRE(c.core->phase() == Phase::kSurveying);
  c.Answer(1, c.Complete(1, Set(0, 5)));
  CHECK(c.Members() == Ids{1, 2});
  const Form form = c.LastForm(2);
  CHECK(form.claims[0] == Set(0, 5));
  CHECK(form.position.step == Step(1));
}

TEST_CASE("join: above max_workers a newcomer is a spare until there is room", "[membership]") {
  Options options = SmallOptions(2);
  options.max_workers = 2;
  Cluster c(options);
  c.Begin({1, 2});
  c.Join(3);
  c.Advance(absl::Seconds(2));
  CHECK(c.core->phase() == Phase::kRunning);
  CHECK(c.core->GetStatus(c.now).workers.back().state == "spare");
  c.In(ProcessDied{"host", 2, "killed"});
  c.Answer(1, c.Complete(0));
  CHECK(c.Members() == Ids{1, 3});
}

TEST_CASE("join: what does not belong here is refused with its exit code", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Join(1);
  Register config = c.Introduction(2), data = config, numerics = config, protocol = config,
           run = config;
  config.config_hash = 99;
  data.data_hash = 99;
  numerics.numerics_version = "n2";
  protocol.protocol_version = 99;
  run.run_id = "other";
  for (const auto& [message, code] :
       {std::pair(config, 78), std::pair(data, 78), std::pair(run, 78), std::pair(numerics, 76),
        std::pair(protocol, 76)}) {
    c.Join(message);
    CHECK(c.Sent<Refused>(2).back().exit_code == code);
    CHECK_FALSE(c.Sent<Refused>(2).back().reason.empty());
  }
  CHECK(c.Sent<Refused>(2).size() == 5);
  CHECK(c.core->phase() == Phase::kGathering);
}

TEST_CASE("join: a name has one life, the newer one", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  c.Join(102);  // the same name w2
  CHECK(c.Sent<Release>(2).back().exit_code == 76);
  c.Answer(1, c.Complete(0));
  CHECK(c.Members() == Ids{1, 102});
  Register again = c.Introduction(2);
  c.Join(again);
  CHECK(c.Sent<Refused>(2).back().exit_code == 76);  // I6
}

TEST_CASE("join: a name that keeps dying is held off", "[membership]") {
  Cluster c(SmallOptions(3));
  KeepDying(c);
  CHECK(c.Told("held_off"));
  CHECK(c.Members() == Ids{1, 3});
  CHECK(c.core->phase() == Phase::kRunning);
  c.Advance(absl::Seconds(2));
  c.PrepareAll();
  CHECK(c.core->phase() == Phase::kSurveying);  // its time is over: it joins
}

TEST_CASE("join: a run that has lost half of its workers takes a held-off one too",
          "[membership]") {
  Cluster c(SmallOptions(3));
  const Incarnation held = KeepDying(c);
  REQUIRE(c.Members() == Ids{1, 3});
  c.In(ProcessDied{"host", 3, "killed"});  // one of three is left
  c.Answer(1, c.Complete(0));
  CHECK(c.Members() == Ids{1, held.value()});
}

TEST_CASE("join: a run that waits for workers takes a held-off one too", "[membership]") {
  Cluster c(SmallOptions(3));
  const Incarnation held = KeepDying(c);
  c.In(ProcessDied{"host", 1, "killed"});
  c.In(ProcessDied{"host", 3, "killed"});  // nobody is left
  c.Advance(SmallOptions(3).gather_after);
  CHECK(c.Members() == Ids{held.value()});
}

TEST_CASE("gathering: below min_workers the survivors keep what they have accumulated",
          "[membership]") {
  Options options = SmallOptions(2);
  options.min_workers = 2;
  Cluster c(options);
  c.Begin({1, 2});
  c.In(ProcessDied{"host", 2, "killed"});
  c.Answer(1, c.Complete(0, Set(0, 4)));
  REQUIRE(c.core->phase() == Phase::kGathering);
  c.Advance(absl::Minutes(5));
  c.Join(3);
  CHECK(c.Members() == Ids{1, 3});
  CHECK(c.LastForm(1).claims[0] == Set(0, 4));
}

TEST_CASE("gathering: a silent member that comes back makes one more", "[membership]") {
  Options options = SmallOptions(2);
  options.min_workers = 2;
  Cluster c(options);
  c.Begin({1, 2});
  c.Drop(2);
  c.Answer(1, c.Complete(0, Set(0, 4)));
  c.Advance(absl::Seconds(1));
  REQUIRE(c.core->phase() == Phase::kGathering);
  c.Join(c.Returning(2, c.core->view(), c.Complete(0, Set(6, 9)), false));
  REQUIRE(c.core->phase() == Phase::kSurveying);
  c.Answer(1, c.Complete(0, Set(0, 4)));
  c.Answer(2, c.Complete(0, Set(6, 9)));
  CHECK(c.LastForm(2).claims == std::vector{Set(0, 4), Set(6, 9)});
}

TEST_CASE("resize: outside min … max is refused, below drains the newest", "[membership]") {
  Options options = SmallOptions(3);
  options.min_workers = 1;
  Cluster c(options);
  c.Begin({1, 2, 3});
  c.In(UserRequest{.id = 7, .kind = UserRequest::Kind::kResize, .target_workers = 9});
  CHECK_FALSE(c.Out<Reply>().back().ok);
  c.In(UserRequest{.id = 8, .kind = UserRequest::Kind::kResize, .target_workers = 2});
  CHECK(c.Out<Reply>().back().ok);
  CHECK(c.Out<TargetChanged>().back().target_workers == 2);
  CHECK(c.journal.target_workers == 2);
  c.PrepareAll();
  for (uint64_t id : {1, 2, 3}) c.Answer(id, c.Complete(0));
  CHECK(c.Members() == Ids{1, 2});
}

}  // namespace starling::membership::testing
