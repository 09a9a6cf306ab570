// Adam with decoupled weight decay (Loshchilov and Hutter, 2019). With g the scaled gradient:
//
//   m ← β1 m + (1 − β1) g        v ← β2 v + (1 − β2) g²
//   p ← p · (1 − rate · decay) − rate / (1 − β1^t) · m / (√v / √(1 − β2^t) + ε)
#pragma once

#include "starling/optim/options.h"
#include "starling/optim/step.h"

namespace starling::optim {

// Writes m, v and p of the slice.
void AdamWApply(const Options& options, const StepScalars& scalars, const Slice& slice);

}  // namespace starling::optim
