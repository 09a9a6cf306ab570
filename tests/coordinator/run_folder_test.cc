// What a second coordinator makes of the files that the first one left.
#include "coordinator/run_folder.h"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "coordinator/recorder.h"
#include "support/temp_dir.h"

namespace starling::coordinator {
namespace {

membership::WriteMetrics Decided(int64_t step) {
  membership::WriteMetrics metrics;
  metrics.result.at = {Timeline(1), Step(step - 1), Attempt(0)};
  metrics.result.count = 1;
  return metrics;
}

TEST_CASE("run folder: a vote said again after a restart, one line although an evaluation followed",
          "[coordinator]") {
  testing::TempDir dir;
  DriverOptions options;
  Metrics metrics;
  {
    auto folder = RunFolder::Open(&RealFs(), dir.path()).value();
    Recorder recorder(&options, folder.get(), &metrics);
    for (const int64_t step : {4, 5}) recorder.Step(Decided(step), absl::UnixEpoch());
    // That of version 4 took longer than step 5; others fill more than the first look at the end.
    for (int i = 0; i < 500; ++i) recorder.Evaluation({{Timeline(1), Step(4)}, {}});
  }
  auto folder = RunFolder::Open(&RealFs(), dir.path()).value();
  CHECK(folder->metrics_last() == Version{Timeline(1), Step(5)});
  Recorder recorder(&options, folder.get(), &metrics);
  const auto size = [&] { return RealFs().Size(dir / "metrics.jsonl").value(); };
  const uint64_t before = size();
  recorder.Step(Decided(5), absl::UnixEpoch());
  CHECK(size() == before);
  recorder.Step(Decided(6), absl::UnixEpoch());
  CHECK(size() > before);
}

TEST_CASE("run folder: nothing but evaluations, every step is new", "[coordinator]") {
  testing::TempDir dir;
  {
    auto folder = RunFolder::Open(&RealFs(), dir.path()).value();
    DriverOptions options;
    Metrics metrics;
    Recorder(&options, folder.get(), &metrics).Evaluation({{Timeline(1), Step(4)}, {}});
  }
  CHECK_FALSE(RunFolder::Open(&RealFs(), dir.path()).value()->metrics_last().has_value());
}

TEST_CASE("run folder: checkpoints on the disk, the complete ones that are not known as bad",
          "[coordinator]") {
  testing::TempDir dir;
  {
    auto folder = RunFolder::Open(&RealFs(), dir.path()).value();
    REQUIRE(folder->AppendJournal(membership::CheckpointRecord{"step-9.t1", {}, false}).ok());
  }
  for (const char* name : {"step-10.t1", "step-9.t1", "step-8.t1", "notes"}) {
    std::filesystem::create_directories(dir / ("checkpoints/" + std::string(name)));
    std::ofstream(dir / ("checkpoints/" + std::string(name) + "/manifest.json"));
  }
  std::filesystem::create_directory(dir / "checkpoints/step-12.t1");  // never completed
  std::vector<std::string> found;
  const auto folder = RunFolder::Open(&RealFs(), dir.path()).value();
  for (const auto& checkpoint : folder->restored().checkpoints) found.push_back(checkpoint.folder);
  CHECK(found == std::vector<std::string>{"step-8.t1", "step-10.t1"});
}

}  // namespace
}  // namespace starling::coordinator
