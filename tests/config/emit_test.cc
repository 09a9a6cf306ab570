// Resolved YAML reads back to the same config, and fingerprints change exactly with the meaning.
// Also: every file in configs/ loads.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "starling/config/config.h"
#include "starling/config/load.h"
#include "support/temp_dir.h"

namespace starling::config {
namespace {

LoadedConfig LoadSets(const std::vector<std::string>& sets) { return LoadConfig({{}, {}, sets}); }

uint64_t HashOf(const std::vector<std::string>& sets) {
  const LoadedConfig loaded = LoadSets(sets);
  INFO(loaded.status().message());
  REQUIRE(loaded.status().ok());
  return ConfigHash(loaded.config);
}

}  // namespace

TEST_CASE("resolved config: reads back to the same values and hashes", "[config]") {
  const LoadedConfig loaded = LoadSets(
      {"run.name=\"007\"", "run.directory=\"a b: \\\"c\\\\d #e\"", "run.seed=12345678901234567890",
       "data.train=[\"x, y\", true, 'z']", "data.tokenizer=t.json", "data.mask_probability=0.1",
       "model.sandwich_norm=true", "model.layer_norm_eps=1e-12", "training.objective=mlm",
       "training.steps=77", "optimizer.clamp=1e9", "elastic.detection=1500ms",
       "coordinator.http=\"\"", "comm.shared_memory=false", "optimizer.name=adamw"});
  INFO(loaded.status().message());
  REQUIRE(loaded.status().ok());
  const bool with_sources = GENERATE(false, true);
  const std::string yaml = ToYaml(loaded.config, with_sources ? &loaded.sources : nullptr);
  testing::TempDir dir;
  std::ofstream(dir / "r.yaml") << yaml;
  const LoadedConfig again = LoadConfig({{dir / "r.yaml"}, {}, {}});
  INFO(yaml << again.status().message());
  REQUIRE(again.status().ok());
  CHECK(ToYaml(again.config) == ToYaml(loaded.config));
  CHECK(again.config.run.directory == "a b: \"c\\d #e");
  CHECK(again.config.data.train == std::vector<std::string>{"x, y", "true", "z"});
  CHECK(again.config.coordinator.http.empty());
  CHECK(ConfigHash(again.config) == ConfigHash(loaded.config));
  CHECK(absl::StrContains(yaml, "# --set run.name") == with_sources);
}

TEST_CASE("config hash: changes with what a step means", "[config]") {
  const uint64_t base = HashOf({});
  const std::string set = GENERATE(
      "run.seed=2", "model.hidden_size=512", "model.hidden_dropout_prob=0.1", "training.steps=2000",
      "training.global_batch=128", "training.micro_batch=8", "training.objective=mlm",
      "training.sequence_length.final=256", "optimizer.learning_rate=1e-3", "optimizer.name=adamw",
      "optimizer.schedule=linear", "optimizer.warmup_steps=7", "data.mask_probability=0.2",
      "data.word_groups=corrected", "data.short_documents=discard", "data.pad_to_multiple=64");
  INFO(set);
  CHECK(HashOf({set}) != base);
}

TEST_CASE("config hash: ignores what leaves steps as they are, and how a value was given",
          "[config]") {
  const uint64_t base = HashOf({});
  const std::string set =
      GENERATE("run.name=other", "run.directory=/tmp/x", "data.validation=v.tokens",
               "data.tokenizer=t", "training.threads=4", "training.digest_every=10",
               "elastic.detection=9s", "elastic.max_workers=3", "comm.shared_memory=false",
               "checkpoint.every_steps=7", "coordinator.bind=0.0.0.0:1", "training.steps=1000",
               "model.groups=6", "model.out_proj_bias=true", "optimizer.learning_rate=0.0025");
  INFO(set);
  CHECK(HashOf({set}) == base);
}

TEST_CASE("model hash: unset fields and their derived values are the same model", "[config]") {
  model::LeanAlbertConfig model = DefaultModel();
  const uint64_t hash = ModelHash(model);
  model.num_hidden_groups = 6;
  model.out_proj_bias = true;
  model.initializer_range = model.initializer_std();
  CHECK(ModelHash(model) == hash);
  model.adapter_dim = 4;
  CHECK(ModelHash(model) != hash);
}

TEST_CASE("configs: every file loads without problem or warning", "[config]") {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(STARLING_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".yaml") continue;
    const LoadedConfig loaded = LoadConfig({{entry.path().string()}, {}, {}});
    INFO(loaded.status().message());
    CHECK(loaded.status().ok());
    for (const Problem& warning : loaded.warnings) FAIL_CHECK(warning.ToString());
    ++count;
  }
  CHECK(count >= 4);
}

}  // namespace starling::config
