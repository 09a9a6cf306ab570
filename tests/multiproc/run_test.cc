// `starling run` with real processes: it trains, loses and gains workers, stops and goes on, and
// every step's books are right.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "multiproc/real_run.h"

namespace starling {
namespace {

using testing::ProgramResult;
using testing::RealRun;

std::filesystem::path PartOf(const std::filesystem::path& checkpoint) {
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    if (entry.path().extension() == ".safetensors") return entry.path();
  }
  FAIL("no part in " << checkpoint);
  return {};
}

// Changes one bit in the middle of a file.
void FlipByte(const std::filesystem::path& path) {
  std::string bytes = testing::ReadFile(path);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(path, std::ios::binary) << bytes;
}

}  // namespace

TEST_CASE("run: kills and joins leave the curve and the books as they would have been",
          "[multiproc]") {
  constexpr int kSteps = 100;
  RealRun calm(kSteps);
  calm.Start(3, {}, 0);
  CHECK(calm.WaitForExit() == 0);
  calm.CheckLedger(kSteps);
  CHECK(absl::StrContains(calm.said(), "done; step 100 of 100"));
  CHECK(calm.CountEvents("lost") == 0);

  RealRun run(kSteps);
  run.Start(3, {"--restart-delay", "never"});
  run.WaitForStep(4);
  run.KillRanks({2});
  run.WaitForMembers(2);
  CHECK(run.Ask({"resize", "3"}).exit_code == 0);
  run.WaitForMembers(3);
  run.KillRanks({0});
  run.WaitForMembers(2);
  CHECK(run.Ask({"resize", "3"}).exit_code == 0);
  run.WaitForMembers(3);
  run.KillRanks({0, 2});  // one is left
  run.WaitForMembers(1);
  CHECK(run.Ask({"resize", "3"}).exit_code == 0);
  run.WaitForMembers(3);
  CHECK(run.WaitForExit() == 0);
  run.CheckLedger(kSteps);
  CHECK(run.CountEvents("lost") == 4);
  CHECK(run.CountEvents("restore") == 0);
  run.CheckSameCurve(calm.Losses());

  // A finished run has nothing left to do.
  run.Start(3);
  CHECK(run.WaitForExit() == 0);
  CHECK(absl::StrContains(run.said(), "already complete"));
  run.CheckLedger(kSteps);
}

TEST_CASE("run: a dead worker is started again, a drained one is not", "[multiproc]") {
  RealRun run(100000);
  run.Start(3, {"--restart-delay", "50ms"});
  run.WaitForStep(2);
  run.KillRanks({1});
  run.WaitUntilSaid("killed by signal 9 (SIGKILL)");
  run.WaitUntilSaid("starts again in 50ms");
  nlohmann::json status = run.WaitForMembers(3);
  CHECK(status["target_workers"] == 3);

  const std::string name = status["workers"][1]["name"];
  ProgramResult result = run.Ask({"drain", name});
  CHECK(result.exit_code == 0);
  CHECK(result.out == "draining " + name + "\n");
  status = run.WaitForMembers(2);
  for (const nlohmann::json& worker : status["workers"]) {
    CHECK((worker["name"] != name || worker["state"] != "active"));  // shown until it has gone
  }
  CHECK(run.Ask({"drain", "nobody"}).exit_code == 64);
  CHECK(run.Ask({"resize", "1000"}).exit_code == 64);

  CHECK(run.Ask({"resize", "1"}).exit_code == 0);
  run.WaitForMembers(1);
  CHECK(run.Ask({"resize", "2"}).exit_code == 0);
  run.WaitForMembers(2);

  result = run.Ask({"checkpoint"});
  CHECK(result.exit_code == 0);
  CHECK(absl::StartsWith(result.out, "checkpoint step-"));
  CHECK(absl::StrContains(run.Ask({"events"}).out, "drained"));

  run.Signal(SIGINT);
  CHECK(run.WaitForExit() == 130);
  CHECK(run.Ask({"status"}).exit_code == 69);
}

TEST_CASE("run: stopped in order it goes on from the checkpoint it made", "[multiproc]") {
  RealRun run(30);
  run.Start(2);
  run.WaitForStep(5);
  run.Signal(SIGTERM);
  CHECK(run.WaitForExit() == 75);
  const int64_t stopped_at = run.LastStep();
  CHECK(absl::StrContains(run.said(), "checkpoints/step-" + std::to_string(stopped_at) + ".t"));

  run.Start(3, {}, 0);
  CHECK(run.WaitForExit() == 0);
  run.CheckLedger(30);
  // Nothing was computed twice.
  CHECK(run.Lines("ledger.jsonl").size() == 30);
}

TEST_CASE("run: a signal that comes when training is complete changes nothing", "[multiproc]") {
  RealRun run(3);
  run.Start(2, {}, 0);
  run.WaitUntilSaid("done: training is complete");
  run.Signal(SIGTERM);
  CHECK(run.WaitForExit() == 0);
  CHECK(absl::StrContains(run.said(), "done; step 3 of 3"));
}

TEST_CASE("run: a second Ctrl-C ends at once, also after another order to stop", "[multiproc]") {
  RealRun run(30);
  run.Start(1, {}, 600000);  // the stop waits for a micro-batch that takes ten minutes
  run.WaitUntilSaid("view: generation 1");
  run.Signal(SIGTERM);
  run.WaitUntilSaid("stopping: SIGTERM");
  run.Signal(SIGINT);
  run.WaitUntilSaid("stopping: checkpoint, then exit");
  run.Signal(SIGINT);
  CHECK(run.WaitForExit() == 130);
  CHECK(absl::StrContains(run.said(), "stopped at once"));
}

