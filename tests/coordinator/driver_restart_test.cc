// The coordinator with real files, real gRPC and fake workers: restarts, a lost journal, damaged
// files and a failing disk.
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "coordinator/run_fixture.h"
#include "support/faulty_fs.h"

namespace starling::coordinator::testing {
namespace {

using membership::UserRequest;

TEST_CASE("driver: the coordinator dies and comes back, training knows nothing of it",
          "[coordinator]") {
  RunFixture run(ProtocolOptions(20, 2));
  run.network.AllowUpTo(4 * kMicroBatches + 3);
  run.StartDriver();
  run.AddWorker("w0");
  run.AddWorker("w1");
  REQUIRE(run.watch.AwaitStep(4));
  run.AbandonDriver();
  run.network.AllowUpTo(9 * kMicroBatches + 3);  // five steps without any coordinator
  run.network.AwaitUsedUp();
  run.StartDriver();
  REQUIRE(run.watch.AwaitEvent("resumed"));
  REQUIRE(run.watch.AwaitStep(9));
  const auto status = run.driver->GetStatus(kDeadline);
  REQUIRE(status.ok());
  CHECK(status->status.term == Term(2));
  CHECK(status->status.generation == Generation(1));
  CHECK(status->status.phase == "running");
  run.network.AllowUpTo(kNoLimit);
  run.AwaitEnd();
  run.CheckLedger(20);
  // Not one step is shown twice.
  std::set<int64_t> shown;
  for (const json& line : run.Lines("metrics.jsonl"))
    CHECK(shown.insert(line["step"].get<int64_t>()).second);
}

TEST_CASE("driver: all die, the next start goes on from the checkpoint on a new timeline",
          "[coordinator]") {
  RunFixture run(CheckpointingOptions(12));
  run.LoseAllAfterStep6();
  run.network.AllowUpTo(kNoLimit);
  run.StartDriver();
  for (const char* name : {"x0", "x1", "x2"}) run.AddWorker(name);
  run.AwaitEnd();
  std::map<int64_t, std::vector<int64_t>> steps;  // by timeline
  for (const json& line : run.Lines("ledger.jsonl")) {
    steps[line["timeline"]].push_back(line["step"]);
  }
  REQUIRE(steps.size() == 2);
  CHECK(steps.rbegin()->second.front() == 5);
  CHECK(steps.rbegin()->second.back() == 12);
  CHECK(run.workers["x0"]->weights() == run.workers["x2"]->weights());
  // Steps 1 … 12, once each, are in the weights, whatever the history.
  starling::testing::Weights expected(starling::testing::kFakeWeights, 0.0f);
  for (size_t i = 1; i <= 12; ++i) expected[i] = 1.0f;
  CHECK(run.workers["x0"]->weights() == expected);
}

TEST_CASE("driver: torn ends of journal and ledger, cut off, and the run goes on",
          "[coordinator]") {
  RunFixture run(ProtocolOptions(10, 1));
  run.network.AllowUpTo(4 * kMicroBatches);
  run.StartDriver();
  run.AddWorker("w0");
  REQUIRE(run.watch.AwaitStep(4));
  run.driver.reset();
  std::ofstream(run.path("ledger.jsonl"), std::ios::app) << R"({"timeline":1,"step":5,"gener)";
  std::ofstream(run.path("metrics.jsonl"), std::ios::app) << R"({"ti)";
  std::ofstream(run.path("journal/journal.bin"), std::ios::app) << std::string("\x40\0\0\0ab", 6);
  run.network.AllowUpTo(kNoLimit);
  run.StartDriver();
  run.AwaitEnd();
  run.CheckLedger(10);
}

