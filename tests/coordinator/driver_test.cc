// The coordinator with real files, real gRPC and fake workers: the life of a run, in which workers
// die and join.
#include <catch2/catch_test_macros.hpp>
#include <set>

#include "coordinator/run_fixture.h"

namespace starling::coordinator::testing {
namespace {

TEST_CASE("driver: three workers, one dies in the middle of a step, one joins, 20 steps whole",
          "[coordinator]") {
  RunFixture run(ProtocolOptions(20, 3));
  run.network.AllowUpTo(5 * kMicroBatches + 6);
  run.StartDriver();
  for (const char* name : {"w0", "w1", "w2"}) run.AddWorker(name);
  REQUIRE(run.watch.AwaitStep(5));
  run.network.AwaitUsedUp();  // in the middle of step 6
  run.Kill("w1");
  REQUIRE(run.watch.AwaitMembers(2));
  run.network.AllowUpTo(13 * kMicroBatches);  // what w1 had computed is computed again
  REQUIRE(run.watch.AwaitStep(11));
  run.network.AwaitUsedUp();
  run.AddWorker("w3");
  REQUIRE(run.watch.AwaitEvent("joined", 4));
  run.network.AllowUpTo(kNoLimit);
  run.AwaitEnd();
  for (auto& [name, worker] : run.workers) CHECK(worker->AwaitExit(kDeadline) == 0);
  run.CheckLedger(20);
  CHECK(run.workers["w0"]->weights() == run.workers["w2"]->weights());
  CHECK(run.workers["w0"]->weights() == run.workers["w3"]->weights());
  CHECK(run.watch.loss() == 3.0);

  const std::vector<json> metrics = run.Lines("metrics.jsonl");
  REQUIRE(metrics.size() == 20);
  CHECK(metrics[0]["loss"] == 3.0);
  CHECK(metrics[0]["mlm_loss"] == 2.0);
  CHECK(metrics[0]["lr"] == 0.5);
  CHECK(metrics[19]["step"] == 20);
  CHECK(metrics[19]["workers"] == 3);
  CHECK(metrics[19]["goodput"] <= 1.0);
  CHECK(metrics[19]["tokens_per_second"] > 0.0);
  std::set<std::string> seen;
  for (const json& event : run.Lines("events.jsonl")) {
    seen.insert(event["event"].get<std::string>());
    CHECK(event["term"] == 1);
    CHECK(event["mono_ns"] > 0);
  }
  for (const char* name : {"registered", "joined", "view", "lost", "checkpoint", "done"}) {
    INFO(name);
    CHECK(seen.contains(name));
  }
  // The final checkpoint is complete and says what it is.
  const auto checkpoint = checkpoint::OpenCheckpoint(run.path("checkpoints/step-20.t1"));
  REQUIRE(checkpoint.ok());
  CHECK(checkpoint->manifest().run_id == "test");
  CHECK(checkpoint->manifest().optimizer_steps == 20);
  CHECK(checkpoint->manifest().samples_consumed == 20 * kGlobalBatch);
  CHECK(checkpoint->manifest().data_hash == ToHex(uint64_t{7}));
  CHECK_FALSE(RealFs().Exists(run.path("endpoint")));
}

TEST_CASE("driver: down to one worker and up again, also the worker of rank 0 dies",
          "[coordinator]") {
  RunFixture run(ProtocolOptions(30, 3));
  run.network.AllowUpTo(3 * kMicroBatches + 5);
  run.StartDriver();
  for (const char* name : {"w0", "w1", "w2"}) run.AddWorker(name);
  REQUIRE(run.watch.AwaitStep(3));
  run.network.AwaitUsedUp();
  run.Kill("w0");
  run.Kill("w2");
  REQUIRE(run.watch.AwaitMembers(1));
  run.network.AllowUpTo(8 * kMicroBatches);
  REQUIRE(run.watch.AwaitStep(6));
  run.network.AwaitUsedUp();
  run.AddWorker("w3");
  run.AddWorker("w4");
  REQUIRE(run.watch.AwaitEvent("joined", 5));
  run.network.AllowUpTo(kNoLimit);
  run.AwaitEnd();
  run.CheckLedger(30);
  CHECK(run.workers["w1"]->weights() == run.workers["w4"]->weights());
}

}  // namespace
}  // namespace starling::coordinator::testing
