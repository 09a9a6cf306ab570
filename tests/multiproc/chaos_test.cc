// `starling chaos` on real runs: it acts, says so in the events, and reports; the books stay right.
#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "multiproc/real_run.h"

namespace starling {
namespace {

using testing::ProgramResult;
using testing::RealRun;

constexpr char kShort[] = "elastic: {detection: 1s}\n";

// Kind and worker of what chaos did.
std::vector<std::string> ChaosEvents(const RealRun& run) {
  std::vector<std::string> reasons;
  for (const nlohmann::json& event : run.Lines("events.jsonl")) {
    if (event["event"] == "chaos") reasons.push_back(event["reason"]);
  }
  return reasons;
}

}  // namespace

TEST_CASE("chaos: workers are killed, stopped, drained and joined, and no step is damaged",
          "[multiproc]") {
  RealRun run(100000, "", kShort);
  run.Start(3, {"--restart-delay", "100ms"});
  run.WaitForStep(3);
  const ProgramResult chaos = run.Ask({"chaos", "--kill-every", "1500ms", "--kinds",
                                       "kill,stop,drain,join", "--seed", "5", "--duration", "20s"});
  INFO(chaos.err << chaos.out << run.said());
  CHECK(chaos.exit_code == 0);
  CHECK(absl::StrContains(chaos.out, "steps committed"));
  CHECK(absl::StrContains(chaos.out, "RECOVERY P50"));
  CHECK(absl::StrContains(chaos.out, "violations                 0\n"));
  CHECK(ChaosEvents(run).size() >= 5);
  CHECK(absl::StrContains(run.Ask({"events"}).out, "chaos"));
  run.Signal(SIGINT);
  CHECK(run.WaitForExit() == 130);
  run.CheckLedger(run.LastStep());
  CHECK(run.CountEvents("restore") == 0);
}

TEST_CASE("chaos: the coordinator is killed and started again by its own command line",
          "[multiproc]") {
  RealRun run(100000, "", kShort);
  run.StartCoordinator(3);
  for (const char* name : {"w0", "w1", "w2"}) run.StartWorker(name);
  run.WaitForStep(3);
  const ProgramResult chaos =
      run.Ask({"chaos", "--kill-every", "2s", "--kinds", "coordinator", "--duration", "6s"});
  pid_t coordinator = 0;
  std::string word;
  std::ifstream(run.folder() + "/journal/lock") >> word >> coordinator;
  INFO(chaos.err << chaos.out);
  CHECK(chaos.exit_code == 0);
  CHECK(ChaosEvents(run).size() >= 2);
  CHECK(run.CountEvents("lost") == 0);
  run.CheckLedger(run.LastStep(), true);
  REQUIRE(coordinator > 1);
  kill(coordinator, SIGKILL);
}

TEST_CASE("chaos: what cannot be done is refused with a sentence", "[multiproc]") {
  RealRun run(100000);
  run.Start(1);
  run.WaitForStep(1);
  const auto refused = [&](std::vector<std::string> words, int code, const std::string& text) {
    words.insert(words.begin(), "chaos");
    const ProgramResult result = run.Ask(words);
    INFO(result.err);
    CHECK(result.exit_code == code);
    CHECK(absl::StrContains(result.err, text));
  };
  refused({"--kinds", "coordinator"}, 64, "part of `starling run`");
  refused({"--kinds", "partition"}, 64, "network namespaces");
  refused({"--kinds", "melt"}, 64, "none of kill");
  // Never the last active one.
  const ProgramResult alone =
      run.Ask({"chaos", "--kill-every", "100ms", "--kinds", "kill", "--duration", "500ms"});
  CHECK(alone.exit_code == 0);
  CHECK(absl::StrContains(alone.err, "left out"));
  CHECK(run.CountEvents("lost") == 0);
}

}  // namespace starling
