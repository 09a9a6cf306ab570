// Compiled with -ffp-contract=off: a fused multiply-add would change bits between processors.
#include <algorithm>
#include <array>
#include <cmath>

#include "starling/base/log.h"
#include "starling/base/rng.h"
#include "starling/model/lean_albert_layout.h"

namespace starling::model {
namespace {

using Coefficients = std::array<double, 8>;

// c[0] + c[1] x + … + c[7] x^7.
double Polynomial(const Coefficients& c, double x) {
  double sum = c[7];
  for (int i = 6; i >= 0; --i) sum = sum * x + c[static_cast<size_t>(i)];
  return sum;
}

// Natural logarithm for x in (0, 1) from basic operations: x = m · 2^e with m in [√½, √2), and
// log m = 2 (s + s³/3 + s⁵/5 + …), s = (m − 1) / (m + 1), |s| < 0.172. The C library's own
// logarithm may choose another code path, and other last bits, on another processor.
double PortableLog(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < 0.70710678118654752) {
    mantissa *= 2;
    --exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1), square = s * s;
  double sum = 0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return 2 * s * sum + exponent * 0.69314718055994531;
}

// Coefficients of AS 241, routine PPND16: centre, intermediate and far tail.
constexpr Coefficients kCentreTop = {3.3871328727963666080e0,  1.3314166789178437745e+2,
                                     1.9715909503065514427e+3, 1.3731693765509461125e+4,
                                     4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                     3.3430575583588128105e+4, 2.5090809287301226727e+3};
constexpr Coefficients kCentreBottom = {1.0,
                                        4.2313330701600911252e+1,
                                        6.8718700749205790830e+2,
                                        5.3941960214247511077e+3,
                                        2.1213794301586595867e+4,
                                        3.9307895800092710610e+4,
                                        2.8729085735721942674e+4,
                                        5.2264952788528545610e+3};
constexpr Coefficients kTailTop = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                   5.76949722146069140550e0,  3.64784832476320460504e0,
                                   1.27045825245236838258e0,  2.41780725177450611770e-1,
                                   2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr Coefficients kTailBottom = {1.0,
                                      2.05319162663775882187e0,
                                      1.67638483018380384940e0,
                                      6.89767334985100004550e-1,
                                      1.48103976427480074590e-1,
                                      1.51986665636164571966e-2,
                                      5.47593808499534494600e-4,
                                      1.05075007164441684324e-9};
constexpr Coefficients kFarTop = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                  1.78482653991729133580e0,  2.96560571828504891230e-1,
                                  2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                  2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr Coefficients kFarBottom = {1.0,
                                     5.99832206555887937690e-1,
                                     1.36929880922735805310e-1,
                                     1.48753612908506148525e-2,
                                     7.86869131145613259100e-4,
                                     1.84631831751005468180e-5,
                                     1.42151175831644588870e-7,
                                     2.04426310338993978564e-15};

double DrawValue(const InitRule& rule, uint64_t seed, size_t parameter, int64_t element) {
  const auto index = static_cast<uint64_t>(element);
  const uint64_t bits = Draw({.seed = seed,
                              .step = parameter,
                              .micro_batch = static_cast<uint32_t>(index >> 32),
                              .row = static_cast<uint32_t>(index),
                              .purpose = DrawPurpose::kParameterInit});
  if (rule.kind == InitRule::Kind::kUniform) return (2 * ToUnit(bits) - 1) * rule.scale;
  // 52 bits and a half: strictly inside (0, 1), and exact.
  const double p = (static_cast<double>(bits >> 12) + 0.5) * 0x1.0p-52;
  return InverseNormal(p) * rule.scale;
}

}  // namespace

double InverseNormal(double p) {
  const double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * Polynomial(kCentreTop, r) / Polynomial(kCentreBottom, r);
  }
  const double r = std::sqrt(-PortableLog(q < 0 ? p : 1 - p));
  const double z = r <= 5 ? Polynomial(kTailTop, r - 1.6) / Polynomial(kTailBottom, r - 1.6)
                          : Polynomial(kFarTop, r - 5) / Polynomial(kFarBottom, r - 5);
  return q < 0 ? -z : z;
}

void FillInitialValues(const ParameterLayout& layout, size_t parameter, uint64_t seed,
                       int64_t first, std::span<float> values) {
  const LayoutEntry& entry = layout.parameter(parameter);
  const InitRule& rule = entry.init;
  const auto count = static_cast<int64_t>(values.size());
  STARLING_CHECK(first >= 0 && first + count <= entry.element_count())
      << "elements " << first << " + " << count << " leave " << entry.name;
  if (rule.kind == InitRule::Kind::kZeros || rule.kind == InitRule::Kind::kOnes) {
    std::fill(values.begin(), values.end(), rule.kind == InitRule::Kind::kOnes ? 1.0f : 0.0f);
    return;
  }
  const int64_t zero_begin = rule.zero_row < 0 ? -1 : rule.zero_row * entry.shape.back();
  const int64_t zero_end = rule.zero_row < 0 ? -1 : zero_begin + entry.shape.back();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t element = first + i;
    const bool is_zero = element >= zero_begin && element < zero_end;
    values[static_cast<size_t>(i)] =
        is_zero ? 0.0f : static_cast<float>(DrawValue(rule, seed, parameter, element));
  }
}

}  // namespace starling::model
