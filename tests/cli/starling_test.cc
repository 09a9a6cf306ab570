// The program `starling` as a whole: help, wrong command lines, what every verb has in common.
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "cli/starling_program.h"

namespace starling {
namespace {

using testing::ProgramResult;
using testing::Says;
using testing::Starling;

}  // namespace

TEST_CASE("starling: help goes to standard output and shows examples", "[cli]") {
  const std::vector<std::string> verb =
      GENERATE(std::vector<std::string>{"tokenizer", "train"}, std::vector<std::string>{"prepare"},
               std::vector<std::string>{"validate"}, std::vector<std::string>{"version"},
               std::vector<std::string>{"run"}, std::vector<std::string>{"coordinator"},
               std::vector<std::string>{"status"}, std::vector<std::string>{"events"},
               std::vector<std::string>{"drain"}, std::vector<std::string>{"resize"},
               std::vector<std::string>{"checkpoint"});
  std::vector<std::string> arguments = verb;
  arguments.push_back("--help");
  const ProgramResult result = Starling(arguments);
  CHECK(result.exit_code == 0);
  CHECK(absl::StrContains(result.out, "Examples:\n  starling " + verb[0]));
  CHECK(result.err.empty());
}

TEST_CASE("starling: the general help lists the verbs", "[cli]") {
  const ProgramResult result = Starling({"--help"});
  CHECK(result.exit_code == 0);
  for (const char* verb : {"tokenizer", "prepare", "validate", "version", "run", "status", "events",
                           "drain", "resize", "checkpoint"}) {
    CHECK(absl::StrContains(result.out, verb));
  }
}

TEST_CASE("starling: usage errors exit 64 and suggest what was meant", "[cli]") {
  ProgramResult result = Starling({"valdate"});
  CHECK(result.exit_code == 64);
  CHECK(Says(result, "unknown verb \"valdate\"; did you mean \"validate\"?"));
  CHECK(result.out.empty());

  result = Starling({"tokenizer", "trian"});
  CHECK(result.exit_code == 64);
  CHECK(Says(result, "did you mean \"train\"?"));

  result = Starling({"validate", "--confg", "x.yaml"});
  CHECK(result.exit_code == 64);
  CHECK(Says(result, "did you mean --config?"));

  CHECK(Starling({}).exit_code == 64);
  CHECK(Starling({"prepare"}).exit_code == 64);
  CHECK(Starling({"prepare", "--input", "x", "--output", "y"}).exit_code == 64);
  CHECK(Starling({"prepare", "--input", "x", "--output", "y", "--jobs", "many"}).exit_code == 64);
}

TEST_CASE("starling: a misspelt option is named, also where its right form is required", "[cli]") {
  const ProgramResult result =
      Starling({"prepare", "--tokenizer", "t", "--input", "x", "--outptu", "y"});
  CHECK(result.exit_code == 64);
  CHECK(Says(result, "unknown option --outptu; did you mean --output?"));
}

TEST_CASE("starling: results that cannot be written exit 74", "[cli]") {
  const std::string verb = GENERATE("version", "validate", "--help");
  testing::TempDir dir;
  REQUIRE(symlink("/dev/full", (dir / "out").c_str()) == 0);
  const pid_t pid = testing::StartProgram({STARLING_BINARY, verb}, {}, dir / "out", dir / "err");
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 74);
  CHECK(absl::StrContains(testing::ReadFile(dir / "err"), "cannot write to standard output"));
}

TEST_CASE("starling: version is one line of data", "[cli]") {
  const ProgramResult result = Starling({"version"});
  CHECK(result.exit_code == 0);
  CHECK(absl::StartsWith(result.out, "starling 0."));
}

}  // namespace starling
