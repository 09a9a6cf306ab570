// Goal: the gradient of every block is the derivative of its output. Method: central differences in
// double precision, for each element of each weight and input, of a weighted sum of the outputs.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Logging.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/blocks.h"
#include "starling/model/lean_albert.h"
#include "support/tensors.h"

namespace starling::model {
namespace {

constexpr double kEps = 1e-6;
// Rounding leaves about 1e-16 / kEps = 1e-10 in a difference of numbers near 1; sums of many terms
// and steep activations take the rest.
constexpr double kTolerance = 2e-8;

// Tensors under test by name, filled with a fixed wave that depends on the order of creation.
class Leaves {
 public:
  at::Tensor Make(const std::string& name, const std::vector<int64_t>& shape, double centre = 0) {
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    const at::Tensor index = at::arange(count, at::TensorOptions().dtype(at::kDouble));
    const double phase = 0.37 * static_cast<double>(leaves_.size() + 1);
    at::Tensor leaf = (at::sin(index * (1.3 + phase) + phase) * 0.6 + centre).view(shape);
    leaf.set_requires_grad(true);
    leaves_.emplace_back(name, leaf);
    return leaf;
  }
  Norm MakeNorm(const std::string& name, int64_t size) {
    return {Make(name + ".weight", {size}, 1.0), Make(name + ".bias", {size}), 1e-12};
  }
  GeneralizedLinear MakeLinear(const std::string& name, int64_t out, int64_t in, bool bias,
                               int64_t lowrank, int64_t adapter) {
    GeneralizedLinear linear;
    linear.weight = Make(name + ".weight", {out, in});
    if (bias) linear.bias = Make(name + ".bias", {out});
    if (lowrank > 0) {
      linear.lowrank_first = Make(name + ".lowrank_first", {lowrank, in});
      linear.lowrank_second = Make(name + ".lowrank_second", {out, lowrank});
    }
    if (adapter > 0) {
      linear.adapter_first = Make(name + ".adapter_first", {adapter, in});
      linear.adapter_second = Make(name + ".adapter_second", {out, adapter});
    }
    return linear;
  }
  // Adopts a leaf that exists already.
  void Add(const std::string& name, const at::Tensor& leaf) { leaves_.emplace_back(name, leaf); }

  const std::vector<std::pair<std::string, at::Tensor>>& all() const { return leaves_; }

