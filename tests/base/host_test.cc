// Processes that die while they are asked about.
#include "starling/base/host.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <thread>

namespace starling {

TEST_CASE("host: this process lives, a number that nobody has does not", "[base]") {
  CHECK_FALSE(ProcessIsGone(getpid()));
  CHECK(ProcessIsGone(0));
  CHECK(ProcessIsGone(int64_t{1} << 30));  // above the kernel's largest pid
}

TEST_CASE("host: a process may die and be reaped in the middle of the question", "[base]") {
  for (int round = 0; round < 300; ++round) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    REQUIRE(child > 0);
    std::thread reaper([child] { waitpid(child, nullptr, 0); });
    while (!ProcessIsGone(child)) {
    }
    reaper.join();
  }
  SUCCEED("every question was answered");
}

}  // namespace starling
