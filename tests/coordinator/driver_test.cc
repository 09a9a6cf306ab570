// The coordinator with real files, real gRPC and fake workers: runs in which workers die, join and
// drain; restarts of the coordinator; a lost journal; damaged files; failing disks. What counts is
// the ledger: every step of it must hold each micro-batch exactly once.
#include "starling/coordinator/driver.h"

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "starling/base/exit_codes.h"
#include "starling/rpc/client.h"
#include "support/fake_worker.h"
#include "support/faulty_fs.h"
#include "support/temp_dir.h"

namespace starling::coordinator {
namespace {

using membership::UserRequest;
using nlohmann::json;
using starling::testing::FakeNetwork;
using starling::testing::FakeWorker;
using starling::testing::TempDir;

constexpr absl::Duration kDeadline = absl::Seconds(30);
constexpr int64_t kMicroBatches = 12;
constexpr int64_t kGlobalBatch = 48;
constexpr int64_t kNoLimit = int64_t{1} << 60;

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

membership::Options ProtocolOptions(int64_t steps, int expected) {
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
  REQUIRE(run.driver->WaitFor(kDeadline));
  CHECK(run.driver->Wait().exit_code == 0);
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
  REQUIRE(run.driver->WaitFor(kDeadline));
  CHECK(run.driver->Wait().exit_code == 0);
  run.CheckLedger(30);
  CHECK(run.workers["w1"]->weights() == run.workers["w4"]->weights());
}

TEST_CASE("driver: the coordinator dies and comes back, training knows nothing of it",
          "[coordinator]") {
  RunFixture run(ProtocolOptions(20, 2));
  run.network.AllowUpTo(4 * kMicroBatches + 3);
  run.StartDriver();
  run.AddWorker("w0");
  run.AddWorker("w1");
  REQUIRE(run.watch.AwaitStep(4));
  run.driver->Abandon(1, "test");
  run.driver->Wait();
  run.driver.reset();
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
  REQUIRE(run.driver->WaitFor(kDeadline));
  CHECK(run.driver->Wait().exit_code == 0);
  run.CheckLedger(20);
  // Not one step is shown twice.
  std::set<int64_t> shown;
  for (const json& line : run.Lines("metrics.jsonl"))
    CHECK(shown.insert(line["step"].get<int64_t>()).second);
}

TEST_CASE("driver: all die, the next start goes on from the checkpoint on a new timeline",
          "[coordinator]") {
  membership::Options options = ProtocolOptions(12, 2);
  options.checkpoint_every = 4;
  options.patience = absl::Milliseconds(100);
  options.detection = absl::Milliseconds(500);
  RunFixture run(options);
  run.network.AllowUpTo(6 * kMicroBatches);
  run.StartDriver();
  run.AddWorker("w0");
  run.AddWorker("w1");
  REQUIRE(run.watch.AwaitStep(6));
  REQUIRE(run.watch.AwaitEvent("checkpoint"));
  run.driver->Abandon(1, "test");
  run.driver->Wait();
  run.driver.reset();
  run.workers.clear();
  run.network.AllowUpTo(kNoLimit);
  run.StartDriver();
  for (const char* name : {"x0", "x1", "x2"}) run.AddWorker(name);
  REQUIRE(run.driver->WaitFor(kDeadline));
  CHECK(run.driver->Wait().exit_code == 0);
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

TEST_CASE("driver: requests of people, over the wire", "[coordinator]") {
  RunFixture run(ProtocolOptions(100, 2));
  run.network.AllowUpTo(2 * kMicroBatches + 1);
  DriverOptions options = run.Options();
  options.http = "127.0.0.1:0";
  run.StartDriver(options);
  run.AddWorker("w0");
  run.AddWorker("w1");
  REQUIRE(run.watch.AwaitStep(2));
  const rpc::RequestClient client = run.Client();
  const auto status = client.Status(kDeadline);
  REQUIRE(status.ok());
  CHECK(status->run == "test");
  CHECK(status->status.workers.size() == 2);
  CHECK(status->total_steps == 100);
  CHECK(status->http_address == run.driver->http_address());
  const auto unknown =
      client.Ask({.kind = UserRequest::Kind::kDrain, .worker = "nobody"}, kDeadline);
  REQUIRE(unknown.ok());
  CHECK_FALSE(unknown->ok);
  CHECK_FALSE(client.Ask({.kind = UserRequest::Kind::kResize, .target_workers = 0}, kDeadline)->ok);
  CHECK(client.Ask({.kind = UserRequest::Kind::kResize, .target_workers = 3}, kDeadline)->ok);
  CHECK(run.watch.target() == 3);
  // A drained worker leaves with 75 and the others go on.
  CHECK(client.Ask({.kind = UserRequest::Kind::kDrain, .worker = "w1"}, kDeadline)->ok);
  run.network.AllowUpTo(8 * kMicroBatches + 1);  // it finishes the micro-batch under way
  CHECK(run.workers["w1"]->AwaitExit(kDeadline) == static_cast<int>(ExitCode::kDrained));
  REQUIRE(run.watch.AwaitStep(6));
  // A checkpoint on request is answered when it is durable.
  run.network.AllowUpTo(kNoLimit);
  const auto made = client.Ask({.kind = UserRequest::Kind::kCheckpoint}, kDeadline);
  REQUIRE(made.ok());
  CHECK(made->ok);
  REQUIRE(run.driver->WaitFor(kDeadline));
  CHECK(run.driver->Wait().exit_code == 0);
  run.CheckLedger(100);
}

TEST_CASE("driver: stop, checkpoints the version and everybody leaves with 75", "[coordinator]") {
  RunFixture run(ProtocolOptions(100000, 2));
  run.StartDriver();
  run.AddWorker("w0");
  run.AddWorker("w1");
  REQUIRE(run.watch.AwaitStep(3));
  UserRequest stop{.kind = UserRequest::Kind::kStop};
  stop.reason = "test";
  run.driver->Request(stop, [](rpc::RequestReply) {});
  REQUIRE(run.driver->WaitFor(kDeadline));
  CHECK(run.driver->Wait().exit_code == static_cast<int>(ExitCode::kDrained));
  for (auto& [name, worker] : run.workers) {
    CHECK(worker->AwaitExit(kDeadline) == static_cast<int>(ExitCode::kDrained));
  }
  const int64_t last = run.Lines("ledger.jsonl").back()["step"];
  CHECK(checkpoint::Verify(run.path(absl::StrCat("checkpoints/step-", last, ".t1"))).ok());
}

TEST_CASE("driver: a second coordinator on one folder, refused and told who holds it",
          "[coordinator]") {
  RunFixture run(ProtocolOptions(10, 1));
  run.StartDriver();
  const auto second = Driver::Start(run.Options());
  REQUIRE_FALSE(second.ok());
  CHECK(ExitCodeFor(second.status()) == ExitCode::kCannotCreate);
  CHECK(std::string(second.status().message()).find(absl::StrCat("pid ", getpid())) !=
        std::string::npos);
  run.driver.reset();
  CHECK(Driver::Start(run.Options()).ok());
}

TEST_CASE("driver: another meaning of the run, refused with 78 unless accepted", "[coordinator]") {
  RunFixture run(ProtocolOptions(10, 1));
  run.StartDriver();
  run.driver.reset();
  DriverOptions changed = run.Options();
  changed.membership.config_hash = 99;
  CHECK(ExitCodeFor(Driver::Start(changed).status()) == ExitCode::kConfig);
  DriverOptions renamed = run.Options();
  renamed.membership.run_id = "other";
  CHECK(ExitCodeFor(Driver::Start(renamed).status()) == ExitCode::kConfig);
  changed.membership.accept_config_change = true;
  CHECK(Driver::Start(changed).ok());
  // Journalled: from now on it is the run's meaning.
  changed.membership.accept_config_change = false;
  CHECK(Driver::Start(changed).ok());
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
  REQUIRE(run.driver->WaitFor(kDeadline));
  CHECK(run.driver->Wait().exit_code == 0);
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
  run.driver->Abandon(1, "test");
  run.driver->Wait();
  run.driver.reset();
  REQUIRE(RealFs().Remove(run.path("journal/journal.bin")).ok());
  run.StartDriver();
  REQUIRE(run.watch.AwaitEvent("adopted"));
  REQUIRE(run.watch.AwaitEvent("view", 2));
  run.network.AllowUpTo(kNoLimit);
  REQUIRE(run.driver->WaitFor(kDeadline));
  CHECK(run.driver->Wait().exit_code == 0);
  run.CheckLedger(20);
  CHECK(run.workers["w0"]->weights() == run.workers["w1"]->weights());
}

TEST_CASE("driver: a journal lost on a later timeline, checkpoints of the older one stay",
          "[coordinator]") {
  membership::Options options = ProtocolOptions(8, 2);
  options.checkpoint_every = 4;
  options.patience = absl::Milliseconds(100);
  options.detection = absl::Milliseconds(500);
  RunFixture run(options);
  run.network.AllowUpTo(6 * kMicroBatches);
  run.StartDriver();
  run.AddWorker("w0");
  run.AddWorker("w1");
  REQUIRE(run.watch.AwaitStep(6));
  REQUIRE(run.watch.AwaitEvent("checkpoint"));
  run.driver->Abandon(1, "test");
  run.driver->Wait();
  run.driver.reset();
  run.workers.clear();
  run.network.AllowUpTo(9 * kMicroBatches + 2);  // steps 5 and 6 once more, and 7
  run.StartDriver();
  run.AddWorker("x0");
  run.AddWorker("x1");
  REQUIRE(run.watch.AwaitStep(7));  // of timeline 2, which continues step 4 of timeline 1
  run.driver->Abandon(1, "test");
  run.driver->Wait();
  run.driver.reset();
  REQUIRE(RealFs().Remove(run.path("journal/journal.bin")).ok());
  run.StartDriver();
  REQUIRE(run.watch.AwaitEvent("adopted"));
  run.network.AllowUpTo(kNoLimit);
  REQUIRE(run.driver->WaitFor(kDeadline));
  CHECK(run.driver->Wait().exit_code == 0);
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
  REQUIRE(run.driver->WaitFor(kDeadline));
  CHECK(run.driver->Wait().exit_code == 0);
  run.CheckLedger(20);
}

}  // namespace
}  // namespace starling::coordinator
