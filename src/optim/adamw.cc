#include "starling/optim/adamw.h"

#include <cmath>

#include "optim/kernels.h"

namespace starling::optim {

void AdamWApply(const Options& options, const StepScalars& scalars, const Slice& slice) {
  AdamWConstants constants;
  constants.moments = MakeMomentConstants(options, scalars);
  const double decay = slice.decay ? options.weight_decay : 0.0;
  constants.keep = static_cast<float>(1 - scalars.learning_rate * decay);
  constants.step =
      static_cast<float>(scalars.learning_rate / (1 - IntegerPower(options.beta1, scalars.update)));
  constants.root = static_cast<float>(std::sqrt(1 - IntegerPower(options.beta2, scalars.update)));
  BestKernels().adamw_apply(slice, constants);
}

}  // namespace starling::optim
