// `starling validate`: everything that is wrong with a config is said at once, with its place, the
// nearest key and an exit code of its own.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/starling_program.h"

namespace starling {
namespace {

using testing::Fixture;
using testing::ProgramResult;
using testing::Says;
using testing::Starling;

}  // namespace

TEST_CASE("validate: a good config is printed, and what is printed is a config", "[cli]") {
  Fixture fixture;
  const ProgramResult result =
      fixture.Validate({"--set", "training.steps=200"}, {"STARLING__TRAINING__MICRO_BATCH=8"});
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  CHECK(absl::StrContains(result.out, "# --set training.steps"));
  CHECK(absl::StrContains(result.out, "# environment STARLING__TRAINING__MICRO_BATCH"));
  CHECK(absl::StrContains(result.out, absl::StrCat("vocab_size: ", fixture.vocab_size(), "\n")));
  CHECK(absl::StrContains(result.out, "# a step: 64 samples in 8 micro-batches of 8"));
  CHECK(absl::StrContains(result.out, "heartbeat every"));

  std::ofstream(fixture.path("again.yaml")) << result.out;
  const ProgramResult again = Starling({"validate", "-c", fixture.path("again.yaml")});
  CHECK(again.exit_code == 0);
  CHECK(again.out.substr(0, again.out.find('\n')) == result.out.substr(0, result.out.find('\n')));
}

TEST_CASE("validate: an unknown key exits 78 with place and nearest key", "[cli]") {
  Fixture fixture;
  fixture.WriteConfig("training:\n  stps: 5\n");
  const ProgramResult result = fixture.Validate();
  CHECK(result.exit_code == 78);
  CHECK(Says(result,
             fixture.config() + ":4:3: training.stps: unknown key; did you mean training.steps?"));
  CHECK(result.out.empty());
}

TEST_CASE("validate: three errors are all reported at once", "[cli]") {
  Fixture fixture;
  fixture.WriteConfig("training: {steps: many, micro_batch: 5}\noptimizer: {learning_rat: 1}\n");
  const ProgramResult result = fixture.Validate();
  CHECK(result.exit_code == 78);
  CHECK(Says(result, ":3:19: training.steps: expected a whole number"));
  CHECK(Says(result, "training.global_batch: is 64, not a multiple of training.micro_batch"));
  CHECK(Says(result, ":4:13: optimizer.learning_rat: unknown key"));
  CHECK(Says(result, "the config has 3 problems"));
}

TEST_CASE("validate: wrong types and impossible batch sizes exit 78", "[cli]") {
  Fixture fixture;
  const auto [set, expected] = GENERATE(table<std::string, std::string>({
      {"training.threads=two", "expected a whole number from 1 to 1024, got \"two\""},
      {"training.exact=yes", "expected true or false, got \"yes\""},
      {"elastic.detection=3", "expected a duration"},
      {"training.global_batch=0", "expected a whole number from 1"},
      {"training.micro_batch=128", "more than training.global_batch"},
      {"training.micro_batch=7", "not a multiple of"},
  }));
  const ProgramResult result = fixture.Validate({"--set", set});
  CHECK(result.exit_code == 78);
  CHECK(Says(result, expected));
  CHECK(Says(result, "--set "));
}

TEST_CASE("validate: a missing config or token file exits 66 and is named", "[cli]") {
  Fixture fixture;
  ProgramResult result = Starling({"validate", "-c", fixture.path("none.yaml")});
  CHECK(result.exit_code == 66);
  CHECK(Says(result, "none.yaml"));

  result = fixture.Validate({"--set", "data.train=[" + fixture.path("none.tokens") + "]"});
  CHECK(result.exit_code == 66);
  CHECK(Says(result, "data.train: "));
  CHECK(Says(result, "none.tokens"));

  result = fixture.Validate({"--set", "data.tokenizer=" + fixture.path("none.json")});
  CHECK(result.exit_code == 66);
  CHECK(Says(result, "none.json"));
}

TEST_CASE("validate: a truncated or altered token file exits 65", "[cli]") {
  Fixture fixture;
  std::string bytes = testing::ReadFile(fixture.path("train.tokens"));
  const bool truncate = GENERATE(true, false);
  if (truncate) {
    bytes.resize(bytes.size() - 3);
  } else {
    bytes[130] ^= 1;
  }
  std::ofstream(fixture.path("train.tokens"), std::ios::binary) << bytes;
  const ProgramResult result = fixture.Validate();
  CHECK(result.exit_code == 65);
  CHECK(Says(result, "train.tokens"));
}

TEST_CASE("validate: a broken tokenizer exits 65", "[cli]") {
  Fixture fixture;
  const std::string path = fixture.path("bad.json");
  std::ofstream(path) << GENERATE("{\"model\": ", "{\"model\": {\"type\": \"BPE\"}}");
  const ProgramResult result = fixture.Validate({"--set", "data.tokenizer=" + path});
  CHECK(result.exit_code == 65);
  CHECK(Says(result, "bad.json"));
}

TEST_CASE("validate: tokenizer, token file and model must have one vocabulary, else 78", "[cli]") {
  Fixture fixture;
  ProgramResult result = fixture.Validate({"--set", "model.vocab_size=32000"});
  CHECK(result.exit_code == 78);
  CHECK(Says(result, "--set model.vocab_size: model.vocab_size: is 32000, but the tokenizer"));

  fixture.WriteTokens("train.tokens", 77, 1);
  result = fixture.Validate();
  CHECK(result.exit_code == 78);
  CHECK(Says(result, "train.tokens has a vocabulary of 77, but the tokenizer has"));

  fixture.WriteTokens("train.tokens", fixture.vocab_size(), 1);
  result = fixture.Validate();
  CHECK(result.exit_code == 78);
  CHECK(Says(result, "was made by another tokenizer"));
}

TEST_CASE("validate: a run folder that cannot be made exits 73", "[cli]") {
  Fixture fixture;
  const ProgramResult result =
      fixture.Validate({"--set", "run.directory=" + fixture.config() + "/run"});
  CHECK(result.exit_code == 73);
  CHECK(Says(result, "run.directory: folder "));
}

TEST_CASE("validate: a run folder without write permission exits 77", "[cli]") {
  if (geteuid() == 0) SKIP("root may write everywhere");
  Fixture fixture;
  REQUIRE(mkdir(fixture.path("locked").c_str(), 0500) == 0);
  const ProgramResult result =
      fixture.Validate({"--set", "run.directory=" + fixture.path("locked/run")});
  CHECK(result.exit_code == 77);
  CHECK(Says(result, "not writable"));
}

}  // namespace starling
