// Goal: a bad model configuration is refused with a sentence that names the field; the sharing
// formulas give the reference's tables (parity set p02).
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "starling/model/lean_albert_config.h"
#include "support/model_config_json.h"

namespace starling::model {
namespace {

struct BadConfig {
  std::string field;  // must begin the sentence
  std::function<void(LeanAlbertConfig*)> spoil;
};

std::vector<BadConfig> BadConfigs() {
  using C = LeanAlbertConfig;
  return {
      {"hidden_size", [](C* c) { c->hidden_size = 0; }},
      {"hidden_size", [](C* c) { c->num_attention_heads = 63; }},
      {"hidden_size / num_attention_heads", [](C* c) { c->num_attention_heads = 4096; }},
      {"num_hidden_layers", [](C* c) { c->num_hidden_layers = -1; }},
      {"num_hidden_groups", [](C* c) { c->num_hidden_groups = 33; }},
      {"num_inner_groups", [](C* c) { c->num_inner_groups = 0; }},
      {"share_large_matrices", [](C* c) { c->share_large_matrices = 33; }},
      {"num_inner_matrices", [](C* c) { c->num_inner_matrices = 2; }},
      {"adapter_dim", [](C* c) { c->adapter_dim = 4; }},
      {"lowrank_dim", [](C* c) { c->lowrank_dim = -4; }},
      {"intermediate_size", [](C* c) { c->intermediate_size = 0; }},
      {"block_size", [](C* c) { c->block_size = 32; }},
      {"hidden_act", [](C* c) { c->hidden_act = "swish"; }},
      {"position_embedding_type", [](C* c) { c->position_embedding_type = "relative"; }},
      {"hidden_dropout_prob", [](C* c) { c->hidden_dropout_prob = 1; }},
      {"attention_probs_dropout_prob", [](C* c) { c->attention_probs_dropout_prob = -0.1; }},
      {"classifier_dropout_prob", [](C* c) { c->classifier_dropout_prob = std::nan(""); }},
      {"layer_norm_eps", [](C* c) { c->layer_norm_eps = 0; }},
      {"rotary_embedding_base", [](C* c) { c->rotary_embedding_base = INFINITY; }},
      {"initializer_range", [](C* c) { c->initializer_range = -1; }},
      {"type_vocab_size", [](C* c) { c->type_vocab_size = 0; }},
      {"pad_token_id", [](C* c) { c->pad_token_id = 30000; }},
      {"num_labels", [](C* c) { c->num_labels = 0; }},
  };
}

}  // namespace

TEST_CASE("model config: defaults are valid", "[model]") {
  CHECK(LeanAlbertConfig().Validate().empty());
  CHECK(LeanAlbertConfig().initializer_std() == std::sqrt(2.0 / (5 * 4096.0)));
  CHECK(LeanAlbertConfig().has_out_proj_bias());
}

TEST_CASE("model config: a bad field gives one sentence that names it", "[model]") {
  for (const BadConfig& bad : BadConfigs()) {
    LeanAlbertConfig config;
    bad.spoil(&config);
    INFO(bad.field);
    const std::vector<std::string> problems = config.Validate();
    REQUIRE(problems.size() == 1);
    CHECK(problems.front().starts_with(bad.field + " "));
  }
}

TEST_CASE("model config: all problems are listed at once", "[model]") {
  LeanAlbertConfig config;
  config.block_size = 8;
  config.hidden_act = "sin";
  config.vocab_size = -3;
  CHECK(config.Validate().size() == 3);
}

TEST_CASE("sharing: groups and matrix sets equal the reference's tables", "[model][parity]") {
  const nlohmann::json cases = testing::ParityJson("p02_sharing/cases.json");
  for (const auto& row : cases.at("layer_to_group")) {
    const auto groups = row.at("group_of_application").get<std::vector<int64_t>>();
    for (size_t layer = 0; layer < groups.size(); ++layer) {
      CHECK(GroupOfLayer(static_cast<int64_t>(layer), row.at("num_hidden_layers"),
                         row.at("num_hidden_groups")) == groups[layer]);
    }
  }
  for (const auto& row : cases.at("layer_to_set")) {
    const auto sets = row.at("matrix_set").get<std::vector<int64_t>>();
    for (size_t index = 0; index < sets.size(); ++index) {
      CHECK(MatrixSet(static_cast<int64_t>(index), row.at("total_layers"), row.at("num_shared"),
                      row.at("num_inner")) == sets[index]);
    }
  }
  for (const auto& row : cases.at("cases")) {
    const LeanAlbertConfig config = testing::ConfigFromJson(row.at("config"));
    REQUIRE(config.Validate().empty());
    for (const auto& layer : row.at("distinct_layers")) {
      CHECK(MatrixSet(layer.at("index"), config.distinct_layers(), config.share_large_matrices,
                      config.num_inner_matrices) == layer.at("matrix_set"));
    }
  }
}

TEST_CASE("sharing: 18 layers in 14 groups round as doubles do", "[model]") {
  CHECK(GroupOfLayer(9, 18, 14) == 6);
  CHECK(9 * 14 / 18 == 7);
}

}  // namespace starling::model