 private:
  std::vector<std::pair<std::string, at::Tensor>> leaves_;
};

// A scalar that depends on every element of `x` differently.
at::Tensor WeightedSum(const at::Tensor& x) {
  const at::Tensor index = at::arange(x.numel(), at::TensorOptions().dtype(at::kDouble));
  return (x.flatten() * at::sin(index * 0.7 + 0.2)).sum();
}

at::Tensor NumericGradient(const at::Tensor& leaf, const std::function<at::Tensor()>& scalar) {
  const at::Tensor value = leaf.detach();
  at::Tensor gradient = value.clone();
  double* data = value.mutable_data_ptr<double>();
  for (int64_t i = 0; i < value.numel(); ++i) {
    const double before = data[i];
    data[i] = before + kEps;
    const double above = scalar().item<double>();
    data[i] = before - kEps;
    const double below = scalar().item<double>();
    data[i] = before;
    gradient.mutable_data_ptr<double>()[i] = (above - below) / (2 * kEps);
  }
  return gradient;
}

void CheckGradients(const Leaves& leaves, const std::function<at::Tensor()>& scalar) {
  scalar().backward();
  for (const auto& [name, leaf] : leaves.all()) {
    const at::Tensor numeric = NumericGradient(leaf, scalar);
    const double limit = kTolerance * std::max(1.0, testing::MaxAbs(numeric));
    CHECK(testing::WorstBeyond(name, leaf.grad(), numeric, limit) == "");
  }
}

at::Tensor Ids(std::vector<int64_t> values, int64_t rows) {
  return at::tensor(values).view({rows, -1});
}

ForwardContext ContextFor(int64_t rows, int64_t length) {
  ForwardContext context;
  at::Tensor mask = at::arange(rows * length, at::kLong).view({rows, length}).remainder(4).ne(3);
  context.additive_mask = AdditiveMask(mask, at::kDouble);
  return context;
}

}  // namespace

TEST_CASE("gradient: generalized linear with adapter and low-rank part", "[model]") {
  const int64_t lowrank = GENERATE(0, 2), adapter = GENERATE(0, 3);
  Leaves leaves;
  const GeneralizedLinear linear = leaves.MakeLinear("linear", 5, 4, true, lowrank, adapter);
  const at::Tensor x = leaves.Make("x", {3, 4});
  CheckGradients(leaves, [&] { return WeightedSum(linear(x)); });
}

TEST_CASE("gradient: attention block", "[model]") {
  const bool rotary = GENERATE(false, true), sandwich = GENERATE(false, true);
  const double dropout = GENERATE(0.0, 0.3);
  Leaves leaves;
  const at::Tensor x = leaves.Make("x", {2, 5, 8});
  AttentionBlock block{.norm = leaves.MakeNorm("norm", 8),
                       .qkv = leaves.MakeLinear("qkv", 24, 8, true, 2, 0),
                       .out = leaves.MakeLinear("out", 8, 8, !sandwich, 0, 2),
                       .heads = 2,
                       .probs_dropout = dropout,
                       .hidden_dropout = dropout};
  if (sandwich) block.sandwich = leaves.MakeNorm("sandwich", 8);
  const RotaryTables tables = MakeRotaryTables(4, 100, 5, at::TensorOptions());
  ForwardContext context = ContextFor(2, 5);
  context.dropout = SeededMasks(5);
  if (rotary) context.rotary = &tables;
  CheckGradients(leaves, [&] { return WeightedSum(block(x, context, {1})); });
}

TEST_CASE("gradient: FFN block", "[model]") {
  const std::string name =
      GENERATE(as<std::string>{}, "gelu_fused", "gelu", "relu", "silu", "tanh");
  const bool gated = GENERATE(false, true), sandwich = GENERATE(false, true);
  Leaves leaves;
  const at::Tensor x = leaves.Make("x", {2, 3, 6});
  FfnBlock block{.norm = leaves.MakeNorm("norm", 6),
                 .first = leaves.MakeLinear("first", gated ? 14 : 7, 6, true, 2, 2),
                 .second = leaves.MakeLinear("second", 6, 7, !sandwich, 0, 0),
                 .activation = ParseActivation(name),
                 .gated = gated,
                 .hidden_dropout = 0.2};
  if (sandwich) block.sandwich = leaves.MakeNorm("sandwich", 6);
  ForwardContext context;
  context.dropout = SeededMasks(9);
  CheckGradients(leaves, [&] { return WeightedSum(block(x, context, {})); });
}

TEST_CASE("gradient: embeddings", "[model]") {
  const bool absolute = GENERATE(false, true), mapping = GENERATE(false, true);
  Leaves leaves;
  EmbeddingBlock block{.words = leaves.Make("words", {7, 4}),
                       .types = leaves.Make("types", {2, 4}),
                       .norm = leaves.MakeNorm("norm", 4),
                       .padding_id = 0,
                       .hidden_dropout = 0.2};
  if (absolute) block.positions = leaves.Make("positions", {5, 4});
  if (mapping) {
    block.mapping_weight = leaves.Make("mapping.weight", {6, 4});
    block.mapping_bias = leaves.Make("mapping.bias", {6});
  }
  ForwardContext context;
  context.dropout = SeededMasks(3);
  const at::Tensor ids = Ids({1, 2, 3, 1, 6, 5, 4, 2}, 2), types = Ids({0, 0, 1, 1, 0, 1, 1, 1}, 2);
  CheckGradients(leaves, [&] { return WeightedSum(block(ids, types, context)); });
}

TEST_CASE("gradient: masked-token head", "[model]") {
  Leaves leaves;
  const at::Tensor x = leaves.Make("x", {3, 6});
  MlmHead head{.dense_weight = leaves.Make("dense.weight", {4, 6}),
               .dense_bias = leaves.Make("dense.bias", {4}),
               .norm = leaves.MakeNorm("norm", 4),
               .decoder_weight = leaves.Make("decoder.weight", {9, 4}),
               .decoder_bias = leaves.Make("decoder.bias", {9}),
               .activation = Activation::kGeluTanh};
  CheckGradients(leaves, [&] { return WeightedSum(head(x)); });
}

TEST_CASE("gradient: both losses of a whole model with shared matrices and tied words", "[model]") {
  LeanAlbertConfig config;
  config.hidden_size = 8;
  config.num_attention_heads = 2;
  config.intermediate_size = 6;
  config.hidden_act_gated = true;
  config.num_hidden_layers = 3;
  config.num_hidden_groups = 2;
  config.share_large_matrices = 1;
  config.adapter_dim = 2;
  config.vocab_size = 9;
  config.embedding_size = 4;
  config.initializer_range = 0.3;
  config.pad_token_id = 8;  // does not occur below: its lookup gradient is withheld by design
  REQUIRE(config.Validate().empty());
  const ParameterLayout layout = MakeParameterLayout(config);
  std::vector<at::Tensor> parameters = AllocateParameters(layout);
  InitializeParameters(config, 1, parameters);
  Leaves leaves;
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i] = parameters[i].detach().to(at::kDouble);
    parameters[i].set_requires_grad(true);
    leaves.Add(layout.parameter(i).name, parameters[i]);
  }
  const LeanAlbert model(config, parameters);
  const ModelInputs inputs{Ids({2, 5, 1, 7, 2, 4, 6, 3}, 2), Ids({0, 0, 1, 1, 0, 1, 1, 1}, 2),
                           Ids({1, 1, 1, 1, 1, 1, 1, 0}, 2)};
  const PretrainingLabels labels{Ids({-100, 5, -100, 1, -100, 0, -100, -100}, 2),
                                 at::tensor({int64_t{1}, int64_t{-100}})};
  const ForwardOptions options{.training = true, .dropout_seed = 4};
  CheckGradients(leaves, [&] { return model.PretrainingLoss(inputs, labels, options).total; });
}

}  // namespace starling::model
