// Goal: whatever call fails and wherever the process or the machine dies while a checkpoint is
// written, the last complete one stays loadable, and what was reported durable is. Method: the
// whole save (parts, manifest, retention) is repeated with a failure at every single call of the
// file system, once alone (an error) and once for ever (SIGKILL), and with the power lost
// afterwards.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "checkpoint/sample.h"
#include "starling/checkpoint/async_writer.h"
#include "support/faulty_fs.h"
#include "support/parity.h"
#include "support/temp_dir.h"

namespace starling::checkpoint {
namespace {

using starling::testing::FaultyFs;
using starling::testing::ReadWhole;
using starling::testing::TempDir;
using testing::At;
using testing::WriteSample;

// A folder with versions 5 and 10, made once.
const std::string& TwoCheckpoints() {
  static const TempDir& dir = *[] {
    static TempDir made;
    FaultyFs fs(made.path());
    REQUIRE(WriteSample(fs, made.path(), At(5), 2).ok());
    REQUIRE(WriteSample(fs, made.path(), At(10), 2).ok());
    return &made;
  }();
  return dir.path();
}

void CopyTo(const TempDir& dir) {
  std::filesystem::copy(TwoCheckpoints(), dir.path(), std::filesystem::copy_options::recursive);
}

// Calls that one save of version 20 over versions 10 and 5 takes.
int64_t CallsOfOneSave(const CommitOptions& options) {
  const TempDir dir;
  CopyTo(dir);
  FaultyFs fs(dir.path());
  REQUIRE(WriteSample(fs, dir.path(), At(20), 2, options).ok());
  return fs.calls();
}

// Files below `folder` that no finished or cleaned-up save leaves.
int Leftovers(const std::string& folder) {
  int count = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    count += absl::StrContains(entry.path().filename().string(), ".tmp");
  }
  return count;
}

}  // namespace

TEST_CASE("save: a failure or death at any call never harms the last checkpoint", "[checkpoint]") {
  const bool dies = GENERATE(false, true);
  const CommitOptions options{.keep = 2};
  const int64_t calls = CallsOfOneSave(options);
  REQUIRE(calls > 20);
  for (int64_t n = 0; n < calls; ++n) {
    CAPTURE(n, dies);
    const TempDir dir;
    CopyTo(dir);
    FaultyFs fs(dir.path());
    fs.FailAt(n, absl::ResourceExhaustedError("disk full"), dies);
    const auto report = WriteSample(fs, dir.path(), At(20), 2, options);
    const auto newest = testing::NewestGood(dir.path());
    REQUIRE(newest.status() == absl::OkStatus());
    const Version version = newest->manifest().version;
    REQUIRE(testing::CheckSample(*newest, version) == absl::OkStatus());
    if (report.ok()) {
      REQUIRE(version == At(20));
      REQUIRE((dies || !report->warnings.empty()));
    } else {
      REQUIRE(report.status().code() == absl::StatusCode::kResourceExhausted);
      REQUIRE(Verify(dir / "step-10.t1") == absl::OkStatus());
      REQUIRE(Verify(dir / "step-5.t1") == absl::OkStatus());
    }
    if (!dies) REQUIRE(Leftovers(dir.path()) == 0);
    // With space again, the same save succeeds.
    if (!report.ok() && version != At(20)) {
      fs.StopFailing();
      REQUIRE(WriteSample(fs, dir.path(), At(20), 2, options).ok());
      REQUIRE(testing::NewestGood(dir.path())->manifest().version == At(20));
    }
  }
}

TEST_CASE("save: power lost after any call leaves a whole checkpoint", "[checkpoint]") {
  const auto names = GENERATE(FaultyFs::Names::kDropUnsynced, FaultyFs::Names::kKeep);
  const CommitOptions options{.keep = 1};
  const int64_t calls = CallsOfOneSave(options);
  for (int64_t n = 0; n <= calls; ++n) {
    CAPTURE(n, names);
    const TempDir dir;
    CopyTo(dir);
    FaultyFs fs(dir.path());
    fs.FailAt(n, absl::UnavailableError("dead"), /*for_ever=*/true);
    const auto report = WriteSample(fs, dir.path(), At(20), 2, options);
    fs.LosePower(names);
    const auto newest = testing::NewestGood(dir.path());
    REQUIRE(newest.status() == absl::OkStatus());
    const Version version = newest->manifest().version;
    REQUIRE((version == At(20) || version == At(10)));
    REQUIRE(testing::CheckSample(*newest, version) == absl::OkStatus());
    if (report.ok()) REQUIRE(version == At(20));
  }
}

TEST_CASE("save: a part reported durable survives the loss of power", "[checkpoint]") {
  const TempDir dir;
  FaultyFs fs(dir.path());
  const auto manifest = testing::WriteSampleParts(fs, dir.path(), At(3), 3);
  REQUIRE(manifest.status() == absl::OkStatus());
  fs.LosePower(FaultyFs::Names::kDropUnsynced);
  REQUIRE(CommitManifest(RealFs(), dir.path(), *manifest, {}).status() == absl::OkStatus());
  CHECK(Verify(dir / "step-3.t1") == absl::OkStatus());
}

