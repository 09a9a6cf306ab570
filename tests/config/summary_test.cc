// Numbers behind `starling validate`, against sums done by hand.
#include "starling/config/summary.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <string>

#include "absl/strings/match.h"
#include "starling/config/load.h"

namespace starling::config {
namespace {

Summary SummaryOf(const std::string& file) {
  const LoadedConfig loaded =
      LoadConfig({{std::string(STARLING_SOURCE_DIR "/configs/") + file}, {}, {}});
  INFO(loaded.status().message());
  REQUIRE(loaded.status().ok());
  return Summarize(loaded.config);
}

}  // namespace

TEST_CASE("summary: the shipped models have the documented sizes", "[config]") {
  const auto [file, millions] = GENERATE(table<std::string, double>(
      {{"tiny.yaml", 2.24}, {"small.yaml", 8.7}, {"base.yaml", 14.5}, {"xl.yaml", 79.0}}));
  CHECK_THAT(static_cast<double>(SummaryOf(file).parameters) / 1e6,
             Catch::Matchers::WithinRel(millions, 0.01));
}

TEST_CASE("summary: memory, traffic, shares and totals follow the formulas", "[config]") {
  LoadedConfig loaded =
      LoadConfig({{},
                  {},
                  {"training.steps=10", "training.global_batch=40", "training.micro_batch=4",
                   "elastic.min_workers=1", "elastic.max_workers=12",
                   "training.sequence_length={initial: 128, final: 256, warmup_steps: 4}"}});
  INFO(loaded.status().message());
  REQUIRE(loaded.status().ok());
  const Summary summary = Summarize(loaded.config);
  const int64_t parameters = summary.parameters;
  REQUIRE(parameters > 0);
  REQUIRE(summary.rows.size() == 12);
  CHECK(summary.rows[0].memory_bytes == 20 * parameters);
  CHECK(summary.rows[0].sent_bytes == 0);
  CHECK(summary.rows[1].sent_bytes == 4 * parameters);
  CHECK(summary.rows[3].sent_bytes == 6 * parameters);
  CHECK(summary.rows[2].most_micro_batches == 4);   // 10 over 3
  CHECK(summary.rows[11].most_micro_batches == 1);  // 10 over 12
  CHECK(summary.snapshot_bytes == 12 * parameters);
  CHECK(summary.samples == 400);
  CHECK(summary.tokens == 40 * (4 * 128 + 6 * 256));  // 256 from step 4 on
}

TEST_CASE("summary: the text names every size of the group and the derived times", "[config]") {
  LoadedConfig loaded = LoadConfig({{}, {}, {"elastic.detection=6s", "elastic.max_workers=3"}});
  const std::string text = Explain(loaded.config);
  INFO(text);
  CHECK(absl::StrContains(text, "\n1 "));
  CHECK(absl::StrContains(text, "\n3 "));
  CHECK(absl::StrContains(text, "heartbeat every"));
  CHECK(absl::StrContains(text, " 2s\n"));
}

}  // namespace starling::config
