#include "starling/optim/lamb.h"

#include <algorithm>
#include <cmath>

#include "optim/kernels.h"

namespace starling::optim {
namespace {

LambConstants MakeConstants(const Options& options, const StepScalars& scalars,
                            const Slice& slice) {
  return {MakeMomentConstants(options, scalars),
          slice.decay ? static_cast<float>(options.weight_decay) : 0.0f, 0.0f};
}

// √(1 − β2^t) / (1 − β1^t): the whole bias correction is one scalar on the step size.
double BiasCorrection(const Options& options, int64_t update) {
  return std::sqrt(1 - IntegerPower(options.beta2, update)) /
         (1 - IntegerPower(options.beta1, update));
}

}  // namespace

LambSums LambMeasure(const Options& options, const StepScalars& scalars, const Slice& slice) {
  return BestKernels().lamb_measure(slice, MakeConstants(options, scalars, slice));
}

float LambTrustRatio(const Options& options, const LambSums& sums) {
  const auto weight = static_cast<float>(std::sqrt(sums.weight_squares));
  const auto update = static_cast<float>(std::sqrt(sums.update_squares));
  if (weight == 0 || update == 0) return 1.0f;
  return std::min(weight, static_cast<float>(options.clamp)) / update;
}

void LambApply(const Options& options, const StepScalars& scalars, float trust_ratio,
               const Slice& slice) {
  LambConstants constants = MakeConstants(options, scalars, slice);
  const double size = scalars.learning_rate * BiasCorrection(options, scalars.update);
  constants.step = static_cast<float>(size * static_cast<double>(trust_ratio));
  BestKernels().lamb_apply(slice, constants);
}

}  // namespace starling::optim
