// The coordinator's core, message by message.
#include "starling/membership/coordinator_core.h"

#include <catch2/catch_test_macros.hpp>

#include "membership/cluster.h"

namespace starling::membership {
namespace {

using testing::Cluster;
using testing::SmallOptions;
using Phase = CoordinatorCore::Phase;
using Ids = std::vector<uint64_t>;

plan::IntervalSet Set(int64_t begin, int64_t end) { return plan::IntervalSet::Of({{begin, end}}); }

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
    if (send != nullptr && std::holds_alternative<Form>(send->message)) sent = std::min(sent, i);
  }
  CHECK(persisted < sent);
  CHECK(sent < c.all.size());
}

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
  Register m = next.Introduction(1);
  m.view =
      std::make_shared<View>(View{Generation(1), {Cluster::MemberOf(1), Cluster::MemberOf(2)}});
  m.state = behind;
  next.Join(m);
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
  Register m = c.Introduction(2);
  m.view = c.core->view();
  m.active = true;
  m.state = c.Complete(0, Set(6, 8));
  c.Join(m);
  CHECK(c.Sent<Revoke>(2).size() == 1);
  c.Answer(2, c.Complete(0, Set(6, 8)));
  CHECK(c.Members() == Ids{1, 2});
  CHECK(c.LastForm(2).claims[1] == Set(6, 8));
}

TEST_CASE("reset: reconnecting does not make the term grow", "[membership]") {
  Cluster c(SmallOptions(1));
  c.Begin({1});
  const Term term = c.Sent<Registered>(1).back().term;
  Register m = c.Introduction(1);
  m.view = c.core->view();
  m.active = true;
  m.state = c.Complete(0);
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
  Register m = c.Introduction(2);
  m.view = c.core->view();
  m.active = true;
  m.state = c.Complete(0);
  c.Join(m);
  c.In(FromWorker{old, CommFailed{c.core->view()->generation, "late", {}}});
  c.In(StreamClosed{old});
  CHECK(c.core->phase() == Phase::kRunning);
}

TEST_CASE("join: a newcomer copies the state and the others keep their claims", "[membership]") {
  Cluster c(SmallOptions(1));
  c.Begin({1});
  c.Vote(1);
  c.Join(2);
  REQUIRE(c.core->phase() == Phase::kSurveying);
  c.Answer(1, c.Complete(1, Set(0, 5)));
  CHECK(c.Members() == Ids{1, 2});
  const Form form = c.LastForm(2);
  CHECK(form.transfers == std::vector<Transfer>{{Rank(0), Rank(1)}});
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
    c.Answer(1, c.Complete(0));
    c.Answer(3, c.Complete(0));
    c.ReadyAll();
    REQUIRE(c.Members() == Ids{1, 3, next});
  }
}

TEST_CASE("join: a name that keeps dying is held off", "[membership]") {
  Cluster c(SmallOptions(3));
  KeepDying(c);
  CHECK(c.Told("held_off"));
  CHECK(c.Members() == Ids{1, 3});
  c.Advance(absl::Seconds(2));
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
  c.Answer(1, c.Complete(1));
  for (int attempt = 0; attempt < 2; ++attempt) {
    c.Say(1, ConnectFailed{c.core->view()->generation, {Incarnation(2)}, "timed out"});
    c.Answer(1, c.Complete(1));
    c.Answer(2, MemberState{});
  }
  CHECK(c.Members() == Ids{1});
  CHECK(c.LastForm(1).position == Position{Timeline(1), Step(1), Attempt(0)});
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
  Register m = c.Introduction(2);
  m.view = c.core->view();
  m.state = c.Complete(0, Set(6, 9));
  c.Join(m);
  REQUIRE(c.core->phase() == Phase::kSurveying);
  c.Answer(1, c.Complete(0, Set(0, 4)));
  c.Answer(2, c.Complete(0, Set(6, 9)));
  CHECK(c.LastForm(2).claims == std::vector{Set(0, 4), Set(6, 9)});
}

