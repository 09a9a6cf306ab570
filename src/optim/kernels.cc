// Compiled with -ffp-contract=off: a fused multiply-add that only some variants have would change
// bits. Loops are written over sixteen lanes, which the compiler turns into vectors of any width.
#include "optim/kernels.h"

#include <cmath>

#define STARLING_INLINE inline __attribute__((always_inline))

namespace starling::optim {
namespace {

constexpr int kLanes = 16;

struct Lanes {
  double value[kLanes] = {};

  // Adds them pairwise, always in the same order.
  STARLING_INLINE double Sum() {
    for (int width = kLanes / 2; width > 0; width /= 2) {
      for (int j = 0; j < width; ++j) value[j] += value[j + width];
    }
    return value[0];
  }
};

// The product of two floats is exact in double, so only the addition rounds.
STARLING_INLINE double Square(float x) { return static_cast<double>(x) * static_cast<double>(x); }

struct Moments {
  float m, v;
};

STARLING_INLINE Moments NextMoments(const Slice& s, int64_t i, const MomentConstants& c) {
  const float g = s.gradient[i] * c.gradient_scale;
  return {c.beta1 * s.first_moment[i] + c.one_minus_beta1 * g,
          c.beta2 * s.second_moment[i] + c.one_minus_beta2 * (g * g)};
}

STARLING_INLINE float LambUpdate(const Moments& next, float p, const LambConstants& c) {
  return next.m / (std::sqrt(next.v) + c.moments.epsilon) + c.decay * p;
}

STARLING_INLINE double SquareSumLoop(const float* values, int64_t count) {
  Lanes lanes;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lanes.value[j] += Square(values[i + j]);
  }
  for (int j = 0; i < count; ++i, ++j) lanes.value[j] += Square(values[i]);
  return lanes.Sum();
}

STARLING_INLINE LambSums LambMeasureLoop(const Slice& s, const LambConstants& c) {
  Lanes weights, updates;
  int64_t i = 0;
  for (; i + kLanes <= s.count; i += kLanes) {
    float u[kLanes];
    for (int j = 0; j < kLanes; ++j) {
      u[j] = LambUpdate(NextMoments(s, i + j, c.moments), s.parameters[i + j], c);
    }
    for (int j = 0; j < kLanes; ++j) {
      weights.value[j] += Square(s.parameters[i + j]);
      updates.value[j] += Square(u[j]);
    }
  }
  for (int j = 0; i < s.count; ++i, ++j) {
    weights.value[j] += Square(s.parameters[i]);
    updates.value[j] += Square(LambUpdate(NextMoments(s, i, c.moments), s.parameters[i], c));
  }
  return {weights.Sum(), updates.Sum()};
}

STARLING_INLINE float NextParameter(const Moments& next, float p, const LambConstants& c) {
  return p - c.step * LambUpdate(next, p, c);
}

STARLING_INLINE float NextParameter(const Moments& next, float p, const AdamWConstants& c) {
  const float denominator = std::sqrt(next.v) / c.root + c.moments.epsilon;
  return p * c.keep - c.step * (next.m / denominator);
}

template <typename Constants>
STARLING_INLINE void ApplyLoop(const Slice& s, const Constants& c) {
  float* __restrict p = s.parameters;
  float* __restrict m = s.first_moment;
  float* __restrict v = s.second_moment;
  const float* __restrict g = s.gradient;
  const Slice slice{p, m, v, g, s.count, s.decay};
  const Constants constants = c;
  for (int64_t i = 0; i < s.count; ++i) {
    const Moments next = NextMoments(slice, i, constants.moments);
    m[i] = next.m;
    v[i] = next.v;
    p[i] = NextParameter(next, p[i], constants);
  }
}

// The four loops for one instruction set, as the table `name`.
#define STARLING_KERNELS(name, attribute)                                                    \
  attribute double name##SquareSum(const float* values, int64_t count) {                     \
    return SquareSumLoop(values, count);                                                     \
  }                                                                                          \
  attribute LambSums name##LambMeasure(const Slice& slice, const LambConstants& constants) { \
    return LambMeasureLoop(slice, constants);                                                \
  }                                                                                          \
  attribute void name##LambApply(const Slice& slice, const LambConstants& constants) {       \
    ApplyLoop(slice, constants);                                                             \
  }                                                                                          \
  attribute void name##AdamWApply(const Slice& slice, const AdamWConstants& constants) {     \
    ApplyLoop(slice, constants);                                                             \
  }                                                                                          \
  constexpr Kernels name = {name##SquareSum, name##LambMeasure, name##LambApply, name##AdamWApply};

STARLING_KERNELS(kPortableKernels, )
#if defined(__x86_64__)
STARLING_KERNELS(kAvx2Kernels, __attribute__((target("avx2,fma"))))
STARLING_KERNELS(kAvx512Kernels, __attribute__((target("avx512f,avx512vl,avx512dq,fma"))))
#endif

}  // namespace

MomentConstants MakeMomentConstants(const Options& options, const StepScalars& scalars) {
  return {static_cast<float>(scalars.gradient_scale), static_cast<float>(options.beta1),
          static_cast<float>(1 - options.beta1),      static_cast<float>(options.beta2),
          static_cast<float>(1 - options.beta2),      static_cast<float>(options.epsilon)};
}

std::vector<Variant> SupportedVariants() {
  std::vector<Variant> variants = {Variant::kPortable};
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (avx2) variants.push_back(Variant::kAvx2);
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq")) {
    variants.push_back(Variant::kAvx512);
  }
#endif
  return variants;
}

const Kernels& KernelsFor(Variant variant) {
#if defined(__x86_64__)
  if (variant == Variant::kAvx2) return kAvx2Kernels;
  if (variant == Variant::kAvx512) return kAvx512Kernels;
#endif
  (void)variant;
  return kPortableKernels;
}

const Kernels& BestKernels() {
  static const Kernels& best = KernelsFor(SupportedVariants().back());
  return best;
}

}  // namespace starling::optim