TEST_CASE("driver: a damaged journal or ledger, an error that names it", "[coordinator]") {
  RunFixture run(ProtocolOptions(10, 1));
  run.network.AllowUpTo(2 * kMicroBatches);
  run.StartDriver();
  run.AddWorker("w0");
  REQUIRE(run.watch.AwaitStep(2));
  run.driver.reset();
  run.workers.clear();
  const std::string journal = *RealFs().Read(run.path("journal/journal.bin"));
  std::string flipped = journal;
  flipped[12] ^= 1;
  REQUIRE(WriteAtomically(RealFs(), run.path("journal/journal.bin"), flipped).ok());
  const auto bad = Driver::Start(run.Options());
  CHECK(ExitCodeFor(bad.status()) == ExitCode::kBadData);
  CHECK(std::string(bad.status().message()).find("journal.bin") != std::string::npos);
  REQUIRE(WriteAtomically(RealFs(), run.path("journal/journal.bin"), journal).ok());
  std::ofstream(run.path("ledger.jsonl"), std::ios::app) << "nonsense\n";
  CHECK(ExitCodeFor(Driver::Start(run.Options()).status()) == ExitCode::kBadData);
}

TEST_CASE("driver: the journal is lost while workers train, their majority is adopted",
          "[coordinator]") {
  RunFixture run(ProtocolOptions(20, 3));
  run.network.AllowUpTo(4 * kMicroBatches + 2);
  run.StartDriver();
  for (const char* name : {"w0", "w1", "w2"}) run.AddWorker(name);
  REQUIRE(run.watch.AwaitStep(4));
  run.AbandonDriver();
  REQUIRE(RealFs().Remove(run.path("journal/journal.bin")).ok());
  run.StartDriver();
  REQUIRE(run.watch.AwaitEvent("adopted"));
  REQUIRE(run.watch.AwaitEvent("view", 2));
  run.network.AllowUpTo(kNoLimit);
  run.AwaitEnd();
  run.CheckLedger(20);
  CHECK(run.workers["w0"]->weights() == run.workers["w1"]->weights());
}

TEST_CASE("driver: a journal lost on a later timeline, checkpoints of the older one stay",
          "[coordinator]") {
  RunFixture run(CheckpointingOptions(8));
  run.LoseAllAfterStep6();
  run.network.AllowUpTo(9 * kMicroBatches + 2);  // steps 5 and 6 once more, and 7
  run.StartDriver();
  run.AddWorker("x0");
  run.AddWorker("x1");
  REQUIRE(run.watch.AwaitStep(7));  // of timeline 2, which continues step 4 of timeline 1
  run.AbandonDriver();
  REQUIRE(RealFs().Remove(run.path("journal/journal.bin")).ok());
  run.StartDriver();
  REQUIRE(run.watch.AwaitEvent("adopted"));
  run.network.AllowUpTo(kNoLimit);
  run.AwaitEnd();
  for (const char* kept : {"step-4.t1", "step-4.t2", "step-8.t2"}) {
    INFO(kept);
    CHECK(checkpoint::Verify(run.path(absl::StrCat("checkpoints/", kept))).ok());
  }
}

TEST_CASE("driver: a disk that fails under the journal, ends with 74 and promises nothing",
          "[coordinator]") {
  RunFixture run(ProtocolOptions(20, 1));
  REQUIRE(RealFs().MakeDirectories(run.path("checkpoints")).ok());
  starling::testing::FaultyFs fs(run.path(""));
  DriverOptions options = run.Options();
  options.fs = &fs;
  run.network.AllowUpTo(0);
  run.StartDriver(options);
  run.AddWorker("w0");
  REQUIRE(run.watch.AwaitMembers(1));
  fs.FailAt(0, absl::ResourceExhaustedError("disk full"), true);
  const auto reply =
      run.Client().Ask({.kind = UserRequest::Kind::kResize, .target_workers = 2}, kDeadline);
  CHECK((!reply.ok() || !reply->ok));
  CHECK(run.watch.target() == 0);
  CHECK(run.driver->Wait().exit_code == static_cast<int>(ExitCode::kIoError));
  run.driver.reset();
  // The worker has noticed nothing; the next coordinator finds it training.
  run.StartDriver();
  REQUIRE(run.watch.AwaitEvent("resumed"));
  run.network.AllowUpTo(kNoLimit);
  run.AwaitEnd();
  run.CheckLedger(20);
}

}  // namespace
}  // namespace starling::coordinator::testing