TEST_CASE("save: parts are synced before the manifest, and it before anything is deleted",
          "[checkpoint]") {
  const TempDir dir;
  REQUIRE(WriteSample(RealFs(), dir.path(), At(10), 1).ok());
  FaultyFs fs(dir.path());
  std::string trace;
  fs.OnCall([&](const std::string& call, const std::string& path) {
    if (call == "Append" || call == "Close" || call == "Size" || call == "Read") return;
    absl::StrAppend(&trace, call, " ",
                    path.size() > dir.path().size() ? path.substr(dir.path().size() + 1) : ".",
                    "\n");
  });
  REQUIRE(WriteSample(fs, dir.path(), At(20), 1, {.keep = 1}).ok());
  std::vector<size_t> places;
  for (const char* event :
       {"Sync step-20.t1/part-", "Rename step-20.t1/part-", "SyncDirectory step-20.t1\n",
        "Sync step-20.t1/manifest.json.tmp", "Rename step-20.t1/manifest.json\n",
        "SyncDirectory step-20.t1\nSyncDirectory .\n", "Rename latest\n",
        "Remove step-10.t1/manifest.json\n", "RemoveTree step-10.t1\n"}) {
    CAPTURE(event, trace);
    const size_t at = trace.find(event, places.empty() ? 0 : places.back());
    REQUIRE(at != std::string::npos);
    places.push_back(at);
  }
  CHECK(ReadWhole(dir / "latest") == "step-20.t1\n");
}

TEST_CASE("commit: a missing, cut or unlisted part is refused and nothing changes",
          "[checkpoint]") {
  const TempDir dir;
  REQUIRE(WriteSample(RealFs(), dir.path(), At(10), 2).ok());
  auto manifest = testing::WriteSampleParts(RealFs(), dir.path(), At(20), 3);
  REQUIRE(manifest.ok());
  const std::string part = dir / ("step-20.t1/" + manifest->parts[2].file);
  auto refused = [&](const Manifest& m, const CommitOptions& options = {.keep = 1}) {
    const auto report = CommitManifest(RealFs(), dir.path(), m, options);
    CHECK(Verify(dir / "step-10.t1") == absl::OkStatus());
    CHECK(ReadWhole(dir / "latest") == "step-10.t1\n");
    return report.status().code();
  };
  CHECK(refused(*manifest, {.keep = -1}) == absl::StatusCode::kInvalidArgument);
  CHECK(refused(*manifest, {.ancestry = Ancestry{At(15)}}) == absl::StatusCode::kInvalidArgument);
  Manifest unlisted = *manifest;
  unlisted.parts.pop_back();
  CHECK(refused(unlisted) == absl::StatusCode::kDataLoss);
  std::filesystem::resize_file(part, manifest->parts[2].bytes - 1);
  CHECK(refused(*manifest) == absl::StatusCode::kDataLoss);
  std::filesystem::remove(part);
  CHECK(refused(*manifest) == absl::StatusCode::kNotFound);
}

TEST_CASE("retention: keeps the newest of this history and leaves strangers alone",
          "[checkpoint]") {
  const TempDir dir;
  FaultyFs fs(dir.path());
  auto names = [&] {
    std::vector<std::string> found = RealFs().List(dir.path()).value();
    std::erase(found, "latest");
    return found;
  };
  SECTION("numeric order, not that of text") {
    for (const int64_t step : {8, 9, 10, 98, 100, 998, 1002}) {
      REQUIRE(WriteSample(fs, dir.path(), At(step), 1, {.keep = 2}).ok());
    }
    CHECK(names() == std::vector<std::string>{"step-1002.t1", "step-998.t1"});
  }
  SECTION("0 keeps all") {
    for (const int64_t step : {8, 9, 10}) {
      REQUIRE(WriteSample(fs, dir.path(), At(step), 1, {.keep = 0}).ok());
    }
    CHECK(names().size() == 3);
  }
  SECTION("after a roll-back the abandoned future goes, the past stays") {
    for (const int64_t step : {30, 40, 50, 60}) {
      REQUIRE(WriteSample(fs, dir.path(), At(step), 1, {.keep = 0}).ok());
    }
    const Ancestry ancestry = {At(1 << 30, 2), At(40)};
    const auto report = WriteSample(fs, dir.path(), At(50, 2), 1, {2, ancestry});
    REQUIRE(report.ok());
    CHECK(report->deleted == std::vector<std::string>{"step-60.t1", "step-50.t1", "step-30.t1"});
    CHECK(names() == std::vector<std::string>{"step-40.t1", "step-50.t2"});
  }
  SECTION("other runs, user files and damaged manifests are not touched; old attempts go") {
    REQUIRE(WriteSample(fs, dir.path(), At(1), 1, {.keep = 0}, "run-2").ok());
    REQUIRE(testing::WriteSampleParts(fs, dir.path(), At(2), 1).ok());
    REQUIRE(WriteSample(fs, dir.path(), At(3), 1).ok());
    std::ofstream(dir / "step-3.t1/manifest.json") << "damaged";
    std::filesystem::create_directory(dir / "step-4.t1");
    std::ofstream(dir / "step-4.t1/notes.txt") << "mine";
    std::filesystem::create_directory(dir / "step-5000");
    std::ofstream(dir / "user.txt") << "mine";
    REQUIRE(WriteSample(fs, dir.path(), At(10), 1, {.keep = 1}).ok());
    CHECK(names() == std::vector<std::string>{"step-1.t1", "step-10.t1", "step-3.t1", "step-4.t1",
                                              "step-5000", "user.txt"});
  }
}