TEST_CASE("drain: the others go on, the leaver is released with 75", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  c.Say(2, DrainNotice{10'000, "SIGTERM"});
  c.Answer(1, c.Complete(0));
  c.Answer(2, c.Complete(0));
  CHECK(c.Members() == Ids{1});
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
  c.Answer(1, c.Complete(1));
  c.Say(2, DrainNotice{10'000, "preempted"});
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
  for (uint64_t id : {1, 2, 3}) c.Answer(id, c.Complete(0));
  CHECK(c.Members() == Ids{1, 2});
}

TEST_CASE("end: members leave when manifest, evaluation and ledger are complete", "[membership]") {
  Options options = SmallOptions(1);
  options.total_steps = 1;
  options.evaluation = true;
  Cluster c(options);
  c.Begin({1});
  c.Vote(1);
  const Version version{Timeline(1), Step(1)};
  CHECK(c.Out<WriteLedger>().size() == 1);
  c.Say(1, PartWritten{version, Generation(1), Rank(0), 1, true, "{}"});
  c.In(ManifestWritten{"step-1.t1", version, true, ""});
  CHECK(c.Sent<Release>(1).empty());
  c.Say(1, Evaluated{version, Generation(1), Rank(0), {.mlm_loss = 2, .masked = 1}});
  CHECK(c.Sent<Release>(1).back().exit_code == 0);
  CHECK(c.journal.done == version);
  c.Drop(1);
  CHECK(c.Out<Ended>().back().exit_code == 0);
}

TEST_CASE("end: after a restart parts and evaluations that are said again complete the run",
          "[membership]") {
  Options options = SmallOptions(1);
  options.total_steps = 1;
  options.evaluation = true;
  Cluster c(options);
  c.Begin({1});
  const VoteResult result = c.Decide(1);
  const LedgerLine line = c.LineOf(result);
  Cluster next(options, c.journal);
  Register m = next.Introduction(1);
  m.view = c.core->view();
  m.active = true;
  m.state = next.Complete(1);
  m.state.last_result = result;
  m.unsettled = {line};
  next.Join(m);
  CHECK(next.core->phase() == Phase::kRunning);
  CHECK(next.Out<WriteLedger>().size() == 1);
  const Version version{Timeline(1), Step(1)};
  next.Say(1, PartWritten{version, Generation(1), Rank(0), 1, true, "{}"});
  next.Say(1, Evaluated{version, Generation(1), Rank(0), {}});
  next.In(ManifestWritten{"step-1.t1", version, true, ""});
  CHECK(next.Sent<Release>(1).back().exit_code == 0);
}

TEST_CASE("end: a last checkpoint that cannot be written ends the run with 74", "[membership]") {
  Options options = SmallOptions(1);
  options.total_steps = 1;
  Cluster c(options);
  c.Begin({1});
  c.Vote(1);
  c.Say(1, PartWritten{{Timeline(1), Step(1)}, Generation(1), Rank(0), 1, false, "disk full"});
  CHECK(c.Told("checkpoint_failed"));
  CHECK(c.Sent<Release>(1).back().exit_code == 74);
}

TEST_CASE("ledger: a line is written when all members have reported its step", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  const VoteResult result = c.Decide(1);
  c.Say(1, Report{result, c.LineOf(result)});
  CHECK(c.Out<WriteLedger>().empty());
  c.Say(2, Report{result, std::nullopt});
  CHECK(c.Out<WriteLedger>().size() == 1);
  c.Say(2, Report{result, c.LineOf(result)});
  CHECK(c.Out<WriteLedger>().size() == 1);
  c.Beat(1);
  CHECK(c.Sent<Settled>(1).back().version == Version{Timeline(1), Step(1)});
}

TEST_CASE("ledger: lines of somebody who is no survivor do not count", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  const VoteResult lonely = c.Decide(1);
  c.In(ProcessDied{"host", 2, "killed"});
  c.Say(2, SurveyAnswer{Generation(1), c.Complete(1), {c.LineOf(lonely)}});
  c.Answer(1, c.Complete(0));
  c.ReadyAll();
  c.Vote(1);  // the survivor makes the step anew
  REQUIRE(c.Out<WriteLedger>().size() == 1);
  CHECK(c.Out<WriteLedger>()[0].line.generation == Generation(2));
}

TEST_CASE("ledger: a line waits for its digest, but not for ever", "[membership]") {
  Options options = SmallOptions(1);
  options.digest_every = 1;
  Cluster c(options);
  c.Begin({1});
  c.Vote(1);
  CHECK(c.Out<WriteLedger>().empty());
  VoteResult second = c.Decide(2);
  second.digests = {{1, 2, 3, 4}};
  c.Say(1, Report{second, c.LineOf(second)});
  REQUIRE(c.Out<WriteLedger>().size() == 1);
  CHECK(c.Out<WriteLedger>()[0].line.digest == Digest{1, 2, 3, 4});
  VoteResult third = c.Decide(3);  // without digests
  c.Say(1, Report{third, c.LineOf(third)});
  CHECK(c.Out<WriteLedger>().size() == 2);
}

TEST_CASE("digests: copies that differ are restored, naming the ranks", "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  VoteResult result = c.Decide(1);
  result.digests = {{1, 1, 1, 1}, {2, 2, 2, 2}};
  c.Say(1, Report{result, c.LineOf(result)});
  CHECK(c.Told("diverged"));
  for (uint64_t id : {1, 2}) c.Answer(id, c.Complete(1));
  CHECK(c.LastForm(1).position.timeline == Timeline(2));
}

TEST_CASE("restore: a silent member is waited for first, and its answer counts", "[membership]") {
  Cluster c(SmallOptions(1));
  c.Begin({1});
  c.Vote(1);
  c.Drop(1);
  c.Join(2);
  c.Advance(absl::Seconds(10));
  CHECK(c.core->phase() == Phase::kSurveying);
  Register m = c.Introduction(1);
  m.view = c.core->view();
  m.state = c.Complete(1);
  c.Join(m);
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
    Register m = next.Introduction(id);
    m.view = c.core->view();
    m.active = true;
    m.state = next.Complete(0);
    next.Join(m);
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
  Register m = next.Introduction(1);
  m.view = c.core->view();
  m.active = true;
  m.state = next.Complete(0);
  next.Join(m);
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
  Register zombie = next.Introduction(2);
  zombie.view = old;
  zombie.state = next.Complete(3);
  next.Join(zombie);
  CHECK(next.Sent<Refused>(2).back().exit_code == 76);
}

TEST_CASE("journal gone: a strict majority of the newest view is adopted, a minority is not",
          "[membership]") {
  const auto view = std::make_shared<View>(
      View{Generation(40), {Cluster::MemberOf(1), Cluster::MemberOf(2), Cluster::MemberOf(3)}});
  Cluster c(SmallOptions(3));
  const auto join = [&](uint64_t id) {
    Register m = c.Introduction(id);
    m.view = view;
    m.active = true;
    m.state = c.Complete(30);
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
    Register m = next.Introduction(id);
    m.view = view;
    m.active = true;
    m.state = next.Complete(70);
    next.Join(m);
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

TEST_CASE("checkpoints: a request is answered when its manifest is durable", "[membership]") {
  Cluster c(SmallOptions(1));
  c.Begin({1});
  c.In(UserRequest{.id = 5, .kind = UserRequest::Kind::kCheckpoint});
  CHECK(c.Sent<RequestCheckpoint>(1).size() == 1);
  c.Vote(1);
  const Version version{Timeline(1), Step(1)};
  c.Say(1, PartWritten{version, Generation(1), Rank(0), 1, true, "{}"});
  CHECK(c.Out<Reply>().empty());
  c.In(ManifestWritten{"step-1.t1", version, true, ""});
  REQUIRE(c.Out<Reply>().size() == 1);
  CHECK(c.Out<Reply>()[0].ok);
  CHECK(c.journal.checkpoints.back().folder == "step-1.t1");
}

TEST_CASE("configuration: a changed one is refused without --accept-config-change",
          "[membership]") {
  Cluster c(SmallOptions(1));
  Options changed = SmallOptions(1);
  changed.config_hash = 99;
  Cluster refused(changed, c.journal);
  REQUIRE(refused.Out<Ended>().size() == 1);
  CHECK(refused.Out<Ended>()[0].exit_code == 78);
  changed.accept_config_change = true;
  Cluster accepted(changed, c.journal);
  CHECK(accepted.Out<Ended>().empty());
  CHECK(accepted.journal.run->config_hash == 99);
}

}  // namespace starling::membership
