// `starling run`: what is wrong is said before anything starts. Runs that train are in
// tests/multiproc.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "cli/starling_program.h"

namespace starling {
namespace {

using testing::Fixture;
using testing::ProgramResult;
using testing::Says;
using testing::Starling;

}  // namespace

TEST_CASE("run, validate: a config without data is refused before anything starts", "[cli]") {
  Fixture fixture;
  const std::string config = fixture.path("empty.yaml"), folder = fixture.path("none");
  std::ofstream(config) << "run: {directory: " << folder << "}\n";
  const std::vector<std::string> verb =
      GENERATE(std::vector<std::string>{"run", "-n", "1"}, std::vector<std::string>{"validate"});
  std::vector<std::string> arguments = verb;
  arguments.insert(arguments.end(), {"-c", config});
  const ProgramResult result = Starling(arguments);
  CHECK(result.exit_code == 78);
  CHECK(Says(result, "data.tokenizer: names no tokenizer"));
  CHECK(Says(result, "data.train: names no token file"));
  CHECK(access(folder.c_str(), F_OK) != 0);
  CHECK(Starling({"validate"}).exit_code == 0);
}

TEST_CASE("run: what is wrong is said before anything starts", "[cli]") {
  Fixture fixture;
  const auto run = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run", "-c", fixture.config(), "-n", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Starling(arguments);
  };
  CHECK(Starling({"run", "-c", fixture.config()}).exit_code == 64);
  CHECK(Starling({"run", "-c", fixture.path("none.yaml"), "-n", "1"}).exit_code == 66);
  CHECK(run({"--restart-delay", "soon"}).exit_code == 64);
  ProgramResult result = run({"--set", "elastic.max_workers=0"});
  CHECK(result.exit_code == 78);
  result = Starling({"run", "-c", fixture.config(), "-n", "65"});
  CHECK(result.exit_code == 64);
  CHECK(Says(result, "--workers 65 is outside elastic.min_workers 1"));
  CHECK(run({"--set", "data.train=[" + fixture.path("none.tokens") + "]"}).exit_code == 66);
  CHECK(run({"--set", "run.directory=" + fixture.config() + "/run"}).exit_code == 73);
  std::ofstream(fixture.path("train.tokens"), std::ios::binary) << "STARLING?";
  CHECK(run({}).exit_code == 65);
  CHECK(access(fixture.path("run").c_str(), F_OK) != 0);
}

}  // namespace starling
