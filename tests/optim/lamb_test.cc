// LAMB against the reference: 60 steps through a window of zero rate, clipped and not (p13). Each
// tensor is cut in two on the way, as it is when workers share it.
#include "starling/optim/lamb.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "optim/optim_tensors.h"
#include "support/parity.h"
#include "support/safetensors_values.h"

namespace starling::optim {
namespace {

using checkpoint::SafetensorsFile;
using nlohmann::json;
using testing::OptimTensor;
using testing::Values;

// Largest |actual − expected|, expected being step `step` of [steps, count].
double WorstError(const std::vector<float>& actual, const std::vector<float>& expected,
                  size_t step) {
  double worst = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(double{actual[i]} - expected[step * actual.size() + i]);
    worst = std::max(worst, error);
  }
  return worst;
}

double Largest(const std::vector<float>& values) {
  double largest = 0;
  for (float x : values) largest = std::max(largest, std::abs(double{x}));
  return largest;
}

struct Reference {
  std::vector<float> gradients, p, m, v;
  double m_max, v_max;

  Reference(const SafetensorsFile& file, const std::string& i)
      : gradients(Values<float>(file, "in.grad." + i)),
        p(Values<float>(file, "out.param." + i)),
        m(Values<float>(file, "out.m." + i)),
        v(Values<float>(file, "out.v." + i)),
        m_max(Largest(m)),
        v_max(Largest(v)) {}
};

bool Near(double actual, double expected, double relative) {
  return std::abs(actual - expected) <= relative * std::abs(expected) + 1e-30;
}

LambSums MeasureInTwo(const Options& options, const StepScalars& scalars, OptimTensor& tensor) {
  const int64_t cut = tensor.count() / 3;
  const LambSums a = LambMeasure(options, scalars, tensor.slice(0, cut));
  const LambSums b = LambMeasure(options, scalars, tensor.slice(cut, tensor.count()));
  return {a.weight_squares + b.weight_squares, a.update_squares + b.update_squares};
}

// One run of runs.json.
class Run {
 public:
  Run(const json& run, const SafetensorsFile& file)
      : run_(run),
        rates_(Values<double>(file, "in.lr")),
        norms_(Values<float>(file, "out.grad_norm")),
        ratios_(Values<float>(file, "out.trust_ratio")),
        weight_norms_(Values<float>(file, "out.weight_norm")),
        step_norms_(Values<float>(file, "out.step_norm")) {
    options_.beta1 = run["beta1"];
    options_.beta2 = run["beta2"];
    options_.epsilon = run["eps"];
    options_.clamp = run["clamp_value"];
    options_.clip = run["max_grad_norm"].is_null() ? 0.0 : run["max_grad_norm"].get<double>();
    for (size_t i = 0; i < run["shapes"].size(); ++i) {
      const std::string index = std::to_string(i);
      OptimTensor tensor(0);
      tensor.p = Values<float>(file, "in.param." + index);
      tensor.m.resize(tensor.p.size());
      tensor.v.resize(tensor.p.size());
      tensor.g.resize(tensor.p.size());
      tensor.decay = run["weight_decay"][i].get<double>() != 0;
      if (tensor.decay) options_.weight_decay = run["weight_decay"][i];
      tensors_.push_back(std::move(tensor));
      references_.emplace_back(file, index);
    }
  }

  int64_t steps() const { return run_["steps"]; }
  int64_t clipped() const { return clipped_; }

  void Step(size_t step) {
    double squares = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const size_t count = tensors_[i].p.size();
      const float* from = references_[i].gradients.data() + step * count;
      tensors_[i].g.assign(from, from + count);
      squares += SquareSum(tensors_[i].g);
    }
    CHECK(Near(std::sqrt(squares), norms_[step], 5e-4));
    StepScalars scalars{rates_[step], ClipFactor(std::sqrt(squares), options_.clip),
                        static_cast<int64_t>(step) + 1};
    clipped_ += scalars.gradient_scale < 1;
    for (size_t i = 0; i < tensors_.size(); ++i) Update(step, i, scalars);
  }

 private:
  void Update(size_t step, size_t i, const StepScalars& scalars) {
    OptimTensor& tensor = tensors_[i];
    const LambSums sums = MeasureInTwo(options_, scalars, tensor);
    const float ratio = LambTrustRatio(options_, sums);
    const size_t at = step * tensors_.size() + i;
    INFO("step " << step << " tensor " << i);
    CHECK(Near(ratio, ratios_[at], 5e-4));
    CHECK(Near(std::min(std::sqrt(sums.weight_squares), options_.clamp), weight_norms_[at], 5e-4));
    CHECK(Near(std::sqrt(sums.update_squares), step_norms_[at], 5e-4));
    const int64_t cut = tensor.count() / 2;
    LambApply(options_, scalars, ratio, tensor.slice(cut, tensor.count()));
    LambApply(options_, scalars, ratio, tensor.slice(0, cut));
    const Reference& reference = references_[i];
    CHECK(WorstError(tensor.p, reference.p, step) <= 1e-6);
    CHECK(WorstError(tensor.m, reference.m, step) <= 1e-5 * reference.m_max);
    CHECK(WorstError(tensor.v, reference.v, step) <= 1e-5 * reference.v_max);
  }

  const json& run_;
  std::vector<double> rates_;
  std::vector<float> norms_, ratios_, weight_norms_, step_norms_;
  Options options_;
  std::vector<OptimTensor> tensors_;
  std::vector<Reference> references_;
  int64_t clipped_ = 0;
};

}  // namespace

TEST_CASE("lamb: runs of the reference", "[optim]") {
  const json runs = testing::ParityJson("p13_lamb/runs.json");
  for (const json& description : runs) {
    const std::string name = description["name"];
    INFO(name);
    auto file = SafetensorsFile::Open(
        testing::ParityPath("p13_lamb/" + description["file"].get<std::string>()));
    REQUIRE(file.ok());
    Run run(description, *file);
    for (int64_t step = 0; step < run.steps(); ++step) run.Step(static_cast<size_t>(step));
    CHECK(run.clipped() == description["clipped_steps"].get<int64_t>());
  }
}

TEST_CASE("lamb: the ratio is 1 when either norm is 0, and the clamp bounds the weight norm",
          "[optim]") {
  Options options;
  CHECK(LambTrustRatio(options, {0, 4}) == 1.0f);
  CHECK(LambTrustRatio(options, {4, 0}) == 1.0f);
  CHECK(LambTrustRatio(options, {9, 4}) == 1.5f);
  options.clamp = 1;
  CHECK(LambTrustRatio(options, {9, 4}) == 0.5f);
}

}  // namespace starling::optim
