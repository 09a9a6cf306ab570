// Goal: outputs, losses and gradients of the whole model equal the reference's, for every variant
// (parity sets p01–p06) and for every kind of attention mask (p09). Method: load weights and
// inputs, run, compare each tensor and print its worst element.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Logging.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/blocks.h"
#include "starling/model/lean_albert.h"
#include "support/model_config_json.h"
#include "support/parity_model.h"

namespace starling::model {
namespace {

using testing::CompareGradient;
using testing::CompareOutput;
using testing::VectorFile;

// The model of one parity file, its inputs, and everything its forward pass showed.
struct ParityRun {
  ParityRun(const LeanAlbertConfig& config, const std::string& path) : file(path) {
    INFO(path);
    REQUIRE(file.status() == absl::OkStatus());
    std::string error;
    std::vector<at::Tensor> parameters = testing::LoadParameters(config, file, &error);
    REQUIRE(error == "");
    model = std::make_unique<LeanAlbert>(config, std::move(parameters));
    inputs = {file.Get("in.input_ids"), file.Get("in.token_type_ids"),
              file.Get("in.attention_mask")};
    options.observer = [this](const std::string& name, const at::Tensor& value) {
      observed["out." + name] = value;
    };
  }

  void CompareObserved(double tolerance) {
    size_t compared = 0;
    for (const auto& [name, value] : observed) {
      if (!file.Has(name)) continue;
      CHECK(CompareOutput(name, value, file.Get(name), tolerance) == "");
      ++compared;
    }
    size_t expected = file.Has("out.embeddings") ? 1 : 0;
    for (const std::string& name : file.Names("out.layer.")) expected += name.size() > 0;
    CHECK(compared == expected);
  }

  // Every gradient of the file; ours without a counterpart must be absent or zero.
  void CompareGradients() {
    for (size_t i = 0; i < model->parameters().size(); ++i) {
      const std::string name = "grad." + model->layout().parameter(i).name;
      const at::Tensor& gradient = model->parameters()[i].grad();
      if (file.Has(name)) {
        CHECK(CompareGradient(name, gradient, file.Get(name)) == "");
      } else {
        INFO(name);
        CHECK((!gradient.defined() || testing::MaxAbs(gradient) == 0));
      }
    }
  }

  VectorFile file;
  std::unique_ptr<LeanAlbert> model;
  ModelInputs inputs;
  ForwardOptions options;
  std::map<std::string, at::Tensor> observed;
};

void CheckHeadsAndOutputs(ParityRun* run, double tolerance) {
  const ModelOutput output = run->model->Forward(run->inputs, run->options);
  run->CompareObserved(tolerance);
  const auto compare = [&](const std::string& name, const at::Tensor& value) {
    CHECK(CompareOutput(name, value, run->file.Get(name), tolerance) == "");
  };
  compare("out.sequence_output", output.hidden);
  compare("out.pooled_output", output.pooled);
  compare("out.mlm_logits", run->model->MlmLogits(output.hidden, {}));
  compare("out.sop_logits", run->model->SopLogits(output.pooled));
}

void CheckPretraining(const LeanAlbertConfig& config, const std::string& path, double tolerance) {
  ParityRun run(config, path);
  CheckHeadsAndOutputs(&run, tolerance);
  const PretrainingLosses losses = run.model->PretrainingLoss(
      run.inputs, {run.file.Get("in.labels"), run.file.Get("in.sentence_order_label")});
  CHECK(CompareOutput("mlm_loss", losses.mlm, run.file.Get("out.mlm_loss"), tolerance) == "");
  CHECK(CompareOutput("sop_loss", losses.sop, run.file.Get("out.sop_loss"), tolerance) == "");
  CHECK(CompareOutput("loss", losses.total, run.file.Get("out.loss"), tolerance) == "");
  losses.Backward();
  run.CompareGradients();
}

}  // namespace

TEST_CASE("parity: every variant gives the reference's outputs and gradients", "[model][parity]") {
  const std::string folder =
      GENERATE(as<std::string>{}, "p01_tiny", "p03_adapters", "p03_adapters_only",
               "p03_lowrank_only", "p04_sandwich", "p04_sandwich_bias", "p05_absolute",
               "p05_absolute_square", "p06_gated_gelu", "p06_ungated_gelu_new", "p06_ungated_relu");
  INFO(folder);
  const std::string path = testing::ParityPath(folder + "/vectors.safetensors");
  CheckPretraining(testing::ConfigFromJson(testing::ParityJson(folder + "/config.json")), path,
                   1e-5);
}

TEST_CASE("parity: every sharing grid gives the reference's outputs and summed gradients",
          "[model][parity]") {
  const nlohmann::json cases = testing::ParityJson("p02_sharing/cases.json");
  for (const auto& row : cases.at("cases")) {
    const std::string file = row.at("file");
    INFO(file);
    // 12 to 16 blocks deep: rounding grows.
    CheckPretraining(testing::ConfigFromJson(row.at("config")),
                     testing::ParityPath("p02_sharing/" + file), 5e-5);
  }
}

TEST_CASE("parity: position_ids of absolute positions equal the reference's", "[model][parity]") {
  const std::string path = testing::ParityPath("p05_absolute/vectors.safetensors");
  const ParityRun run(testing::ConfigFromJson(testing::ParityJson("p05_absolute/config.json")),
                      path);
  const LeanAlbert::StateDictEntry first = run.model->StateDictEntries().front();
  CHECK(first.name == "albert.embeddings.position_ids");
  CHECK(first.tensor.equal(run.file.Get("param." + first.name)));
}

TEST_CASE("parity: masks act on scores, a row without keys attends by its raw scores",
          "[model][parity]") {
  const std::string path = testing::ParityPath("p09_mask/vectors.safetensors");
  ParityRun run(testing::ConfigFromJson(testing::ParityJson("p09_mask/config.json")), path);
  CHECK(CompareOutput("out.additive_mask", AdditiveMask(run.inputs.attention_mask, at::kFloat),
                      run.file.Get("out.additive_mask"), 0) == "");
  const at::Tensor hidden = run.model->Forward(run.inputs, run.options).hidden;
  run.CompareObserved(1e-5);
  CHECK(CompareOutput("out.sequence_output", hidden, run.file.Get("out.sequence_output")) == "");
  (hidden * run.file.Get("in.loss_coefficients")).sum().backward();
  run.CompareGradients();

  ModelInputs boolean = run.inputs;
  boolean.attention_mask = boolean.attention_mask.to(at::kBool);
  CHECK(run.model->Forward(boolean).hidden.equal(hidden));
  ModelInputs ones = run.inputs, none = run.inputs;
  ones.attention_mask = ones.attention_mask.clone().fill_(1);
  none.attention_mask = at::Tensor();
  CHECK(run.model->Forward(ones).hidden.equal(run.model->Forward(none).hidden));
}

}  // namespace starling::model
