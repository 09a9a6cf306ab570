// The coordinator's core, message by message: the ledger, digests, checkpoints and the end of a
// run.
#include <catch2/catch_test_macros.hpp>

#include "membership/cluster.h"
#include "starling/membership/coordinator_core.h"

namespace starling::membership::testing {
namespace {

constexpr Version kFirst{Timeline(1), Step(1)};

// Of the first view.
PartWritten PartOfFirst(int32_t rank) { return {kFirst, Generation(1), Rank(rank), 1, true, "{}"}; }

// A run of one step by one worker, with an evaluation.
Options OneStep() {
  Options options = SmallOptions(1);
  options.total_steps = 1;
  options.evaluation = true;
  return options;
}

// Its step is made, its ledger line written and its checkpoint durable: the evaluation is due.
void TrainOneStep(Cluster& c) {
  c.Begin({1});
  c.Vote(1);
  CHECK(c.Out<WriteLedger>().size() == 1);
  c.Say(1, PartOfFirst(0));
  c.In(ManifestWritten{"step-1.t1", kFirst, true, ""});
}

}  // namespace

TEST_CASE("end: members leave when manifest, evaluation and ledger are complete", "[membership]") {
  Cluster c(OneStep());
  TrainOneStep(c);
  CHECK(c.Sent<Release>(1).empty());
  c.Say(1, Evaluated{kFirst, Generation(1), Rank(0), {.mlm_loss = 2, .masked = 1}});
  CHECK(c.Sent<Release>(1).back().exit_code == 0);
  CHECK(c.journal.done == kFirst);
  c.Drop(1);
  CHECK(c.Out<Ended>().back().exit_code == 0);
}

TEST_CASE("end: a stop during the last evaluation leaves it to the next start", "[membership]") {
  Cluster c(OneStep());
  TrainOneStep(c);
  c.In(UserRequest{.id = 7, .kind = UserRequest::Kind::kStop, .reason = "Ctrl-C"});
  c.Answer(1, c.Complete(1));
  REQUIRE(c.LastForm(1).purpose == Purpose::kStop);
  c.ReadyAll();
  CHECK(c.Sent<Release>(1).back().exit_code == 75);
  CHECK_FALSE(c.journal.done.has_value());
}

TEST_CASE("end: after a restart parts and evaluations that are said again complete the run",
          "[membership]") {
  Cluster c(OneStep());
  c.Begin({1});
  const VoteResult result = c.Decide(1);
  const LedgerLine line = c.LineOf(result);
  Cluster next(OneStep(), c.journal);
  Register m = next.Returning(1, c.core->view(), next.Complete(1));
  m.state.last_result = result;
  m.unsettled = {line};
  next.Join(m);
  CHECK(next.core->phase() == Phase::kRunning);
  CHECK(next.Out<WriteLedger>().size() == 1);
  next.Say(1, PartOfFirst(0));
  next.Say(1, Evaluated{kFirst, Generation(1), Rank(0), {}});
  next.In(ManifestWritten{"step-1.t1", kFirst, true, ""});
  CHECK(next.Sent<Release>(1).back().exit_code == 0);
}

TEST_CASE("end: a last checkpoint that cannot be written ends the run with 74", "[membership]") {
  Options options = SmallOptions(1);
  options.total_steps = 1;
  Cluster c(options);
  c.Begin({1});
  c.Vote(1);
  c.Say(1, PartWritten{kFirst, Generation(1), Rank(0), 1, false, "disk full"});
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
  CHECK(c.Sent<Settled>(1).back().version == kFirst);
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

TEST_CASE("checkpoints: a request is answered when its manifest is durable", "[membership]") {
  Cluster c(SmallOptions(1));
  c.Begin({1});
  c.In(UserRequest{.id = 5, .kind = UserRequest::Kind::kCheckpoint});
  CHECK(c.Sent<RequestCheckpoint>(1).size() == 1);
  c.Vote(1);
  c.Say(1, PartOfFirst(0));
  CHECK(c.Out<Reply>().empty());
  c.In(ManifestWritten{"step-1.t1", kFirst, true, ""});
  REQUIRE(c.Out<Reply>().size() == 1);
  CHECK(c.Out<Reply>()[0].ok);
  CHECK(c.journal.checkpoints.back().folder == "step-1.t1");
}

TEST_CASE("checkpoints: one of a step that a restore undid fails, though all its parts are there",
          "[membership]") {
  Cluster c(SmallOptions(2));
  c.Begin({1, 2});
  for (int32_t rank : {0, 1}) {  // its ledger line is still on its way
    c.Say(static_cast<uint64_t>(rank) + 1, Report{c.Decide(1), std::nullopt});
    c.Say(static_cast<uint64_t>(rank) + 1, PartOfFirst(rank));
  }
  for (int64_t pid : {1, 2}) c.In(ProcessDied{"host", pid, "killed"});
  c.Join(3);
  c.Join(4);
  REQUIRE(c.LastForm(3).position == Position{Timeline(2), Step(0), Attempt(0)});
  c.ReadyAll();
  c.Vote(1, 2);
  CHECK(c.Count("checkpoint_failed") == 1);
  CHECK(c.Out<WriteManifest>().empty());
}

}  // namespace starling::membership::testing
