// Goal: what the trainer relies on beyond the reference's numbers: parameters and gradients in flat
// buffers, losses without labels, addressed dropout, the same bits from the same inputs.
#include "starling/model/lean_albert.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Logging.h>

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/dropout.h"
#include "support/tensors.h"

namespace starling::model {
namespace {

LeanAlbertConfig TestConfig() {
  LeanAlbertConfig config;
  config.hidden_size = 32;
  config.num_attention_heads = 4;
  config.intermediate_size = 48;
  config.hidden_act_gated = true;
  config.num_hidden_layers = 3;
  config.share_large_matrices = 1;
  config.vocab_size = 100;
  config.embedding_size = 16;
  config.initializer_range = 0.2;
  return config;
}

struct TestBatch {
  ModelInputs inputs;
  PretrainingLabels labels;
};

// Two rows of 12 tokens; the second ends in two pads; every fifth token is masked.
TestBatch MakeBatch() {
  const at::Tensor index = at::arange(24, at::kLong).view({2, 12});
  TestBatch batch;
  batch.inputs.input_ids = (index * 37).remainder(90) + 5;
  batch.inputs.token_type_ids = (index.remainder(12) >= 6).to(at::kLong);
  batch.inputs.attention_mask = at::ones({2, 12}, at::kLong);
  batch.inputs.attention_mask.select(0, 1).narrow(0, 10, 2).fill_(0);
  batch.inputs.input_ids.select(0, 1).narrow(0, 10, 2).fill_(0);
  batch.labels.labels = at::zeros({2, 12}, at::kLong).fill_(-100);
  for (int64_t i = 0; i < 24; i += 5) batch.labels.labels.view({-1}).select(0, i).fill_(i + 7);
  batch.labels.sentence_order = at::arange(2, at::kLong);
  return batch;
}

std::vector<at::Tensor> InitialParameters(const LeanAlbertConfig& config, uint64_t seed = 3) {
  std::vector<at::Tensor> parameters = AllocateParameters(MakeParameterLayout(config));
  InitializeParameters(config, seed, parameters);
  return parameters;
}

// Parameters and gradients in flat buffers, as the trainer keeps them.
struct FlatModel {
  explicit FlatModel(const LeanAlbertConfig& config)
      : layout(MakeParameterLayout(config)),
        values(at::zeros({layout.distinct_values()})),
        gradients(at::zeros({layout.distinct_values()})),
        model(config, Views()) {
    InitializeParameters(config, 3, model.parameters());
  }
  std::vector<at::Tensor> Views() const {
    std::vector<at::Tensor> parameters;
    int64_t offset = 0;
    for (size_t i = 0; i < layout.parameter_count(); ++i) {
      const LayoutEntry& entry = layout.parameter(i);
      const int64_t count = entry.element_count();
      parameters.push_back(values.narrow(0, offset, count).view(entry.shape));
      parameters.back().set_requires_grad(true);
      parameters.back().mutable_grad() = gradients.narrow(0, offset, count).view(entry.shape);
      offset += count;
    }
    return parameters;
  }
  ParameterLayout layout;
  at::Tensor values, gradients;
  LeanAlbert model;
};

at::Tensor Gradient(const LeanAlbert& model, const std::string& name) {
  for (size_t i = 0; i < model.parameters().size(); ++i) {
    if (model.layout().parameter(i).name == name) return model.parameters()[i].grad();
  }
  return {};
}

}  // namespace

TEST_CASE("comparison: names the worst element and never accepts NaN", "[model]") {
  const at::Tensor want = at::ones({2, 3});
  at::Tensor got = want.clone();
  CHECK(testing::WorstBeyond("x", got, want, 1e-6) == "");
  got.select(0, 1).select(0, 2).fill_(1.5);
  CHECK(testing::WorstBeyond("x", got, want, 1e-6).find("element 5 of [2, 3] is 1.5") !=
        std::string::npos);
  got.select(0, 1).select(0, 2).fill_(std::nan(""));
  CHECK(testing::WorstBeyond("x", got, want, 1e6) != "");
  CHECK(testing::WorstBeyond("x", at::Tensor(), want, 1e6) != "");
}

TEST_CASE("model: backward adds into the caller's flat gradient buffer in place", "[model]") {
  const LeanAlbertConfig config = TestConfig();
  FlatModel flat(config);
  const LeanAlbert own(config, InitialParameters(config));
  const TestBatch batch = MakeBatch();
  const ForwardOptions options{.training = true, .dropout_seed = 8};
  own.PretrainingLoss(batch.inputs, batch.labels, options).Backward();
  for (int pass = 1; pass <= 2; ++pass) {
    flat.model.PretrainingLoss(batch.inputs, batch.labels, options).Backward();
    const float* data = flat.gradients.const_data_ptr<float>();
    for (size_t i = 0; i < own.parameters().size(); ++i) {
      const at::Tensor& gradient = flat.model.parameters()[i].grad();
      INFO(flat.layout.parameter(i).name);
      CHECK(gradient.const_data_ptr<float>() == data);
      CHECK(gradient.equal(own.parameters()[i].grad() * pass));
      data += gradient.numel();
    }
  }
  CHECK(testing::MaxAbs(flat.gradients) > 0);
}

TEST_CASE("model: an update of the flat buffer is seen by the next forward", "[model]") {
  FlatModel flat(TestConfig());
  const TestBatch batch = MakeBatch();
  const at::Tensor before = flat.model.Forward(batch.inputs).hidden;
  flat.values.mul_(0.5);
  CHECK_FALSE(flat.model.Forward(batch.inputs).hidden.equal(before));
}

TEST_CASE("model: Backward scales gradients", "[model]") {
  FlatModel whole(TestConfig()), quarter(TestConfig());
  const TestBatch batch = MakeBatch();
  whole.model.PretrainingLoss(batch.inputs, batch.labels).Backward();
  quarter.model.PretrainingLoss(batch.inputs, batch.labels).Backward(0.25);
  CHECK(quarter.gradients.equal(whole.gradients * 0.25));
}

TEST_CASE("model: a micro-batch without masked tokens has loss 0 and no gradient", "[model]") {
  FlatModel flat(TestConfig());
  TestBatch batch = MakeBatch();
  batch.labels.labels.fill_(-100);
  SECTION("with sentence-order labels only their term counts") {
    const PretrainingLosses losses = flat.model.PretrainingLoss(batch.inputs, batch.labels);
    CHECK(losses.masked_tokens == 0);
    CHECK(losses.mlm.item<float>() == 0);
    CHECK(losses.total.equal(losses.sop));
    losses.Backward();
    CHECK(testing::MaxAbs(Gradient(flat.model, "albert.pooler.weight")) > 0);
    CHECK(testing::MaxAbs(Gradient(flat.model, "predictions.dense.weight")) == 0);
  }
  SECTION("with neither, backward does nothing") {
    batch.labels.sentence_order.fill_(-100);
    const PretrainingLosses losses = flat.model.PretrainingLoss(batch.inputs, batch.labels);
    CHECK(losses.sop_rows == 0);
    CHECK(losses.total.item<float>() == 0);
    losses.Backward();
    CHECK(testing::MaxAbs(flat.gradients) == 0);
  }
}

TEST_CASE("model: sentence-order loss is the mean over labelled rows", "[model]") {
  const LeanAlbert model(TestConfig(), InitialParameters(TestConfig()));
  TestBatch batch = MakeBatch();
  batch.labels.sentence_order.select(0, 0).fill_(-100);
  const PretrainingLosses losses = model.PretrainingLoss(batch.inputs, batch.labels);
  CHECK(losses.sop_rows == 1);
  const at::Tensor row = model.SopLogits(model.Forward(batch.inputs).pooled).select(0, 1);
  CHECK(std::fabs(losses.sop.item<double>() -
                  (row.logsumexp(0) - row.select(0, 1)).item<double>()) < 1e-6);
  batch.labels.sentence_order = at::Tensor();
  CHECK(model.PretrainingLoss(batch.inputs, batch.labels).sop_rows == 0);
}

TEST_CASE("model: logits of chosen positions are rows of the logits of all", "[model]") {
  const LeanAlbert model(TestConfig(), InitialParameters(TestConfig()));
  const TestBatch batch = MakeBatch();
  const at::Tensor hidden = model.Forward(batch.inputs).hidden;
  const at::Tensor positions = at::nonzero(batch.labels.labels.flatten().ne(-100)).flatten();
  const at::Tensor all = model.MlmLogits(hidden, {});
  CHECK(all.sizes() == at::IntArrayRef({24, 100}));
  CHECK(testing::WorstBeyond("logits", model.MlmLogits(hidden, positions),
                             all.index_select(0, positions), 1e-5) == "");
}

TEST_CASE("model: the padding row gets no gradient through the lookup", "[model]") {
  LeanAlbertConfig config = TestConfig();
  config.tie_word_embeddings = false;
  FlatModel flat(config);
  const TestBatch batch = MakeBatch();
  flat.model.PretrainingLoss(batch.inputs, batch.labels).Backward();
  const at::Tensor words = Gradient(flat.model, "albert.embeddings.word_embeddings.weight");
  CHECK(testing::MaxAbs(words.select(0, 0)) == 0);
  CHECK(testing::MaxAbs(words.select(0, 5)) > 0);
  CHECK(testing::MaxAbs(Gradient(flat.model, "predictions.decoder.weight").select(0, 0)) > 0);
}

TEST_CASE("model: an untied decoder with equal weights gives the tied model's logits", "[model]") {
  LeanAlbertConfig config = TestConfig();
  const LeanAlbert tied(config, InitialParameters(config));
  std::map<std::string, at::Tensor> by_name;
  for (const auto& entry : tied.StateDictEntries()) by_name[entry.name] = entry.tensor;
  config.tie_word_embeddings = false;
  std::vector<at::Tensor> parameters;
  const ParameterLayout layout = MakeParameterLayout(config);
  for (size_t i = 0; i < layout.parameter_count(); ++i) {
    parameters.push_back(by_name.at(layout.parameter(i).name).detach().clone());
  }
  const LeanAlbert untied(config, std::move(parameters));
  const TestBatch batch = MakeBatch();
  CHECK(untied.MlmLogits(untied.Forward(batch.inputs).hidden, {})
            .equal(tied.MlmLogits(tied.Forward(batch.inputs).hidden, {})));
}

TEST_CASE("model: without the sentence-order head only masked tokens count", "[model]") {
  LeanAlbertConfig config = TestConfig();
  config.sop_head = false;
  const LeanAlbert model(config, InitialParameters(config));
  const TestBatch batch = MakeBatch();
  CHECK_FALSE(model.Forward(batch.inputs).pooled.defined());
  const PretrainingLosses losses = model.PretrainingLoss(batch.inputs, batch.labels);
  CHECK(losses.sop_rows == 0);
  CHECK(losses.total.equal(losses.mlm));
}

TEST_CASE("model: state-dict aliases share storage", "[model]") {
  const LeanAlbert model(TestConfig(), InitialParameters(TestConfig()));
  std::map<std::string, at::Tensor> by_name;
  size_t aliases = 0;
  for (const auto& entry : model.StateDictEntries()) {
    by_name[entry.name] = entry.tensor;
    if (entry.alias_of.empty()) continue;
    CHECK(entry.tensor.is_same(by_name.at(entry.alias_of)));
    ++aliases;
  }
  CHECK(aliases == 2 * 4 + 2);  // four matrices in two further layers, decoder weight and bias
}

TEST_CASE("dropout: masks are functions of seed and place, whatever the threads", "[model]") {
  LeanAlbertConfig config = TestConfig();
  config.hidden_dropout_prob = 0.1;
  config.attention_probs_dropout_prob = 0.2;
  const LeanAlbert model(config, InitialParameters(config));
  const TestBatch batch = MakeBatch();
  const auto loss = [&](uint64_t seed, bool training) {
    const ForwardOptions options{.training = training, .dropout_seed = seed};
    return model.PretrainingLoss(batch.inputs, batch.labels, options).total.item<float>();
  };
  CHECK(loss(1, true) == loss(1, true));
  CHECK(loss(1, true) != loss(2, true));
  CHECK(loss(1, false) == loss(2, false));
  CHECK(loss(1, true) != loss(1, false));
}

TEST_CASE("dropout: drops the asked share and scales the rest", "[model]") {
  const at::Tensor x = at::ones({400, 250});
  const DropoutAddress address{DropoutSite::kFfnOut, 3};
  const at::Tensor y = ApplyDropout(x, 0.1, SeededMasks(77), address);
  const at::Tensor dropped = y.eq(0);
  const double share = dropped.sum().item<double>() / 1e5;
  CHECK(std::fabs(share - 0.1) < 0.005);  // more than five standard deviations
  CHECK(y.masked_select(dropped.logical_not()).eq(static_cast<float>(1 / 0.9)).all().item<bool>());
  CHECK(y.equal(ApplyDropout(x, 0.1, SeededMasks(77), address)));
  CHECK_FALSE(y.equal(ApplyDropout(x, 0.1, SeededMasks(77), {DropoutSite::kFfnOut, 4})));
  CHECK_FALSE(y.equal(ApplyDropout(x, 0.1, SeededMasks(77), {DropoutSite::kAttentionOut, 3})));
  CHECK(ApplyDropout(x, 0, SeededMasks(77), address).is_same(x));
  CHECK(ApplyDropout(x, 0.1, {}, address).is_same(x));
}

TEST_CASE("version 0: the same bits with one thread and with several", "[model]") {
  LeanAlbertConfig config = TestConfig();
  config.vocab_size = 9000;  // large enough to be cut among threads
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const std::vector<at::Tensor> one = InitialParameters(config);
  at::set_num_threads(3);
  const std::vector<at::Tensor> several = InitialParameters(config);
  at::set_num_threads(threads);
  for (size_t i = 0; i < one.size(); ++i) CHECK(one[i].equal(several[i]));
}

TEST_CASE("model: the same inputs give the same bits", "[model]") {
  FlatModel first(TestConfig()), second(TestConfig());
  const TestBatch batch = MakeBatch();
  const ForwardOptions options{.training = true, .dropout_seed = 21};
  const PretrainingLosses a = first.model.PretrainingLoss(batch.inputs, batch.labels, options);
  const PretrainingLosses b = second.model.PretrainingLoss(batch.inputs, batch.labels, options);
  a.Backward();
  b.Backward();
  CHECK(a.total.equal(b.total));
  CHECK(first.gradients.equal(second.gradients));
}

}  // namespace starling::model
