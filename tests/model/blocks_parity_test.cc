// Goal: rotary tables and rotation (p07), activations with their derivatives (p08) and the blocks
// under dropout with given masks (p10) equal the reference's numbers.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <c10/util/Logging.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>
#include <map>
#include <string>

#include "model/blocks.h"
#include "support/model_config_json.h"
#include "support/tensors.h"

namespace starling::model {
namespace {

using testing::CompareGradient;
using testing::CompareOutput;
using testing::VectorFile;
using testing::WorstBeyond;

at::Tensor WithGradient(at::Tensor tensor) {
  if (tensor.defined()) tensor.set_requires_grad(true);
  return tensor;
}

// The weights of one p10 block: "<block>.in.<weight>" unless the file spells them otherwise.
class DropoutCase {
 public:
  DropoutCase(const VectorFile& file, std::string block) : file_(file), block_(std::move(block)) {}

  at::Tensor Input(const std::string& name) const { return file_.Get(block_ + ".in." + name); }
  at::Tensor Weight(const std::string& name) {
    at::Tensor tensor = WithGradient(file_.Get(block_ + ".param." + name));
    if (tensor.defined()) weights_[name] = tensor;
    return tensor;
  }
  Norm GetNorm(const std::string& name, double eps) {
    return {Weight(name + ".weight"), Weight(name + ".bias"), eps};
  }
  GeneralizedLinear GetLinear(const std::string& name) {
    return {.weight = Weight(name + ".weight"), .bias = Weight(name + ".bias")};
  }
  // Runs backward from `result` and compares it, the input's gradient and every weight's.
  void Check(const at::Tensor& x, const at::Tensor& result) {
    CHECK(CompareOutput(block_ + ".out", result, file_.Get(block_ + ".out.y")) == "");
    result.backward(Input("grad_output"));
    CHECK(CompareGradient(block_ + ".grad.x", x.grad(), file_.Get(block_ + ".grad.x")) == "");
    CHECK(!weights_.empty());
    for (const auto& [name, weight] : weights_) {
      const std::string full = block_ + ".grad." + name;
      CHECK(CompareGradient(full, weight.grad(), file_.Get(full)) == "");
    }
  }

