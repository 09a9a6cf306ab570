// Goal: version 0 of the weights follows §1.10's rules, depends on the seed and the element's place
// only, and stays the same bits for ever (a frozen digest).
#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "starling/base/crc32c.h"
#include "starling/model/lean_albert_layout.h"

namespace starling::model {
namespace {

LeanAlbertConfig SmallConfig() {
  LeanAlbertConfig config;
  config.hidden_size = 64;
  config.num_attention_heads = 4;
  config.intermediate_size = 128;
  config.num_hidden_layers = 2;
  config.share_large_matrices = 1;
  config.adapter_dim = 8;
  config.lowrank_dim = 4;
  config.vocab_size = 500;
  config.embedding_size = 32;
  config.pad_token_id = 3;
  return config;
}

std::vector<float> Initial(const ParameterLayout& layout, size_t parameter, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(layout.parameter(parameter).element_count()));
  FillInitialValues(layout, parameter, seed, 0, values);
  return values;
}

std::map<std::string, std::vector<float>> AllInitial(const ParameterLayout& layout, uint64_t seed) {
  std::map<std::string, std::vector<float>> values;
  for (size_t i = 0; i < layout.parameter_count(); ++i) {
    values[layout.parameter(i).name] = Initial(layout, i, seed);
  }
  return values;
}

double Deviation(const std::vector<float>& values) {
  double sum = 0;
  for (float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum / static_cast<double>(values.size()));
}

}  // namespace

TEST_CASE("normal quantiles: known values in the centre and both tails", "[model]") {
  // Reference values from another implementation of the normal quantile.
  CHECK(InverseNormal(0.5) == 0.0);
  CHECK(InverseNormal(0.6) == Catch::Approx(0.25334710313579978).epsilon(1e-14));
  CHECK(InverseNormal(0.975) == Catch::Approx(1.9599639845400539).epsilon(1e-14));
  CHECK(InverseNormal(0.025) == Catch::Approx(-1.9599639845400539).epsilon(1e-14));
  CHECK(InverseNormal(1e-5) == Catch::Approx(-4.2648907939228246).epsilon(1e-13));
  CHECK(InverseNormal(1e-14) == Catch::Approx(-7.6506280929352686).epsilon(1e-13));
  CHECK(InverseNormal(0x1.0p-53) == Catch::Approx(-8.2095361516013874).epsilon(1e-12));
}

TEST_CASE("version 0: each kind of tensor has its distribution", "[model]") {
  const LeanAlbertConfig config = SmallConfig();
  const auto values = AllInitial(MakeParameterLayout(config), 7);
  const std::string layer = "albert.transformer.layer_groups.0.layers.0.";
  const double std = config.initializer_std();
  const auto close = [](double target) { return Catch::Approx(target).epsilon(0.05); };
  CHECK(Deviation(values.at(layer + "ffn.dense_h2o.shared_matrix.weight")) == close(std));
  CHECK(Deviation(values.at("albert.embeddings.embedding_hidden_mapping.weight")) == close(std));
  CHECK(Deviation(values.at(layer + "attention.dense_qkv.shared_matrix.lowrank_second")) ==
        Catch::Approx(std::sqrt(2.0 / (5 * 64))).epsilon(0.1));
  CHECK(Deviation(values.at(layer + "ffn.dense_h2o.adapter_first")) ==
        Catch::Approx(std::sqrt(2.0 / (128 + 8))).epsilon(0.1));
  CHECK(Deviation(values.at(layer + "ffn.dense_h2o.adapter_second")) == 0);
  CHECK(Deviation(values.at(layer + "ffn.dense_i2h.bias")) == 0);
  CHECK(values.at(layer + "ffn.layer_norm.weight") == std::vector<float>(64, 1.0f));
  CHECK(Deviation(values.at("predictions.bias")) == 0);
  // U(±1/√64): deviation 1/(8√3), no value outside.
  const auto& dense = values.at("predictions.dense.weight");
  CHECK(Deviation(dense) == close(1 / (8 * std::sqrt(3.0))));
  for (float value : dense) CHECK(std::fabs(value) <= 0.125f);
  const auto& words = values.at("albert.embeddings.word_embeddings.weight");
  CHECK(Deviation(words) == close(std));
  for (size_t i = 3 * 32; i < 4 * 32; ++i) CHECK(words[i] == 0);
  CHECK(words[4 * 32] != 0);
  CHECK(words[3 * 32 - 1] != 0);
}

TEST_CASE("version 0: pieces give the same bits as the whole", "[model]") {
  const ParameterLayout layout = MakeParameterLayout(SmallConfig());
  const std::vector<float> whole = Initial(layout, 0, 11);
  std::vector<float> pieces(whole.size());
  for (size_t first = 0; first < whole.size(); first += 777) {
    const size_t count = std::min<size_t>(777, whole.size() - first);
    FillInitialValues(layout, 0, 11, static_cast<int64_t>(first), {pieces.data() + first, count});
  }
  CHECK(std::memcmp(whole.data(), pieces.data(), whole.size() * sizeof(float)) == 0);
  CHECK(whole != Initial(layout, 0, 12));
  CHECK(Initial(layout, 1, 11) != std::vector<float>(whole.begin(), whole.begin() + 64));
}

// A change here would let workers of two builds start from different weights.
TEST_CASE("version 0: the bits of a seed are frozen", "[model]") {
  const ParameterLayout layout = MakeParameterLayout(SmallConfig());
  uint32_t crc = 0;
  for (size_t i = 0; i < layout.parameter_count(); ++i) {
    const std::vector<float> values = Initial(layout, i, 20240607);
    crc = Crc32c(values.data(), values.size() * sizeof(float), crc);
  }
  CHECK(crc == 0x3d4c7f9bu);
}

}  // namespace starling::model
