// `starling simulate`: equal seeds give equal output to the byte, a trace is written, and a wrong
// command line exits 64.
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "cli/starling_program.h"
#include "support/temp_dir.h"

namespace starling {

using testing::ProgramResult;
using testing::Says;
using testing::Starling;

TEST_CASE("simulate: a seed gives the same output and trace to the byte", "[cli]") {
  testing::TempDir dir;
  const auto run = [&](const char* seed, const char* trace) {
    return Starling({"simulate", "--seed", seed, "--workers", "6", "--hours", "0.01", "--detection",
                     "1", "--trace", dir / trace});
  };
  const auto text = [&](const char* name) {
    std::ifstream file(dir / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const ProgramResult one = run("5", "one"), two = run("5", "two"), other = run("6", "other");
  CHECK(one.exit_code == 0);
  CHECK(one.err.empty());
  CHECK(one.out == two.out);
  CHECK(one.out != other.out);
  CHECK(!text("one").empty());
  CHECK(text("one") == text("two"));
  for (const char* label :
       {"seed            5\n", "workers         6\n", "simulated time  0:00:36\n", "generations",
        "steps", "member stall", "violations      0\n"}) {
    INFO(label);
    CHECK(absl::StrContains(one.out, label));
  }
}

TEST_CASE("simulate: without faults nothing is computed twice", "[cli]") {
  const ProgramResult result =
      Starling({"simulate", "--workers", "5", "--hours", "0.02", "--faults", "none"});
  CHECK(result.exit_code == 0);
  CHECK(absl::StrContains(result.out, ", 0 of them again (0.00 %)"));
  CHECK(absl::StrContains(result.out, "generations     1\n"));
}

TEST_CASE("simulate: a wrong command line exits 64 and says what would be right", "[cli]") {
  ProgramResult result = Starling({"simulate", "--faults", "crush"});
  CHECK(result.exit_code == 64);
  CHECK(Says(result, "unknown fault \"crush\"; did you mean crash?"));
  result = Starling({"simulate", "--workers", "0"});
  CHECK(result.exit_code == 64);
  CHECK(Says(result, "--workers"));
  result = Starling({"simulate", "--hours", "soon"});
  CHECK(result.exit_code == 64);
  result = Starling({"simulate", "--trace", "/nowhere/trace"});
  CHECK(result.exit_code == 73);
}

}  // namespace starling
