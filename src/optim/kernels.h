// The loops of the optimizers, compiled once for each instruction set and chosen at run time. All
// variants give the same bits (optim/step.h says why); tests hold them to it.
#pragma once

#include <cstdint>
#include <vector>

#include "starling/optim/lamb.h"
#include "starling/optim/step.h"

namespace starling::optim {

enum class Variant { kPortable, kAvx2, kAvx512 };

// Numbers of an update, rounded to fp32 once.
struct MomentConstants {
  float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon;
};
MomentConstants MakeMomentConstants(const Options& options, const StepScalars& scalars);

struct LambConstants {
  MomentConstants moments;
  float decay;
  float step;  // rate · bias correction · ratio; LambMeasure does not read it
};
struct AdamWConstants {
  MomentConstants moments;
  float keep;  // 1 − rate · decay
  float step;  // rate / (1 − β1^t)
  float root;  // √(1 − β2^t)
};

struct Kernels {
  double (*square_sum)(const float* values, int64_t count);
  LambSums (*lamb_measure)(const Slice& slice, const LambConstants& constants);
  void (*lamb_apply)(const Slice& slice, const LambConstants& constants);
  void (*adamw_apply)(const Slice& slice, const AdamWConstants& constants);
};

// What this processor can run, the fastest last.
std::vector<Variant> SupportedVariants();
// REQUIRES: `variant` is supported.
const Kernels& KernelsFor(Variant variant);
// Those of the fastest variant.
const Kernels& BestKernels();

}  // namespace starling::optim
