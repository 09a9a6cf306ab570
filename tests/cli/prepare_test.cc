// `starling tokenizer train` and `starling prepare`: what they make is taken by the other verbs,
// what they are not given says so, and nothing is destroyed.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/starling_program.h"

namespace starling {
namespace {

using testing::Fixture;
using testing::kTokenizer;
using testing::ProgramResult;
using testing::Says;
using testing::Starling;

}  // namespace

TEST_CASE("prepare: text becomes a token file that validate accepts", "[cli]") {
  Fixture fixture;
  std::ofstream(fixture.path("a.txt")) << "Мама мыла раму. Рама была чистой.\nИ всё.\n\nВторой.\n";
  const std::string output = fixture.path("new.tokens");
  const ProgramResult result = Starling(
      {"prepare", "--tokenizer", kTokenizer, "--input", fixture.path("a.txt"), "--output", output});
  CHECK(result.exit_code == 0);
  CHECK(result.out.empty());
  CHECK(Says(result, "new.tokens: 2 documents, 4 sentences"));
  CHECK(fixture.Validate({"--set", "data.train=" + output}).exit_code == 0);

  // The same through a config; without splitting at line breaks there are fewer sentences only
  // where no stop ends a line, so here the counts stay.
  CHECK(Starling({"prepare", "--config", fixture.config(), "--input", fixture.path("a.txt"),
                  "--output", fixture.path("other.tokens")})
            .exit_code == 0);
  CHECK(testing::ReadFile(fixture.path("other.tokens")) == testing::ReadFile(output));

  // What the command line gives instead of the config's need not be there.
  CHECK(Starling({"prepare", "--config", fixture.config(), "--set",
                  "data.tokenizer=" + fixture.path("none.json"), "--tokenizer", kTokenizer,
                  "--input", fixture.path("a.txt"), "--output", fixture.path("third.tokens")})
            .exit_code == 0);
}

TEST_CASE("prepare: bad input, missing input and unwritable output have their own codes", "[cli]") {
  Fixture fixture;
  std::ofstream(fixture.path("a.jsonl")) << "{\"text\": \"Раз. Два.\"}\n{\"text\": \n";
  const auto prepare = [&](const std::string& input, const std::string& output,
                           std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"prepare",           "--tokenizer",       kTokenizer,
                                          "--input",           fixture.path(input), "--output",
                                          fixture.path(output)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Starling(arguments);
  };
  ProgramResult result = prepare("a.jsonl", "x.tokens");
  CHECK(result.exit_code == 65);
  CHECK(Says(result, "a.jsonl:2"));
  CHECK(testing::ReadFile(fixture.path("x.tokens")).empty());

  result = prepare("a.jsonl", "x.tokens", {"--skip-bad"});
  CHECK(result.exit_code == 0);
  CHECK(Says(result, "1 bad documents skipped"));

  result = prepare("none.jsonl", "y.tokens");
  CHECK(result.exit_code == 66);
  CHECK(Says(result, "none.jsonl"));

  result = prepare("a.jsonl", "c.yaml/y.tokens");  // below a file
  CHECK(result.exit_code == 73);
  CHECK(Says(result, "c.yaml"));
}

TEST_CASE("prepare, tokenizer train: an output that would destroy something is refused", "[cli]") {
  Fixture fixture;
  const std::string text = "Раз, два, три.\n\nЧетыре, пять.\n";
  const std::string input = fixture.path("a.txt");
  std::ofstream(input) << text;
  REQUIRE(mkdir(fixture.path("d").c_str(), 0700) == 0);
  REQUIRE(symlink(input.c_str(), fixture.path("link").c_str()) == 0);
  const std::vector<std::string> verb =
      GENERATE(std::vector<std::string>{"prepare", "--tokenizer", kTokenizer},
               std::vector<std::string>{"tokenizer", "train", "--vocab-size", "30"});
  const auto write = [&](const std::string& from, const std::string& to,
                         std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = verb;
    more.insert(more.begin(), {"--input", from, "--output", to});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Starling(arguments);
  };
  const bool linked = GENERATE(false, true);
  ProgramResult result = write(input, linked ? fixture.path("link") : input);
  CHECK(result.exit_code == 64);
  CHECK(Says(result, "is one of the files to read"));
  result = write(input, fixture.path("d"));
  CHECK(result.exit_code == 73);
  CHECK(Says(result, "is a folder"));
  CHECK(write(input, fixture.path("d/")).exit_code == 64);
  result = write(input, "/dev/null");
  CHECK(result.exit_code == 73);
  CHECK(Says(result, "/dev/null is no ordinary file"));
  if (verb[0] == "prepare") {
    CHECK(write(input, kTokenizer).exit_code == 64);
    const std::string validation = fixture.path("x.validation.tokens");
    std::ofstream(validation) << text;
    result = write(validation, fixture.path("x.tokens"), {"--validation-fraction", "0.5"});
    CHECK(result.exit_code == 64);
    CHECK(testing::ReadFile(validation) == text);
  }
  CHECK(testing::ReadFile(input) == text);
}

TEST_CASE("prepare: a signal stops it, and leaves no file behind", "[cli]") {
  const auto [signal, code] = GENERATE(table<int, int>({{SIGINT, 130}, {SIGTERM, 75}}));
  testing::TempDir dir;
  const std::string pipe = dir / "text.txt", folder = dir / "out";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  REQUIRE(mkdir(folder.c_str(), 0700) == 0);
  const pid_t pid = testing::StartProgram({STARLING_BINARY, "prepare", "--tokenizer", kTokenizer,
                                           "--input", pipe, "--output", folder + "/x.tokens"},
                                          {}, dir / "stdout", dir / "err");
  // Opening waits for the reader, which has set its handlers by then; the text ends after the
  // signal, so that there is always something left to stop.
  std::ofstream text(pipe);
  REQUIRE(kill(pid, signal) == 0);
  text << "Раз, два, три.\n";
  text.close();
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  INFO(testing::ReadFile(dir / "err"));
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == code);
  CHECK(std::filesystem::is_empty(folder));
}

TEST_CASE("tokenizer train: makes a tokenizer that prepare and validate take", "[cli]") {
  Fixture fixture;
  std::ofstream text(fixture.path("a.txt"));
  for (int i = 0; i < 300; ++i) text << "Мама мыла раму, а рама была чистой. Раз, два, три.\n";
  text.close();
  const std::string output = fixture.path("t/tokenizer.json");
  const auto train = [&](const std::string& input, const std::string& size) {
    return Starling({"tokenizer", "train", "--input", fixture.path(input), "--vocab-size", size,
                     "--output", output});
  };
  ProgramResult result = train("a.txt", "27");
  CHECK(result.exit_code == 0);
  CHECK(result.out.empty());
  CHECK(Says(result, "tokenizer.json: 27 pieces"));
  const std::string tokens = fixture.path("n.tokens");
  CHECK(Starling({"prepare", "--tokenizer", output, "--input", fixture.path("a.txt"), "--output",
                  tokens})
            .exit_code == 0);
  CHECK(fixture.Validate({"--set", "data.tokenizer=" + output, "--set", "data.train=" + tokens})
            .exit_code == 0);

  CHECK(train("none.txt", "27").exit_code == 66);
  CHECK(train("a.txt", "2000000").exit_code == 64);
}

}  // namespace starling
