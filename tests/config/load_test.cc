// What LoadConfig accepts and what it says about the rest. Each case writes a small file and looks
// at values, places and sentences.
#include "starling/config/load.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "support/temp_dir.h"

namespace starling::config {
namespace {

class Files {
 public:
  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = dir_ / name;
    std::ofstream(path) << text;
    return path;
  }

 private:
  testing::TempDir dir_;
};

LoadedConfig LoadText(const std::string& text, const std::vector<std::string>& sets = {}) {
  Files files;
  return LoadConfig({{files.Write("c.yaml", text)}, {}, sets});
}

// The only problem, without the temporary folder's name.
std::string OnlyProblem(const LoadedConfig& loaded) {
  INFO(loaded.status().message());
  REQUIRE(loaded.problems.size() == 1);
  const std::string text = loaded.problems[0].ToString();
  const size_t file = text.find("/c.yaml");
  return file == std::string::npos ? text : text.substr(file + 1);
}

std::string OnlyProblem(const std::string& text) { return OnlyProblem(LoadText(text)); }

}  // namespace

TEST_CASE("config: nothing given, defaults are valid and resolved", "[config]") {
  const LoadedConfig loaded = LoadConfig({});
  INFO(loaded.status().message());
  REQUIRE(loaded.status().ok());
  CHECK(loaded.warnings.empty());
  CHECK(loaded.config.run.directory == "runs/run");
  CHECK(loaded.config.model.num_hidden_groups == loaded.config.model.num_hidden_layers);
  CHECK(loaded.config.optimizer.schedule.total_steps == loaded.config.training.steps);
  CHECK(loaded.config.comm.advertise_host == loaded.config.comm.bind_host);
}

TEST_CASE("config: every kind of value is read", "[config]") {
  const LoadedConfig loaded = LoadText(R"(
run: {name: ru, seed: 18446744073709551615}
data: {train: [a.tokens, "b.tokens"], tokenizer: t.json, mask_probability: 0.2,
       word_groups: corrected, short_documents: discard}
model: {layers: 4, heads: 8, hidden_size: 64, sandwich_norm: true}
training: {steps: 7, objective: mlm, sequence_length: {initial: 128, final: 512, warmup_steps: 5}}
optimizer: {name: adamw, learning_rate: 1e-4, schedule: linear, warmup_steps: 2}
elastic: {detection: 500ms, patience: 1m30s}
)");
  INFO(loaded.status().message());
  REQUIRE(loaded.status().ok());
  const Config& config = loaded.config;
  CHECK(config.run.directory == "runs/ru");
  CHECK(config.run.seed == 18446744073709551615u);
  CHECK(config.data.train == std::vector<std::string>{"a.tokens", "b.tokens"});
  CHECK(config.data.mask_probability == 0.2);
  CHECK(config.data.word_groups == WordGroupRule::kCorrected);
  CHECK(config.data.short_documents == ShortDocuments::kDiscard);
  CHECK(config.model.num_hidden_layers == 4);
  CHECK(config.model.num_hidden_groups == 4);
  CHECK(config.model.out_proj_bias == false);  // follows from sandwich_norm
  CHECK_FALSE(config.model.sop_head);          // follows from the objective
  CHECK(config.training.sequence_length.maximum == 512);
  CHECK(config.optimizer.options.name == optim::Name::kAdamW);
  CHECK(config.optimizer.options.learning_rate == 1e-4);
  CHECK(config.optimizer.schedule.name == plan::LrScheduleName::kLinear);
  CHECK(config.optimizer.schedule.total_steps == 7);
  CHECK(config.elastic.detection == absl::Milliseconds(500));
  CHECK(config.elastic.patience == absl::Seconds(90));
}

TEST_CASE("config: files, then environment, then --set; maps merge, lists are replaced",
          "[config]") {
  Files files;
  LoadRequest request;
  request.files = {
      files.Write("a.yaml", "training: {steps: 1, threads: 2}\ndata: {train: [x], tokenizer: t}\n"),
      files.Write("b.yaml", "training: {steps: 2}\ndata: {train: [y, z]}\nrun:\n")};
  request.environment = {"STARLING__TRAINING__GLOBAL_BATCH=8", "STARLING__TRAINING__STEPS=3",
                         "STARLING_ENDPOINT=ignored", "PATH=/bin"};
  request.sets = {"training.steps=4", "data.validation="};
  const LoadedConfig loaded = LoadConfig(request);
  INFO(loaded.status().message());
  REQUIRE(loaded.status().ok());
  CHECK(loaded.config.training.steps == 4);
  CHECK(loaded.config.training.global_batch == 8);
  CHECK(loaded.config.training.threads == 2);
  CHECK(loaded.config.data.train == std::vector<std::string>{"y", "z"});
  CHECK(loaded.sources.at("training.steps").ToString() == "--set training.steps");
  CHECK(loaded.sources.at("training.global_batch").ToString() ==
        "environment STARLING__TRAINING__GLOBAL_BATCH");
  CHECK(loaded.sources.at("training.threads").ToString() == request.files[0] + ":1:31");
  CHECK_FALSE(loaded.IsSet("training.micro_batch"));
}

