// The worker processes of `starling run`: a shell script stands in for the worker, time is the
// test's.
#include "cli/local_workers.h"

#include <sys/wait.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/temp_dir.h"

namespace starling::cli {
namespace {

void WriteProgram(const std::string& path, const std::string& script = "exit 1") {
  std::ofstream(path) << "#!/bin/sh\n" << script << "\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

// Blocks until `count` children have ended, and leaves them to be reaped.
std::vector<WorkerEnd> ReapAll(LocalWorkers* workers, size_t count, absl::Time now) {
  std::vector<WorkerEnd> ends;
  while (ends.size() < count) {
    siginfo_t info;
    REQUIRE(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT) == 0);
    for (WorkerEnd& end : workers->Reap(now, false)) ends.push_back(end);
  }
  return ends;
}

}  // namespace

TEST_CASE("local workers: those that cannot be started again are tried later, each of them",
          "[cli]") {
  testing::TempDir dir;
  LocalWorkersOptions options;
  options.program = dir / "worker";
  options.log_folder = dir.path();
  options.restart_delay = absl::Seconds(1);
  WriteProgram(options.program);
  LocalWorkers workers(options);
  absl::Time now = absl::UnixEpoch();
  std::vector<std::string> started;
  REQUIRE(workers.FillTo(2, now, &started).ok());
  for (const WorkerEnd& end : ReapAll(&workers, 2, now)) CHECK(end.restart_in == absl::Seconds(1));

  std::filesystem::rename(options.program, dir / "away");
  for (const int seconds : {2, 4, 8}) {
    now = workers.NextStart();
    started.clear();
    CHECK_FALSE(workers.StartDue(now, &started).ok());
    CHECK(started.empty());
    CHECK(workers.NextStart() == now + absl::Seconds(seconds));
    CHECK_FALSE(workers.AllGone());
  }

  std::filesystem::rename(dir / "away", options.program);
  now = workers.NextStart();
  CHECK(workers.StartDue(now, &started).ok());
  CHECK(started == std::vector<std::string>{"w0", "w1"});
  ReapAll(&workers, 2, now);
}

TEST_CASE("local workers: the last words of a dead one are its reason, a warning is none",
          "[cli]") {
  testing::TempDir dir;
  LocalWorkersOptions options;
  options.program = dir / "worker";
  options.log_folder = dir.path();
  const auto reason_of = [&](const std::string& script) {
    WriteProgram(options.program, script);
    LocalWorkers workers(options);
    std::vector<std::string> started;
    REQUIRE(workers.FillTo(1, absl::UnixEpoch(), &started).ok());
    return ReapAll(&workers, 1, absl::UnixEpoch()).front().reason;
  };
  CHECK(reason_of("echo starling: the disk is full; exit 1") == "the disk is full");
  CHECK(reason_of("echo warning: odd; exit 1") == "exit code 1");
  CHECK(reason_of("echo warning: odd; kill -9 $$") == "killed by signal 9 (SIGKILL)");
}

}  // namespace starling::cli
