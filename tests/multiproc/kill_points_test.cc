// SIGKILL at each exact point of a worker's life, for the lowest, the middle and the highest of
// three ranks; two at once; again during the recovery; during a join and a hand-over. After each:
// every micro-batch once in every step, equal digests, the losses of the undisturbed run, no
// restore.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "multiproc/real_run.h"

namespace starling {
namespace {

using testing::RealRun;

constexpr int kSteps = 8;
constexpr char kCheckpoints[] = "checkpoint: {every_steps: 3}\n";

const std::map<int64_t, double>& CalmLosses(int steps) {
  static std::map<int, std::map<int64_t, double>>& known =
      *new std::map<int, std::map<int64_t, double>>;
  if (!known.contains(steps)) {
    RealRun calm(steps, "", kCheckpoints);
    calm.Start(3, {}, 0);
    REQUIRE(calm.WaitForExit() == 0);
    calm.CheckLedger(steps);
    known[steps] = calm.Losses();
  }
  return known[steps];
}

// To its end, and as if nothing had happened but so many deaths.
// Where two are to die, the first death may keep the second from its point.
void CheckRun(RealRun& run, int steps, size_t deaths) {
  INFO(run.folder());
  REQUIRE(run.WaitForExit() == 0);
  run.CheckLedger(steps);
  run.CheckSameCurve(CalmLosses(steps));
  CHECK(run.CountEvents("restore") == 0);
  INFO(run.said());
  CHECK(run.CountEvents("lost") <= deaths);
  CHECK(run.CountEvents("lost") >= 1);
}

void CheckFaults(const std::string& faults, size_t deaths) {
  CalmLosses(kSteps);
  CAPTURE(faults);
  RealRun run(kSteps, "", kCheckpoints);
  run.Start(3, {"--restart-delay", "never"}, 3, faults);
  CheckRun(run, kSteps, deaths);
}

std::string Kill(int generation, int rank, const std::string& point) {
  return absl::StrCat("kill@gen=", generation, ",rank=", rank, ",point=", point, ";");
}

}  // namespace

TEST_CASE("B06: a worker dies at each point of a step", "[multiproc]") {
  const int rank = GENERATE(0, 1, 2);
  const std::string point =
      GENERATE("compute", "compute,nth=2", "computed,nth=4", "reduce,nth=2", "gather,nth=2",
               "norm,nth=2", "normed,nth=2", "vote,nth=2", "voted,nth=2", "apply,nth=2",
               "applied,nth=2", "connected", "part", "part_written");
  CheckFaults(Kill(1, rank, point), 1);
}

// A peer comes late, so the victim is blocked in the middle when it dies.
TEST_CASE("B01: a worker dies within a collective", "[multiproc]") {
  const int rank = GENERATE(0, 1, 2);
  const std::string point = GENERATE("reduce", "gather", "norm", "vote");
  CheckFaults(absl::StrCat(Kill(1, rank, point + ",nth=2,ms=30"),
                           "stall@gen=1,rank=", (rank + 1) % 3, ",point=", point, ",nth=2,ms=80"),
              1);
}

TEST_CASE("B03: a worker dies before and while a view is connected", "[multiproc]") {
  const int rank = GENERATE(0, 1, 2);
  const std::string when = GENERATE("connect", "connect,ms=10");
  const int late = (rank + 1) % 3;
  CheckFaults(absl::StrCat(Kill(1, rank, when), "stall@gen=1,rank=", late, ",point=connect,ms=60"),
              1);
}

TEST_CASE("B06: two of three die at once", "[multiproc]") {
  const int survivor = GENERATE(0, 1, 2);
  const std::string point =
      GENERATE("computed,nth=2", "gather,nth=2", "voted,nth=2", "apply,nth=2");
  CheckFaults(Kill(1, (survivor + 1) % 3, point) + Kill(1, (survivor + 2) % 3, point), 2);
}

TEST_CASE("B06: another one dies during the recovery", "[multiproc]") {
  const int rank = GENERATE(0, 1);  // of the two who are left
  const std::string point = GENERATE("connect", "connected", "compute", "reduce", "voted");
  CheckFaults(Kill(1, 1, "gather,nth=2") + Kill(2, rank, point), 2);
}

// The victim of generation 1 comes back as a newcomer, whom generation 3 takes in.
TEST_CASE("B18: a donor or the newcomer dies while the state is copied", "[multiproc]") {
  constexpr int kLong = 30;
  const int rank = GENERATE(0, 1, 2);
  const std::string point = GENERATE("copy", "copied");
  CalmLosses(kLong);
  const std::string faults = Kill(1, 1, "reduce,nth=2") + Kill(3, rank, point);
  CAPTURE(faults);
  RealRun run(kLong, "", kCheckpoints);
  run.Start(3, {"--restart-delay", "10ms"}, 15, faults);
  REQUIRE(run.WaitForExit() == 0);
  run.CheckLedger(kLong);
  run.CheckSameCurve(CalmLosses(kLong));
  CHECK(run.CountEvents("restore") == 0);
  INFO(run.said());
  CHECK(run.CountEvents("lost") >= 1);  // a newcomer is nobody's loss
}

TEST_CASE("B10: the leaver or the receiver dies during a hand-over", "[multiproc]") {
  CalmLosses(kSteps);
  const int end = GENERATE(0, 1);  // of the channel: the leaver, the receiver
  const std::string point = GENERATE("hand_over", "handing_over", "handed_over");
  CAPTURE(end, point);
  RealRun run(kSteps, "", kCheckpoints);
  // The channel has a generation of its own and two ends.
  run.Start(3, {"--restart-delay", "never"}, 60, absl::StrCat("kill@rank=", end, ",point=", point));
  run.WaitForStep(1);
  CHECK(run.Ask({"drain", "w1"}).exit_code == 0);
  INFO(run.folder());
  REQUIRE(run.WaitForExit() == 0);
  run.CheckLedger(kSteps);
  run.CheckSameCurve(CalmLosses(kSteps));
  CHECK(run.CountEvents("restore") == 0);
  INFO(run.said());
  // A drain that falls on a step's end has nothing to hand over, and nobody dies.
  CHECK(run.CountEvents("lost") + run.CountEvents("drained") >= 1);
}

}  // namespace starling