TEST_CASE("config: an unknown key is named with its place and the nearest key", "[config]") {
  CHECK(OnlyProblem("training:\n  stps: 5\n") ==
        "c.yaml:2:3: training.stps: unknown key; did you mean training.steps?");
  CHECK(OnlyProblem("trainig: {steps: 5}\n") ==
        "c.yaml:1:1: trainig: unknown key; did you mean training?");
  // Right word, wrong section; and the reference's names.
  CHECK(OnlyProblem("run: {micro_batch: 4}\n") ==
        "c.yaml:1:7: run.micro_batch: unknown key; did you mean training.micro_batch?");
  CHECK(OnlyProblem("model: {num_hidden_layers: 4}\n") ==
        "c.yaml:1:9: model.num_hidden_layers: unknown key; did you mean model.layers?");
  CHECK(absl::StrContains(OnlyProblem("training: {qqqqqqqqqqqqqqqq: 1}\n"), "unknown key"));
}

TEST_CASE("config: all errors are reported at once, in file order", "[config]") {
  const LoadedConfig loaded =
      LoadText("training:\n  steps: many\n  stps: 1\nmodel:\n  heads: 7\noptimizer: {beta1: 1.5}\n",
               {"elastic.detection=3"});
  REQUIRE(loaded.problems.size() == 5);
  CHECK(absl::StrContains(loaded.problems[0].ToString(),
                          ":2:10: training.steps: expected a whole number from 1 to"));
  CHECK(absl::StrContains(loaded.problems[1].ToString(), ":3:3: training.stps: unknown key"));
  CHECK(absl::StrContains(loaded.problems[2].ToString(),
                          ":5:10: model.hidden_size: hidden_size 256"));
  CHECK(absl::StrContains(loaded.problems[3].ToString(), ":6:20: optimizer.beta1: beta1 is 1.5"));
  CHECK(absl::StrContains(loaded.problems[4].ToString(),
                          "--set elastic.detection: elastic.detection: expected a duration"));
  CHECK(absl::IsInvalidArgument(loaded.status()));
}

TEST_CASE("config: wrong types say what was expected and what stood there", "[config]") {
  CHECK(OnlyProblem("training: {threads: \"2\"}\n") ==
        "c.yaml:1:21: training.threads: expected a whole number from 1 to 1024, got the string "
        "\"2\"");
  CHECK(absl::StrContains(OnlyProblem("training: {threads: [1]}\n"), "got a list"));
  CHECK(absl::StrContains(OnlyProblem("training: {threads: {a: 1}}\n"), "got a section"));
  CHECK(absl::StrContains(OnlyProblem("training: {threads: }\n"), "got nothing"));
  CHECK(absl::StrContains(OnlyProblem("training: {threads: 1.5}\n"), "got \"1.5\""));
  CHECK(absl::StrContains(OnlyProblem("optimizer: {epsilon: .nan}\n"), "expected a number"));
  CHECK(absl::StrContains(OnlyProblem("training: 5\n"), "training: expected a section with keys"));
  CHECK(absl::StrContains(OnlyProblem("data: {train: [[a]], tokenizer: t}\n"), "got a list"));
  CHECK(absl::StrContains(OnlyProblem("- a\n- b\n"), "expected sections"));
}

TEST_CASE("config: only true and false are booleans", "[config]") {
  for (const char* word : {"yes", "no", "on", "off", "True", "1"}) {
    const std::string problem = OnlyProblem(std::string("model: {gated: ") + word + "}\n");
    CHECK(absl::StrContains(problem, "expected true or false"));
    CHECK(absl::StrContains(problem, word));
  }
  CHECK(LoadText("model: {gated: false}\n").status().ok());
}

TEST_CASE("config: a repeated key, broken YAML and endless trees are errors", "[config]") {
  CHECK(OnlyProblem("training:\n  steps: 1\n  steps: 2\n") ==
        "c.yaml:3:3: steps: this key stands here twice; keep one of the two");
  CHECK(absl::StrContains(OnlyProblem("training: {steps: 1\n"), "not YAML"));
  CHECK(absl::StrContains(OnlyProblem("run: {}\n---\nrun: {}\n"), "a second YAML document"));
  CHECK_FALSE(LoadText("run: &a {name: *a}\n").status().ok());
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "[";
  for (int i = 0; i < 100; ++i) deep += "]";
  CHECK_FALSE(LoadText("run: {name: " + deep + "}\n").status().ok());
}

TEST_CASE("config: a file that does not exist is not found, and named", "[config]") {
  const LoadedConfig loaded = LoadConfig({{"/nonexistent/c.yaml"}, {}, {}});
  CHECK(absl::IsNotFound(loaded.status()));
  CHECK(absl::StrContains(loaded.status().message(), "/nonexistent/c.yaml"));
}

