// The program `starling` as a user meets it: exit codes, and messages that name the thing, the
// value and the way out. Each case runs the real binary.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/run_program.h"
#include "starling/data/token_file.h"
#include "starling/data/tokenizer.h"
#include "support/temp_dir.h"

namespace starling {
namespace {

using testing::ProgramResult;

constexpr char kTokenizer[] =
    STARLING_SOURCE_DIR "/tests/parity/vectors/p18_instances/tokenizer.json";

ProgramResult Starling(std::vector<std::string> arguments,
                       const std::vector<std::string>& environment = {}) {
  arguments.insert(arguments.begin(), STARLING_BINARY);
  ProgramResult result = testing::RunProgram(arguments, environment);
  UNSCOPED_INFO("exit code " << result.exit_code << "\nstderr: " << result.err);
  return result;
}

bool Says(const ProgramResult& result, const std::string& text) {
  UNSCOPED_INFO("expected: " << text);
  return absl::StrContains(result.err, text);
}

// A folder with a tokenizer's token file and a config that fits both.
class Fixture {
 public:
  Fixture() {
    const auto tokenizer = data::Tokenizer::Load(kTokenizer);
    REQUIRE(tokenizer.ok());
    vocab_size_ = tokenizer->vocab_size();
    WriteTokens("train.tokens", vocab_size_, tokenizer->hash());
    WriteConfig("");
  }

  void WriteTokens(const std::string& name, uint64_t vocab_size, uint64_t hash) {
    auto writer = data::TokenFileWriter::Create(dir_ / name, vocab_size, hash);
    REQUIRE(writer.ok());
    const std::vector<int32_t> ids = {5, 6, 7, 8};
    const std::vector<uint32_t> lengths = {2, 2};
    REQUIRE((*writer)->AddDocument(ids, lengths).ok());
    REQUIRE((*writer)->Finish().ok());
  }

  void WriteConfig(const std::string& more) {
    std::ofstream(config()) << "run: {directory: " << (dir_ / "run") << "}\n"
                            << "data: {train: [" << (dir_ / "train.tokens")
                            << "], tokenizer: " << kTokenizer << "}\n"
                            << more;
  }

  std::string config() const { return dir_ / "c.yaml"; }
  std::string path(const std::string& name) const { return dir_ / name; }
  int32_t vocab_size() const { return vocab_size_; }

  ProgramResult Validate(std::vector<std::string> more = {},
                         const std::vector<std::string>& environment = {}) const {
    std::vector<std::string> arguments = {"validate", "--config", config()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Starling(arguments, environment);
  }

 private:
  testing::TempDir dir_;
  int32_t vocab_size_ = 0;
};

}  // namespace

TEST_CASE("starling: help goes to standard output and shows examples", "[cli]") {
  const std::vector<std::string> verb =
      GENERATE(std::vector<std::string>{"tokenizer", "train"}, std::vector<std::string>{"prepare"},
               std::vector<std::string>{"validate"}, std::vector<std::string>{"version"},
               std::vector<std::string>{"run"}, std::vector<std::string>{"status"},
               std::vector<std::string>{"events"}, std::vector<std::string>{"drain"},
               std::vector<std::string>{"resize"}, std::vector<std::string>{"checkpoint"});
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