TEST_CASE("run: when everything was killed it goes on from the last checkpoint", "[multiproc]") {
  RealRun run(30, "", "checkpoint: {every_steps: 4}\n");
  run.Start(3);
  run.WaitForStep(10);
  run.KillEverything();
  run.Start(2, {}, 0);
  CHECK(run.WaitForExit() == 0);
  run.CheckLedger(30);
  CHECK(run.CountEvents("restore") == 1);
  CHECK_FALSE(absl::StrContains(run.said(), "starts from step 0"));
}

TEST_CASE("run: the last checkpoint waits for a disk that is behind", "[multiproc]") {
  RealRun run(8, "", "checkpoint: {every_steps: 1}\n");
  run.Start(2, {}, 0, "stall@point=part_written,ms=500");
  CHECK(run.WaitForExit() == 0);
  CHECK(run.Checkpoints().contains(8));
  CHECK(run.CountEvents("checkpoint_failed") > 0);
}

TEST_CASE("run: a damaged checkpoint is named, and training goes on from the one before it",
          "[multiproc]") {
  RealRun run(30, "", "checkpoint: {every_steps: 4}\n");
  run.Start(2);
  run.WaitUntilSaid("complete: step-8.t1");
  run.KillEverything();
  const std::map<int64_t, std::filesystem::path> checkpoints = run.Checkpoints();
  REQUIRE(checkpoints.size() >= 2);
  const std::filesystem::path folder = checkpoints.rbegin()->second, part = PartOf(folder);
  const int64_t before = std::prev(checkpoints.end(), 2)->first;
  FlipByte(part);

  run.Start(2, {}, 0);
  CHECK(run.WaitForExit() == 0);
  const std::string name = folder.filename().string();
  CHECK(absl::StrContains(run.said(), "checkpoint_bad"));
  CHECK(absl::StrContains(run.said(), name + ": " + part.string() + ": its checksum is wrong"));
  run.CheckLedger(30);
  CHECK(run.CountEvents("checkpoint_bad") == 1);
  const auto lines = run.Lines("ledger.jsonl");
  const auto restored = std::find_if(lines.begin(), lines.end(),
                                     [](const auto& line) { return line["timeline"] != 1; });
  REQUIRE(restored != lines.end());
  CHECK((*restored)["step"] == before + 1);
}

TEST_CASE("run: one folder, one coordinator, one meaning", "[multiproc]") {
  RealRun run(100000);
  run.Start(1);
  run.WaitForStep(1);
  const auto again = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {STARLING_BINARY, "run", "-c", run.config(), "-n", "1"};
    words.insert(words.end(), more.begin(), more.end());
    ProgramResult result = testing::RunProgram(words);
    UNSCOPED_INFO(result.err);
    return result;
  };
  CHECK(again({}).exit_code == 73);
  CHECK(again({"-n", "9999"}).exit_code == 64);
  const std::string endpoint = testing::ReadFile(run.folder() + "/endpoint");
  const std::string bind = endpoint.substr(0, endpoint.find('\n'));
  CHECK(again({"--set", "run.directory=" + run.folder() + "2", "--set", "coordinator.bind=" + bind})
            .exit_code == 71);
  run.KillEverything();
  const ProgramResult other = again({"--set", "run.seed=4"});
  CHECK(other.exit_code == 78);
  CHECK(absl::StrContains(other.err, "--accept-config-change"));
}

TEST_CASE("run: when no worker can start it says why and ends with that code", "[multiproc]") {
  RealRun run(30);
  // Nobody has this address: every worker fails in the same way.
  run.Start(2, {"--restart-delay", "10ms", "--set", "comm.bind_host=203.0.113.7"});
  const int exit_code = run.WaitForExit();
  CHECK(exit_code != 0);
  CHECK(exit_code < 128);
  CHECK(absl::StrContains(run.said(), "comm.bind_host"));
  CHECK(absl::StrContains(run.said(), "no worker is left"));
}

TEST_CASE("starling-worker: what is wrong is said before anything starts", "[multiproc]") {
  RealRun run(30);
  const auto worker = [&](std::vector<std::string> words, std::vector<std::string> environment) {
    words.insert(words.begin(), {STARLING_WORKER_BINARY, "train"});
    ProgramResult result = testing::RunProgram(words, environment);
    UNSCOPED_INFO(result.err);
    return result;
  };
  CHECK(worker({"--name", "w"}, {}).exit_code == 64);
  CHECK(worker({"--name", "two\nlines", "-c", run.config()}, {}).exit_code == 64);
  CHECK(worker({"--name", std::string(201, 'n'), "-c", run.config()}, {}).exit_code == 64);
  CHECK(worker({"--name", "w", "-c", run.config() + "x"}, {}).exit_code == 66);
  // Its launcher died before it could ask to be told of that.
  CHECK(worker({"--name", "w", "-c", run.config(), "--parent", "1"}, {}).exit_code == 69);
  CHECK(worker({"--name", "w", "-c", run.config()}, {"STARLING_FAULT=melt"}).exit_code == 64);
  CHECK(worker({"--name", "w", "-c", run.config(), "--set", "data.tokenizer=", "--set",
                "data.train=[]", "--set", "model.vocab_size=50"},
               {})
            .exit_code == 78);
  const std::string bad = run.folder() + ".tokens";
  std::string bytes = testing::ReadFile(testing::TheSmallData().tokens);
  std::ofstream(bad, std::ios::binary) << bytes.substr(0, bytes.size() - 9);
  const ProgramResult result =
      worker({"--name", "w", "-c", run.config(), "--set", "data.train=[" + bad + "]"}, {});
  CHECK(result.exit_code == 65);
  CHECK(absl::StrContains(result.err, "data.train: token file " + bad));
}

}  // namespace starling
