// What every optimizer works on: a slice of one tensor's flat buffers and the numbers of one
// update.
//
// All kernels use separately rounded fp32 operations (no fused multiply-add) and sums of sixteen
// fixed lanes in double, so that AVX-512, AVX2 and portable code give the same bits. Callers may
// cut a tensor anywhere: elements do not depend on their neighbours. Pure; thread-safe as long as
// slices do not overlap. Non-finite gradients pass through: whoever drives the step skips it.
#pragma once

#include <cstdint>
#include <span>

namespace starling::optim {

// Elements [0, count) of one tensor, or of a part of it. Not owned. REQUIRES: no overlap.
struct Slice {
  float* parameters = nullptr;
  float* first_moment = nullptr;
  float* second_moment = nullptr;
  const float* gradient = nullptr;  // before `StepScalars::gradient_scale`
  int64_t count = 0;
  bool decay = true;  // weight decay applies to this tensor
};

struct StepScalars {
  double learning_rate = 0;   // after the schedule
  double gradient_scale = 1;  // multiplies the gradient; holds the clip factor too
  int64_t update = 1;         // t = 1, 2, … of the bias correction
};

// Factor on a gradient of norm `norm` so that it does not exceed `max_norm`:
// min(1, max_norm / (norm + 1e-6)); 1 when max_norm is 0. NaN for a NaN norm.
double ClipFactor(double norm, double max_norm);

// Σ x² in double.
double SquareSum(std::span<const float> values);

// base^exponent by squaring. The same bits on every machine, which std::pow does not promise.
double IntegerPower(double base, int64_t exponent);

}  // namespace starling::optim
