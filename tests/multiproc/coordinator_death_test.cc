// `starling coordinator` and `starling-worker`s as processes of their own: the coordinator is
// killed and comes back on another port, with its journal, without it, with a torn one, alone or
// together with a worker; nobody exits, no step is lost, no generation repeats. And a worker that
// was stopped for longer than the detection takes comes back fenced.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "multiproc/real_run.h"

namespace starling {
namespace {

using testing::RealRun;

constexpr int kSteps = 26;
constexpr char kShort[] = "elastic: {detection: 1s}\ncheckpoint: {every_steps: 5}\n";

const std::map<int64_t, double>& CalmLosses() {
  static const std::map<int64_t, double> losses = [] {
    RealRun calm(kSteps, "", kShort);
    calm.Start(3, {}, 0);
    REQUIRE(calm.WaitForExit() == 0);
    return calm.Losses();
  }();
  return losses;
}

void StartAll(RealRun& run, const std::string& coordinator_faults = "") {
  run.StartCoordinator(3, coordinator_faults);
  for (const char* name : {"w0", "w1", "w2"}) run.StartWorker(name);
}

void CheckBooks(const RealRun& run) {
  run.CheckLedger(kSteps, true);
  CHECK(run.Lines("ledger.jsonl").size() == kSteps);
  run.CheckSameCurve(CalmLosses(), true);
  CHECK(run.CountEvents("restore") == 0);
  uint64_t last = 0;
  for (const nlohmann::json& event : run.Lines("events.jsonl")) {
    if (event["event"] != "view") continue;
    INFO(event.dump());
    CHECK(event["generation"] > last);
    last = event["generation"];
  }
}

}  // namespace

TEST_CASE("B13: the coordinator dies and comes back after a second", "[multiproc]") {
  const std::string journal = GENERATE("kept", "torn", "lost");
  const bool worker_too = GENERATE(false, true);
  CAPTURE(journal, worker_too);
  CalmLosses();
  RealRun run(kSteps, "", kShort);
  StartAll(run);
  run.WaitForStep(6);
  run.KillCoordinator();
  const int64_t step = run.LastStep();
  if (worker_too) {
    run.SignalWorker("w1", SIGKILL);
    CHECK(run.WaitForWorker("w1") == 128 + SIGKILL);
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));  // it is away so long
  const std::string path = run.folder() + "/journal/journal.bin";
  if (journal == "lost") std::filesystem::remove(path);
  if (journal == "torn") std::filesystem::resize_file(path, std::filesystem::file_size(path) - 3);
  run.StartCoordinator(3);
  if (!worker_too) {
    // Meanwhile training went on.
    run.WaitForStep(step + 8);
  }
  CHECK(run.WaitForExit() == 0);
  for (const char* name : {"w0", "w2"}) CHECK(run.WaitForWorker(name) == 0);
  if (!worker_too) {
    CHECK(run.WaitForWorker("w1") == 0);
    CHECK(run.CountEvents("lost") == 0);
    CHECK(run.CountEvents("view") == (journal == "lost" ? 2 : 1));  // adopted, or unchanged
  }
  CheckBooks(run);
}

TEST_CASE("B13: the coordinator dies at a manifest", "[multiproc]") {
  CalmLosses();
  const std::string point = GENERATE("manifest", "manifest_written");
  CAPTURE(point);
  RealRun run(kSteps, "", kShort);
  StartAll(run, "kill@point=" + point);
  CHECK(run.WaitForExit() == 128 + SIGKILL);
  run.StartCoordinator(3);
  CHECK(run.WaitForExit() == 0);
  for (const char* name : {"w0", "w1", "w2"}) CHECK(run.WaitForWorker(name) == 0);
  CHECK(run.Checkpoints().contains(kSteps));
  CheckBooks(run);
}

TEST_CASE("B13: a second coordinator of the folder is refused and says who holds it",
          "[multiproc]") {
  RealRun run(kSteps);
  run.StartCoordinator(3);
  const testing::ProgramResult second =
      testing::RunProgram({STARLING_BINARY, "coordinator", "-c", run.config()});
  INFO(second.err);
  CHECK(second.exit_code == 73);
  CHECK(absl::StrContains(second.err, absl::StrCat("pid ", run.pid(), " on host ")));
}

TEST_CASE("B11: a worker that was stopped for longer than the detection is fenced", "[multiproc]") {
  CalmLosses();
  RealRun run(kSteps, "", kShort);
  StartAll(run);
  run.WaitForStep(6);
  run.SignalWorker("w1", SIGSTOP);
  run.WaitForEvent("lost");
  run.WaitForStep(run.LastStep() + 3);
  run.SignalWorker("w1", SIGCONT);
  CHECK(run.WaitForWorker("w1") == 76);
  CHECK(run.WaitForExit() == 0);
  for (const char* name : {"w0", "w2"}) CHECK(run.WaitForWorker(name) == 0);
  CheckBooks(run);
}

}  // namespace starling
