// What the driver's tests share: a run folder with its coordinator, over real files and real gRPC,
// and with fake workers, and a watch that waits for what the driver shows. What counts is the
// ledger: every step of it must hold each micro-batch exactly once.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "starling/base/exit_codes.h"
#include "starling/coordinator/driver.h"
#include "starling/rpc/client.h"
#include "support/fake_worker.h"
#include "support/temp_dir.h"

namespace starling::coordinator::testing {

using nlohmann::json;
using starling::testing::FakeNetwork;
using starling::testing::FakeWorker;
using starling::testing::TempDir;

inline constexpr absl::Duration kDeadline = absl::Seconds(30);
inline constexpr int64_t kMicroBatches = 12;
inline constexpr int64_t kGlobalBatch = 48;
inline constexpr int64_t kNoLimit = int64_t{1} << 60;

// Lets a test wait for what the driver shows.
class Watch {
 public:
  void Attach(DriverOptions* options) {
    options->on_step = [this](const StepSummary& step) {
      absl::MutexLock lock(&mutex_);
      step_ = step.step;
      loss_ = step.loss;
    };
    options->on_event = [this](const membership::Event& event) {
      absl::MutexLock lock(&mutex_);
      events_.push_back(event);
    };
    options->on_target_changed = [this](int target) {
      absl::MutexLock lock(&mutex_);
      target_ = target;
    };
  }
  bool AwaitStep(int64_t step) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return step_ >= step; };
    return mutex_.AwaitWithTimeout(absl::Condition(&there), kDeadline);
  }
  // An event of that name after the `count` − 1 first ones.
  bool AwaitEvent(const std::string& name, int count = 1) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return std::count_if(events_.begin(), events_.end(),
                           [&](const auto& e) { return e.event == name; }) >= count;
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&there), kDeadline);
  }
  // Until a view of so many members is active.
  bool AwaitMembers(int members) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return std::any_of(events_.begin(), events_.end(),
                         [&](const auto& e) { return e.event == "view" && e.members == members; });
    };
    return mutex_.AwaitWithTimeout(absl::Condition(&there), kDeadline);
  }
  int target() {
    absl::MutexLock lock(&mutex_);
    return target_;
  }
  double loss() {
    absl::MutexLock lock(&mutex_);
    return loss_;
  }

 private:
  absl::Mutex mutex_;
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;
  double loss_ ABSL_GUARDED_BY(mutex_) = 0;
  int target_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<membership::Event> events_ ABSL_GUARDED_BY(mutex_);
};

inline membership::Options ProtocolOptions(int64_t steps, int expected) {
  membership::Options options;
  options.run_id = "test";
  options.config_hash = 1;
  options.model_hash = 2;
  options.micro_batches = kMicroBatches;
  options.total_steps = steps;
  options.expected_workers = expected;
  options.gather_after = absl::Milliseconds(200);
  options.patience = absl::Seconds(2);
  return options;
}

// Of a run that can lose all its workers: it makes checkpoints, and waits for nobody for long.
inline membership::Options CheckpointingOptions(int64_t steps) {
  membership::Options options = ProtocolOptions(steps, 2);
  options.checkpoint_every = 4;
  options.patience = absl::Milliseconds(100);
  options.detection = absl::Milliseconds(500);
  return options;
}

// A run folder with its coordinator and its workers.
class RunFixture {
 public:
  explicit RunFixture(membership::Options options) : options_(std::move(options)) {}

  DriverOptions Options() {
    DriverOptions options;
    options.membership = options_;
    options.run_folder = folder_.path();
    options.global_batch = kGlobalBatch;
    options.seed = 5;
    watch.Attach(&options);
    return options;
  }
  void StartDriver() { StartDriver(Options()); }
  void StartDriver(DriverOptions options) {
    auto started = Driver::Start(std::move(options));
    INFO(started.status());
    REQUIRE(started.ok());
    driver = *std::move(started);
  }
  // As if its process had died.
  void AbandonDriver() {
    driver->Abandon(1, "test");
    driver->Wait();
    driver.reset();
  }
  void AwaitEnd(ExitCode code = ExitCode::kOk) {
    REQUIRE(driver->WaitFor(kDeadline));
    CHECK(driver->Wait().exit_code == static_cast<int>(code));
  }
  // Workers w0 and w1 and the coordinator die after step 6; the newest checkpoint is of step 4.
  void LoseAllAfterStep6() {
    network.AllowUpTo(6 * kMicroBatches);
    StartDriver();
    AddWorker("w0");
    AddWorker("w1");
    REQUIRE(watch.AwaitStep(6));
    REQUIRE(watch.AwaitEvent("checkpoint"));
    AbandonDriver();
    workers.clear();
  }
  FakeWorker& AddWorker(const std::string& name) {
    starling::testing::FakeWorkerOptions options;
    options.membership = options_;
    options.name = name;
    options.incarnation = ++last_incarnation_;
    options.target.run_folder = folder_.path();
    options.checkpoints = folder_ / "checkpoints";
    auto& worker = workers[name];
    worker = std::make_unique<FakeWorker>(&network, std::move(options));
    return *worker;
  }
  void Kill(const std::string& name) { workers.erase(name); }

  std::vector<json> Lines(const std::string& file) {
    std::vector<json> lines;
    std::ifstream stream(folder_ / file);
    for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
    return lines;
  }
  // Steps 1 … `steps`, one line each, every micro-batch exactly once.
  void CheckLedger(int64_t steps) {
    const std::vector<json> lines = Lines("ledger.jsonl");
    REQUIRE(static_cast<int64_t>(lines.size()) == steps);
    for (int64_t step = 1; step <= steps; ++step) {
      const json& line = lines[static_cast<size_t>(step - 1)];
      INFO(line.dump());
      CHECK(line["step"] == step);
      CHECK(line["samples"] == json({(step - 1) * kGlobalBatch, step * kGlobalBatch - 1}));
      CHECK(line["skipped"] == false);
      std::vector<int> counted(kMicroBatches, 0);
      for (const json& rank : line["micro_batches"]) {
        CHECK(rank[0] < line["members"]);
        for (const json& interval : rank[1]) {
          for (int64_t i = interval[0]; i < interval[1]; ++i) ++counted[static_cast<size_t>(i)];
        }
      }
      CHECK(counted == std::vector<int>(kMicroBatches, 1));
    }
    CHECK(network.complaints().empty());
  }
  std::string path(const std::string& file) const {
    return file.empty() ? folder_.path() : folder_ / file;
  }
  rpc::RequestClient Client() const { return rpc::RequestClient({.run_folder = folder_.path()}); }

  Watch watch;
  FakeNetwork network;
  std::unique_ptr<Driver> driver;
  std::map<std::string, std::unique_ptr<FakeWorker>> workers;

 private:
  TempDir folder_;
  const membership::Options options_;
  uint64_t last_incarnation_ = 0;
};

}  // namespace starling::coordinator::testing