 private:
  const VectorFile& file_;
  std::string block_;
  std::map<std::string, at::Tensor> weights_;
};

}  // namespace

TEST_CASE("rotary: tables and rotated heads equal the reference's", "[model][parity]") {
  const std::string path = testing::ParityPath("p07_rotary/vectors.safetensors");
  const VectorFile file(path);
  REQUIRE(file.status() == absl::OkStatus());
  for (const auto& row : testing::ParityJson("p07_rotary/cases.json")) {
    const std::string key = row.at("key");
    const int64_t length = row.at("length");
    const RotaryTables tables =
        MakeRotaryTables(row.at("dim"), row.at("base"), length, at::TensorOptions());
    const at::Tensor slack =
        1e-6 + 1.2e-7 * at::arange(length, at::TensorOptions().dtype(at::kDouble)).unsqueeze(1);
    CHECK(WorstBeyond(key + ".cos", tables.cos, file.Get(key + ".cos"), slack) == "");
    CHECK(WorstBeyond(key + ".sin", tables.sin, file.Get(key + ".sin"), slack) == "");
    const RotaryTables given{file.Get(key + ".cos"), file.Get(key + ".sin")};
    CHECK(WorstBeyond(key, ApplyRotary(file.Get(key + ".in.x"), given),
                      file.Get(key + ".out.rotated"), 1e-6) == "");
    CHECK(WorstBeyond(key, ApplyRotary(file.Get(key + ".in.x_offset"), given, row.at("offset")),
                      file.Get(key + ".out.rotated_offset"), 1e-6) == "");
  }
}

TEST_CASE("activations: values and derivatives equal the reference's", "[model][parity]") {
  const std::string path = testing::ParityPath("p08_gelu/vectors.safetensors");
  const VectorFile file(path);
  REQUIRE(file.status() == absl::OkStatus());
  const std::string name =
      GENERATE(as<std::string>{}, "gelu_fused", "gelu_new", "gelu", "relu", "silu", "tanh");
  const at::Tensor x = WithGradient(file.Get(name == "gelu_fused" ? "in.x" : "in.x_others"));
  const at::Tensor value = Activate(ParseActivation(name), x);
  value.sum().backward();
  const auto compare = [&](const std::string& what, const at::Tensor& got, double near) {
    const at::Tensor want = file.Get("out." + name + "." + what);
    REQUIRE(want.defined());
    const at::Tensor far = want.to(at::kDouble).abs() * 1e-6;
    const at::Tensor limit = at::where(x.detach().abs() <= 100, at::full_like(far, near), far);
    CHECK(WorstBeyond(name + "." + what, got, want, limit) == "");
  };
  compare("value", value, 2e-6);
  compare("derivative", x.grad(), 3e-6);
}

TEST_CASE("activations: the tanh GELU's derivative is 0 or 1 for the largest numbers", "[model]") {
  const float large = std::numeric_limits<float>::max();
  const at::Tensor x = WithGradient(at::tensor({large, 3e19f, -3e19f, -large, 0.0f}));
  const at::Tensor value = Activate(Activation::kGeluTanh, x);
  value.sum().backward();
  CHECK(value.detach().equal(at::tensor({large, 3e19f, 0.0f, 0.0f, 0.0f})));
  CHECK(x.grad().equal(at::tensor({1.0f, 1.0f, 0.0f, 0.0f, 0.5f})));
}

TEST_CASE("dropout: blocks under given masks have the right backward", "[model][parity]") {
  const std::string path = testing::ParityPath("p10_dropout/vectors.safetensors");
  const VectorFile file(path);
  REQUIRE(file.status() == absl::OkStatus());
  const nlohmann::json config = testing::ParityJson("p10_dropout/config.json");
  const double p = config.at("dropout"), eps = config.at("layer_norm_eps");
  const std::string block = GENERATE(as<std::string>{}, "ffn", "ffn_sandwich", "attention");
  DropoutCase test(file, block);
  const at::Tensor x = WithGradient(test.Input("x"));
  ForwardContext context;
  context.dropout = [&](at::IntArrayRef, double, DropoutAddress address) {
    if (address.site == DropoutSite::kAttentionProbs) return test.Input("keep_probs");
    return test.Input(address.site == DropoutSite::kFfnOut ? "keep" : "keep_output");
  };
  if (block == "attention") {
    const RotaryTables tables = MakeRotaryTables(
        config.at("hidden_size").get<int64_t>() / config.at("num_attention_heads").get<int64_t>(),
        config.at("rotary_base"), x.size(1), at::TensorOptions());
    context.rotary = &tables;
    context.additive_mask = AdditiveMask(test.Input("attention_mask"), at::kFloat);
    const AttentionBlock attention{.norm = test.GetNorm("layer_norm", eps),
                                   .sandwich = test.GetNorm("sandwich_norm", eps),
                                   .qkv = test.GetLinear("dense_qkv"),
                                   .out = test.GetLinear("dense_out"),
                                   .heads = config.at("num_attention_heads"),
                                   .probs_dropout = p,
                                   .hidden_dropout = p};
    test.Check(x, attention(x, context, {}));
  } else {
    const FfnBlock ffn{.norm = test.GetNorm("layer_norm", eps),
                       .sandwich = test.GetNorm("sandwich_norm", eps),
                       .first = test.GetLinear("dense_i2h"),
                       .second = test.GetLinear("dense_h2o"),
                       .activation = ParseActivation(config.at("activation")),
                       .gated = config.at("gated"),
                       .hidden_dropout = p};
    test.Check(x, ffn(x, context, {}));
  }
}

}  // namespace starling::model
