#include "starling/optim/step.h"

#include "optim/kernels.h"

namespace starling::optim {

double ClipFactor(double norm, double max_norm) {
  if (max_norm == 0) return 1;
  const double factor = max_norm / (norm + 1e-6);
  return factor > 1 ? 1 : factor;  // a NaN stays one
}

double SquareSum(std::span<const float> values) {
  return BestKernels().square_sum(values.data(), static_cast<int64_t>(values.size()));
}

double IntegerPower(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

}  // namespace starling::optim