namespace {

Snapshot SmallSnapshot(const std::string& checkpoints, Version version) {
  auto values = std::make_shared<std::vector<float>>(6, static_cast<float>(version.step.value()));
  Snapshot snapshot;
  snapshot.folder = JoinPath(checkpoints, FolderName(version));
  snapshot.spec = testing::SampleSpec(version, 0);
  snapshot.slices = {{{"w", TensorKind::kParameter, DType::kFloat32, {6}, 0, 6},
                      {reinterpret_cast<const char*>(values->data()), 24}}};
  snapshot.storage = std::move(values);
  return snapshot;
}

}  // namespace

TEST_CASE("async writer: one is written, one waits, a third is refused", "[checkpoint]") {
  const TempDir dir;
  FaultyFs fs(dir.path());
  absl::Notification started, go_on;
  fs.OnCall([&](const std::string& call, const std::string&) {
    if (call != "Create" || started.HasBeenNotified()) return;
    started.Notify();
    go_on.WaitForNotification();
  });
  std::vector<absl::StatusOr<Part>> reports;
  std::weak_ptr<const void> storage;
  AsyncWriter writer(fs);
  auto submit = [&](int64_t step) {
    Snapshot snapshot = SmallSnapshot(dir.path(), At(step));
    if (step == 1) storage = snapshot.storage;
    return writer.Submit(std::move(snapshot), [&](absl::StatusOr<Part> part) {
      if (reports.empty()) CHECK(storage.expired());
      reports.push_back(std::move(part));
    });
  };
  REQUIRE(submit(1) == absl::OkStatus());
  started.WaitForNotification();
  CHECK(submit(2) == absl::OkStatus());
  CHECK(submit(3).code() == absl::StatusCode::kResourceExhausted);
  CHECK(writer.Drain(absl::Milliseconds(1)).code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_FALSE(storage.expired());
  go_on.Notify();
  REQUIRE(writer.Drain(absl::Minutes(1)) == absl::OkStatus());
  REQUIRE(reports.size() == 2);
  for (const auto& report : reports) CHECK(report.status() == absl::OkStatus());
  CHECK(RealFs().Exists(dir / ("step-2.t1/" + reports[1]->file)));
  CHECK(submit(4) == absl::OkStatus());
  CHECK(writer.Drain(absl::Minutes(1)) == absl::OkStatus());
}

TEST_CASE("async writer: a full disk is reported and the next snapshot is written",
          "[checkpoint]") {
  const TempDir dir;
  FaultyFs fs(dir.path());
  fs.FailAt(2, absl::ResourceExhaustedError("disk full"), /*for_ever=*/false);
  std::vector<absl::StatusOr<Part>> reports;
  AsyncWriter writer(fs);
  for (const int64_t step : {1, 2}) {
    REQUIRE(writer
                .Submit(SmallSnapshot(dir.path(), At(step)),
                        [&](absl::StatusOr<Part> part) { reports.push_back(std::move(part)); })
                .ok());
  }
  REQUIRE(writer.Drain(absl::Minutes(1)) == absl::OkStatus());
  CHECK(reports.at(0).status().code() == absl::StatusCode::kResourceExhausted);
  CHECK(reports.at(1).status() == absl::OkStatus());
  CHECK(RealFs().List(dir / "step-1.t1")->empty());
}

TEST_CASE("async writer: destruction finishes one part and cancels the waiting one",
          "[checkpoint]") {
  const TempDir dir;
  FaultyFs fs(dir.path());
  auto writer = std::make_unique<AsyncWriter>(fs);
  AsyncWriter* const alive = writer.get();
  absl::Notification started, waiting;
  bool held = false;
  fs.OnCall([&](const std::string& call, const std::string&) {
    if (call != "Create" || std::exchange(held, true)) return;
    started.Notify();
    waiting.WaitForNotification();
    // Goes on when the destructor has begun: from then on the answer is another one.
    while (absl::IsResourceExhausted(alive->Submit(SmallSnapshot(dir.path(), At(9)), nullptr))) {
      std::this_thread::yield();
    }
  });
  std::vector<absl::StatusCode> codes;
  auto report = [&](absl::StatusOr<Part> part) { codes.push_back(part.status().code()); };
  REQUIRE(writer->Submit(SmallSnapshot(dir.path(), At(1)), report).ok());
  started.WaitForNotification();
  REQUIRE(writer->Submit(SmallSnapshot(dir.path(), At(2)), report).ok());
  waiting.Notify();
  writer.reset();
  CHECK(codes == std::vector{absl::StatusCode::kOk, absl::StatusCode::kCancelled});
}

}  // namespace starling::checkpoint
