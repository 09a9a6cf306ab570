// The verbs that ask and steer a run, without one.
#include <sys/stat.h>

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

TEST_CASE("status, drain, resize, checkpoint: no run, nobody there, bad arguments", "[cli]") {
  Fixture fixture;
  const std::vector<std::string> verb =
      GENERATE(std::vector<std::string>{"status"}, std::vector<std::string>{"drain", "w0"},
               std::vector<std::string>{"resize", "2"}, std::vector<std::string>{"checkpoint"});
  const auto ask = [&](std::vector<std::string> more) {
    more.insert(more.begin(), verb.begin(), verb.end());
    const ProgramResult result = Starling(more);
    CHECK(result.out.empty());
    return result;
  };
  CHECK(ask({"--run", fixture.path("none")}).exit_code == 66);
  REQUIRE(mkdir(fixture.path("r").c_str(), 0700) == 0);
  ProgramResult result = ask({"--run", fixture.path("r")});
  CHECK(result.exit_code == 66);
  CHECK(Says(result, "is no run folder"));
  std::ofstream(fixture.path("r/config.resolved.yaml")) << "run: {}\n";
  result = ask({"--run", fixture.path("r")});
  CHECK(result.exit_code == 69);
  CHECK(Says(result, "nothing is running in "));
  CHECK(ask({"--endpoint", "127.0.0.1:1", "--timeout", "200ms"}).exit_code == 69);
  CHECK(ask({"--endpoint", "127.0.0.1:1", "--timeout", "later"}).exit_code == 64);
  CHECK(ask({"--endpoint", "nonsense", "--timeout", "200ms"}).exit_code == 64);
  CHECK(Starling({"drain"}).exit_code == 64);
  CHECK(Starling({"resize"}).exit_code == 64);
  CHECK(Starling({"resize", "many"}).exit_code == 64);
  CHECK(Starling({"status", "-o", "xml"}).exit_code == 64);
}

TEST_CASE("events: a table for people, the file's lines for programs", "[cli]") {
  Fixture fixture;
  CHECK(Starling({"events", "--run", fixture.path("none")}).exit_code == 66);
  REQUIRE(mkdir(fixture.path("r").c_str(), 0700) == 0);
  const std::string line =
      R"({"time":"2031-01-02T03:04:05.678901Z","mono_ns":1,"term":1,"generation":3,"event":"view",)"
      R"("worker":"","reason":"w1 killed","members":2,"phase_ms":{"detect":4.0,"form":11.6}})";
  std::ofstream(fixture.path("r/events.jsonl")) << line << "\n"
                                                << R"({"time":"half a li)";
  ProgramResult result = Starling({"events", "--run", fixture.path("r")});
  CHECK(result.exit_code == 0);
  CHECK(result.out ==
        "2031-01-02 03:04:05  gen 3    view                            w1 killed"
        " [2 members; detect 4 ms form 12 ms]\n");
  result = Starling({"events", "--run", fixture.path("r"), "-o", "json"});
  CHECK(result.out == line + "\n");
}

}  // namespace starling
