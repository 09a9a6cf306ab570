// LAMB with fp32 state (RuLeanALBERT src/training/lamb_8bit.py, without its 8-bit part). For one
// tensor, with g the scaled gradient and t the number of the update:
//
//   m ← β1 m + (1 − β1) g        v ← β2 v + (1 − β2) g²        u = m / (√v + ε) + decay · p
//   ratio = min(‖p‖, clamp) / ‖u‖, or 1 when either norm is 0
//   p ← p − rate · √(1 − β2^t) / (1 − β1^t) · ratio · u
//
// The norms are those of whole tensors, which may lie on several workers. So an update has two
// halves: LambMeasure gives a slice's part of the norms and writes nothing; when the parts are
// added up, LambApply computes m, v and u again, by the same operations, and writes.
#pragma once

#include "starling/optim/options.h"
#include "starling/optim/step.h"

namespace starling::optim {

struct LambSums {
  double weight_squares = 0;  // Σ p²
  double update_squares = 0;  // Σ u²
};

LambSums LambMeasure(const Options& options, const StepScalars& scalars, const Slice& slice);

// Of a whole tensor.
float LambTrustRatio(const Options& options, const LambSums& sums);

// Writes m, v and p of the slice.
void LambApply(const Options& options, const StepScalars& scalars, float trust_ratio,
               const Slice& slice);

}  // namespace starling::optim