TEST_CASE("config: impossible combinations are refused", "[config]") {
  const auto [text, expected] = GENERATE(table<std::string, std::string>({
      {"training: {global_batch: 0}", "training.global_batch: expected a whole number from 1"},
      {"training: {micro_batch: 0}", "training.micro_batch: expected a whole number from 1"},
      {"training: {global_batch: 6, micro_batch: 4}", "not a multiple of training.micro_batch"},
      {"training: {global_batch: 4, micro_batch: 8}", "more than training.global_batch"},
      {"model: {hidden_size: 100, heads: 3}", "hidden_size 100 is not a multiple of heads 3"},
      {"model: {groups: 9}", "groups is 9, more than layers (6)"},
      {"model: {sop_head: false}", "training.objective mlm_sop trains this head"},
      {"model: {position_embedding_type: absolute, max_position_embeddings: 64}",
       "training.sequence_length.final is 128"},
      {"training: {sequence_length: {initial: 512, final: 128, warmup_steps: 5}}",
       "initial is 512, but must not exceed final"},
      {"optimizer: {zero_steps: 200}", "more than optimizer.warmup_steps"},
      {"optimizer: {floor: 2}", "floor is 2"},
      {"elastic: {min_workers: 9, max_workers: 3}", "more than elastic.max_workers"},
      {"elastic: {detection: -3s}", "expected a duration of at least 150ms"},
      {"coordinator: {bind: here}", "\"here\" is no address"},
      {"coordinator: {bind: \"h:70000\"}", "is no address"},
      {"run: {name: a/b}", "\"a/b\" is no run name"},
      {"data: {train: [a.tokens]}", "data.tokenizer: is not set"},
  }));
  const std::string problem = OnlyProblem(text + "\n");
  INFO(problem);
  CHECK(absl::StrContains(problem, expected));
}

TEST_CASE("config: what this version cannot do is refused, not ignored", "[config]") {
  const std::string text =
      GENERATE("parallel: {strategy: zero1}", "parallel: {replication: 3}",
               "training: {exact: true}", "training: {precision: bf16}",
               "optimizer: {state_bits: 8}", "comm: {backend: nccl}", "comm: {backend: mpi}",
               "model: {block_size: 32}", "training: {activation_checkpointing: lean}");
  const std::string problem = OnlyProblem(text + "\n");
  INFO(problem);
  const bool says_so = absl::StrContains(problem, "not supported") ||
                       absl::StrContains(problem, "not built into this version");
  CHECK(says_so);
}

TEST_CASE("config: a bad value causes no second complaint that rests on its default", "[config]") {
  CHECK(absl::StrContains(OnlyProblem("training: {global_batch: 6, micro_batch: x}\n"),
                          "training.micro_batch"));
  CHECK(absl::StrContains(OnlyProblem("model: {heads: 3, hidden_size: x}\n"), "model.hidden_size"));
}

TEST_CASE("config: a bad value hides no problem of a key whose name contains its own", "[config]") {
  const LoadedConfig loaded = LoadText("model: {vocab_size: x, type_vocab_size: 0}\n");
  const std::string problems(loaded.status().message());
  INFO(problems);
  CHECK(absl::StrContains(problems, "model.vocab_size: expected"));
  CHECK(absl::StrContains(problems, "model.type_vocab_size: type_vocab_size"));
}

TEST_CASE("config: odd but possible settings are warnings", "[config]") {
  const LoadedConfig loaded = LoadText(
      "optimizer: {warmup_steps: 50}\ntraining: {steps: 10}\nelastic: {min_workers: 20}\n");
  INFO(loaded.status().message());
  REQUIRE(loaded.status().ok());
  REQUIRE(loaded.warnings.size() == 2);
  CHECK(absl::StrContains(loaded.warnings[0].ToString(), "fewer than elastic.min_workers (20)"));
  CHECK(absl::StrContains(loaded.warnings[1].ToString(), "c.yaml:1:27: optimizer.warmup_steps"));
}

TEST_CASE("config: the tokenizer decides the vocabulary unless set; a contradiction is an error",
          "[config]") {
  const TokenizerFacts facts{8000, 0, 2, 3};
  LoadedConfig free = LoadText("model: {eos_token_id: 3}\n");
  ApplyTokenizer(facts, "t.json", &free);
  CHECK(free.status().ok());
  CHECK(free.config.model.vocab_size == 8000);

  LoadedConfig wrong = LoadText("model: {vocab_size: 32000, pad_token_id: 1}\n");
  REQUIRE(wrong.status().ok());
  ApplyTokenizer(facts, "t.json", &wrong);
  REQUIRE(wrong.problems.size() == 2);
  CHECK(absl::StrContains(wrong.problems[0].ToString(),
                          "c.yaml:1:21: model.vocab_size: is 32000, but the tokenizer t.json says "
                          "8000"));
}

TEST_CASE("config: --set without a value or with an unknown key is refused", "[config]") {
  CHECK(OnlyProblem(LoadText("", {"training.steps"})) ==
        "--set training.steps: expected --set section.key=value");
  CHECK(OnlyProblem(LoadText("", {"training.step=5"})) ==
        "--set training.step: training.step: unknown key; did you mean training.steps?");
}

}  // namespace starling::config
