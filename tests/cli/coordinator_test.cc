// `starling coordinator` as a process of its own.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <string>

#include "cli/starling_program.h"
#include "cli/watch.h"

namespace starling {

using testing::Fixture;
using testing::ReadFile;
using testing::Watch;

TEST_CASE("coordinator: the run folder has every file, whatever its name holds", "[cli]") {
  Fixture fixture;
  const std::string run = fixture.path("it's: [a] #run");
  const std::string err = fixture.path("err");
  const pid_t pid = testing::StartProgram(
      {STARLING_BINARY, "coordinator", "-c", fixture.config(), "--run-dir", run}, {},
      fixture.path("out"), err);
  const Watch watch(pid, {fixture.path(""), run});
  const auto is_there = [&](const std::string& file) {
    return access((run + "/" + file).c_str(), F_OK) == 0;
  };
  // Config and endpoint are written last; the log's first line comes from a thread of its own.
  const bool listens = watch.Await([&] {
    return is_there("config.resolved.yaml") && is_there("endpoint") &&
           !ReadFile(run + "/coordinator.log").empty();
  });
  INFO(ReadFile(err));
  CHECK(listens);
  CHECK(is_there("token"));
  CHECK(testing::Starling({"validate", "-c", run + "/config.resolved.yaml"}).exit_code == 0);
  kill(pid, SIGTERM);
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 75);
}

}  // namespace starling
