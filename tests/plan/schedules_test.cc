// Learning-rate and length schedules against the reference's numbers (p15, p16), which are exact.
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "starling/plan/length_schedule.h"
#include "starling/plan/lr_schedule.h"
#include "support/parity.h"

namespace starling::plan {
namespace {

using nlohmann::json;

void CheckFactors(const LrSchedule& schedule, const json& expected) {
  REQUIRE(expected["step"].size() == expected["factor"].size());
  for (size_t i = 0; i < expected["step"].size(); ++i) {
    INFO("warmup " << schedule.warmup_steps << " step " << expected["step"][i]);
    CHECK(schedule.Factor(expected["step"][i]) == expected["factor"][i].get<double>());
  }
}

}  // namespace

TEST_CASE("learning rate: the live schedule gives the reference's factors", "[plan]") {
  const json file = testing::ParityJson("p15_schedule.json");
  for (const json& run : file["live"]) {
    CheckFactors({LrScheduleName::kLive, run["warmup_steps"], run["total_steps"], 50, 0.02}, run);
  }
}

TEST_CASE("learning rate: the linear schedule gives the reference's factors", "[plan]") {
  const json file = testing::ParityJson("p15_schedule.json");
  for (const json& run : file["linear_unused"]) {
    CheckFactors(
        {LrScheduleName::kLinear, run["warmup_steps"], run["total_steps"], 0, run["floor"]}, run);
  }
}

TEST_CASE("learning rate: without a zero window warm-up starts at once", "[plan]") {
  const LrSchedule schedule{LrScheduleName::kLive, 20, 200};
  CHECK(schedule.Factor(0) == 0.0);
  CHECK(schedule.Factor(1) == 0.05);
  CHECK(schedule.Factor(20) == 1.0);
  CHECK(schedule.Factor(110) == 0.5);
  CHECK(LrSchedule{LrScheduleName::kLive, 0, 100}.Factor(0) == 1.0);
}

TEST_CASE("learning rate: bad values are named", "[plan]") {
  const LrSchedule good{LrScheduleName::kLive, 20, 200};
  CHECK(good.Validate().empty());
  LrSchedule bad{LrScheduleName::kLinear, -1, 0, 3, 1.5};
  CHECK(bad.Validate().size() == 4);
}

TEST_CASE("length: changes are the reference's", "[plan]") {
  const json file = testing::ParityJson("p16_length_warmup.json");
  for (const json& run : file["cases"]) {
    LengthSchedule schedule;
    schedule.initial = run["initial_sequence_length"].is_null()
                           ? 0
                           : run["initial_sequence_length"].get<int64_t>();
    schedule.maximum = run["max_sequence_length"];
    schedule.warmup_steps = run["warmup_steps"];
    schedule.multiple = run["pad_to_multiple_of"];
    CHECK(schedule.Validate().empty());
    std::vector<LengthChange> expected;
    for (const json& change : run["change_points"]) expected.push_back({change[0], change[1]});
    const std::vector<LengthChange> changes = schedule.Changes();
    CHECK(changes == expected);
    // The list says the same as the formula at every step.
    size_t at = 0;
    for (int64_t step = 0; step <= run["last_epoch_checked"].get<int64_t>(); ++step) {
      while (at + 1 < changes.size() && changes[at + 1].first_step <= step) ++at;
      if (schedule.LengthAt(step) != changes[at].length) FAIL("step " << step);
    }
  }
}

TEST_CASE("length: bad values are named", "[plan]") {
  CHECK(LengthSchedule{0, 512, 0, 128}.Validate().empty());
  CHECK(LengthSchedule{1024, 512, 10, 128}.Validate().size() == 1);
  CHECK(LengthSchedule{-1, 0, -1, 0}.Validate().size() == 4);
}

}  // namespace starling::plan
