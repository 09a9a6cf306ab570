// Goal: names, shapes, order, aliases and decay groups equal the reference's, for every variant
// (names.json of each parity folder) and for the published model (p24).
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <set>
#include <string>
#include <vector>

#include "starling/model/lean_albert_layout.h"
#include "support/model_config_json.h"

namespace starling::model {
namespace {

std::vector<std::string> DecayNames(const ParameterLayout& layout, bool decay) {
  std::vector<std::string> names;
  for (size_t i = 0; i < layout.parameter_count(); ++i) {
    const std::string& name = layout.parameter(i).name;
    if (HasWeightDecay(name) == decay) names.push_back(name);
  }
  return names;
}

// `names` is a names.json.
void CheckAgainst(const ParameterLayout& layout, const nlohmann::json& names) {
  const auto& entries = names.at("entries");
  REQUIRE(layout.entries.size() == entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const LayoutEntry& ours = layout.entries[i];
    INFO(ours.name);
    CHECK(ours.name == entries[i].at("name").get<std::string>());
    CHECK(ours.shape == entries[i].at("shape").get<std::vector<int64_t>>());
    CHECK(ours.is_buffer == (entries[i].at("kind") == "buffer"));
    const auto& alias = entries[i].at("alias_of");
    CHECK(ours.alias_of == (alias.is_null() ? "" : alias.get<std::string>()));
  }
  const auto& parameters = names.at("parameters");
  REQUIRE(layout.parameter_count() == parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    CHECK(layout.parameter(i).name == parameters[i].at("name").get<std::string>());
    CHECK(layout.parameter(i).parameter == static_cast<int64_t>(i));
  }
  const auto& groups = names.at("optimizer_groups");
  CHECK(DecayNames(layout, true) == groups[0].at("params").get<std::vector<std::string>>());
  CHECK(DecayNames(layout, false) == groups[1].at("params").get<std::vector<std::string>>());
}

std::set<std::string> Names(const ParameterLayout& layout) {
  std::set<std::string> names;
  for (const LayoutEntry& entry : layout.entries) names.insert(entry.name);
  return names;
}

}  // namespace

TEST_CASE("layout: every variant lists the reference's names", "[model][parity]") {
  const std::string folder = GENERATE(
      as<std::string>{}, "p01_tiny", "p03_adapters", "p03_adapters_only", "p03_lowrank_only",
      "p04_sandwich", "p04_sandwich_bias", "p05_absolute", "p05_absolute_square", "p06_gated_gelu",
      "p06_ungated_gelu_new", "p06_ungated_relu", "p09_mask");
  INFO(folder);
  const LeanAlbertConfig config =
      testing::ConfigFromJson(testing::ParityJson(folder + "/config.json"));
  REQUIRE(config.Validate().empty());
  CheckAgainst(MakeParameterLayout(config), testing::ParityJson(folder + "/names.json"));
}

TEST_CASE("layout: every sharing case lists the reference's names", "[model][parity]") {
  const nlohmann::json cases = testing::ParityJson("p02_sharing/cases.json");
  for (const auto& row : cases.at("cases")) {
    const std::string names = row.at("names");
    INFO(names);
    CheckAgainst(MakeParameterLayout(testing::ConfigFromJson(row.at("config"))),
                 testing::ParityJson("p02_sharing/" + names));
  }
}

TEST_CASE("layout: the published model has its 403 names and exact totals", "[model][parity]") {
  const nlohmann::json published = testing::ParityJson("p24_published_names.json");
  const ParameterLayout layout =
      MakeParameterLayout(testing::ConfigFromJson(published.at("config")));
  CHECK(layout.entries.size() == published.at("n_entries").get<size_t>());
  CHECK(layout.total_values() == published.at("n_values").get<int64_t>());
  CHECK(layout.parameter_count() == published.at("n_distinct_tensors").get<size_t>());
  CHECK(layout.distinct_values() == published.at("n_distinct_values").get<int64_t>());
  const auto& entries = published.at("entries");
  REQUIRE(layout.entries.size() == entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    CHECK(layout.entries[i].name == entries[i][0].get<std::string>());
    CHECK(layout.entries[i].shape == entries[i][1].get<std::vector<int64_t>>());
    const bool alias = entries[i].size() > 2 && !entries[i][2].is_null();
    CHECK(layout.entries[i].alias_of == (alias ? entries[i][2].get<std::string>() : ""));
  }
  CHECK(DecayNames(layout, true) ==
        published.at("optimizer_group_decay").get<std::vector<std::string>>());
  CHECK(DecayNames(layout, false) ==
        published.at("optimizer_group_no_decay").get<std::vector<std::string>>());
}

TEST_CASE("layout: an untied decoder is a parameter of its own", "[model]") {
  LeanAlbertConfig config;
  const ParameterLayout tied = MakeParameterLayout(config);
  config.tie_word_embeddings = false;
  const ParameterLayout untied = MakeParameterLayout(config);
  CHECK(untied.entries.size() == tied.entries.size());
  CHECK(untied.parameter_count() == tied.parameter_count() + 1);
  CHECK(untied.distinct_values() ==
        tied.distinct_values() + config.vocab_size * config.embedding_size);
}

TEST_CASE("layout: without the sentence-order head there is no pooler either", "[model]") {
  LeanAlbertConfig config;
  std::set<std::string> with = Names(MakeParameterLayout(config));
  config.sop_head = false;
  for (const std::string& name : Names(MakeParameterLayout(config))) with.erase(name);
  CHECK(with == std::set<std::string>{"albert.pooler.weight", "albert.pooler.bias",
                                      "sop_classifier.classifier.weight",
                                      "sop_classifier.classifier.bias"});
}

}  // namespace starling::model
