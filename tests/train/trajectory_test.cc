// 24 training steps of the reference (p25): losses, gradient norms and final weights, with the
// batch in one piece and as four micro-batches whose means are averaged.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <nlohmann/json.hpp>

#include "support/model_config_json.h"
#include "support/safetensors_values.h"
#include "train/train_cases.h"

namespace starling::train {
namespace {

using checkpoint::SafetensorsFile;
using testing::Values;

TrainerOptions OptionsOf(const nlohmann::json& config) {
  TrainerOptions options;
  options.model = testing::ConfigFromJson(config["model"]);
  options.optimizer.beta1 = config["beta1"];
  options.optimizer.beta2 = config["beta2"];
  options.optimizer.epsilon = config["eps"];
  options.optimizer.weight_decay = config["weight_decay"];
  options.optimizer.clamp = config["clamp_value"];
  options.optimizer.clip = config["max_grad_norm"];
  return options;
}

// All inputs of one kind of data, and batches cut out of them.
class Inputs {
 public:
  Inputs(const SafetensorsFile& file, const std::string& data, int64_t rows, int64_t length)
      : rows_(rows),
        length_(length),
        ids_(Values<int64_t>(file, "in." + data + ".input_ids")),
        types_(Values<int64_t>(file, "in." + data + ".token_type_ids")),
        mask_(Values<int64_t>(file, "in." + data + ".attention_mask")),
        labels_(Values<int64_t>(file, "in." + data + ".labels")),
        order_(Values<int64_t>(file, "in." + data + ".sentence_order_label")) {}

  std::vector<data::Batch> Step(int64_t step, int64_t micro_batches) const {
    std::vector<data::Batch> batches;
    const int64_t rows = rows_ / micro_batches;
    for (int64_t i = 0; i < micro_batches; ++i) {
      data::Batch batch;
      batch.rows = rows;
      batch.length = length_;
      const int64_t first = step * rows_ + i * rows;
      batch.input_ids = Cut(ids_, first * length_, rows * length_);
      batch.token_type_ids = Cut(types_, first * length_, rows * length_);
      batch.attention_mask = Cut(mask_, first * length_, rows * length_);
      batch.labels = Cut(labels_, first * length_, rows * length_);
      batch.sentence_order_labels = Cut(order_, first, rows);
      batches.push_back(std::move(batch));
    }
    return batches;
  }

 private:
  static std::vector<int64_t> Cut(const std::vector<int64_t>& from, int64_t first, int64_t count) {
    return {from.begin() + first, from.begin() + first + count};
  }

  int64_t rows_, length_;
  std::vector<int64_t> ids_, types_, mask_, labels_, order_;
};

void LoadWeights(const SafetensorsFile& file, Trainer& trainer) {
  for (const FlatTensor& tensor : trainer.layout().tensors) {
    const std::vector<float> values = Values<float>(file, "param." + tensor.name);
    REQUIRE(values.size() == static_cast<size_t>(tensor.count));
    std::ranges::copy(values, trainer.parameters().begin() + tensor.begin);
  }
}

void CheckWeights(const SafetensorsFile& file, const std::string& prefix, Trainer& trainer) {
  double worst = 0;
  std::string where;
  for (const FlatTensor& tensor : trainer.layout().tensors) {
    const std::vector<float> expected = Values<float>(file, prefix + tensor.name);
    double largest = 0, error = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double actual = trainer.parameters()[static_cast<size_t>(tensor.begin) + i];
      largest = std::max(largest, std::abs(double{expected[i]}));
      error = std::max(error, std::abs(actual - expected[i]));
    }
    if (error / largest > worst) {
      worst = error / largest;
      where = tensor.name;
    }
  }
  INFO("worst weight, relative to its tensor's maximum: " << worst << " in " << where);
  CHECK(worst <= 2e-3);
}

}  // namespace

TEST_CASE("trajectory: 24 steps of the reference", "[train]") {
  const std::string data = GENERATE("varied", "equal");
  const std::string mode = GENERATE("full", "accumulated");
  INFO(data << " " << mode);
  const nlohmann::json config = testing::ParityJson("p25_trajectory/config.json");
  auto file = SafetensorsFile::Open(testing::ParityPath("p25_trajectory/vectors.safetensors"));
  REQUIRE(file.ok());
  const TrainerOptions options = OptionsOf(config);
  const auto trainer = testing::MakeTrainer(options);
  LoadWeights(*file, *trainer);
  const Inputs inputs(*file, data, config["batch"], config["length"]);
  const int64_t pieces = mode == "full" ? 1 : config["micro_batches"].get<int64_t>();
  const std::string out = "out." + data + "." + mode + ".";
  const auto mlm = Values<double>(*file, out + "mlm_loss");
  const auto sop = Values<double>(*file, out + "sop_loss");
  const auto norm = Values<double>(*file, out + "grad_norm");
  for (size_t step = 0; step < config["steps"].get<size_t>(); ++step) {
    INFO("step " << step);
    const auto number = static_cast<int64_t>(step);
    const testing::StepResult result = testing::LocalStep(
        *trainer, options, inputs.Step(number, pieces), config["lr"][step], number + 1);
    CHECK(std::abs(result.mlm - mlm[step]) <= 5e-5);
    CHECK(std::abs(result.sop - sop[step]) <= 5e-5);
    CHECK(std::abs(result.norm - norm[step]) <= 1e-3 * norm[step]);
  }
  CheckWeights(*file, "final." + data + "." + mode + ".", *trainer);
}

}  // namespace starling::train
