// Reductions of 16-bit floats against arithmetic on doubles, NaN in a maximum, and integer wrap.
#include "comm/reduce.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace starling::comm {
namespace {

double HalfValue(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
  }
  return exponent == 0 ? sign * std::ldexp(mantissa, -24)
                       : sign * std::ldexp(mantissa + 1024, exponent - 25);
}

uint16_t Rounded(DType dtype, float value) {
  uint16_t bits = 0;
  Finish(dtype, &bits, &value, 1);
  return bits;
}

TEST_CASE("reduce: all halves widen to their value and come back unchanged", "[comm]") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    float wide = 0;
    Start(DType::kFloat16, &wide, &half, 1);
    if (std::isnan(HalfValue(half))) {
      REQUIRE(std::isnan(wide));
      REQUIRE(std::isnan(HalfValue(Rounded(DType::kFloat16, wide))));
    } else {
      REQUIRE(static_cast<double>(wide) == HalfValue(half));
      REQUIRE(Rounded(DType::kFloat16, wide) == half);
    }
  }
}

TEST_CASE("reduce: halves round to nearest even at every midpoint", "[comm]") {
  for (uint16_t half = 0; half < 0x7bff; ++half) {
    const double low = HalfValue(half);
    const double high = HalfValue(static_cast<uint16_t>(half + 1));
    const float middle = static_cast<float>((low + high) / 2);  // exact in float
    const uint16_t even = static_cast<uint16_t>(half + half % 2);
    REQUIRE(Rounded(DType::kFloat16, middle) == even);
    REQUIRE(Rounded(DType::kFloat16, -middle) == (even | 0x8000));
    REQUIRE(Rounded(DType::kFloat16, std::nextafter(middle, 1e9f)) == half + 1);
    REQUIRE(Rounded(DType::kFloat16, std::nextafter(middle, 0.0f)) == half);
  }
  CHECK(Rounded(DType::kFloat16, 65519.0f) == 0x7bff);
  CHECK(Rounded(DType::kFloat16, 65520.0f) == 0x7c00);
}

TEST_CASE("reduce: bfloat16 rounds to nearest even and keeps NaN", "[comm]") {
  CHECK(Rounded(DType::kBFloat16, 1.0f) == 0x3f80);
  CHECK(Rounded(DType::kBFloat16, 1.0f + 0x1p-8f) == 0x3f80);      // tie, to even
  CHECK(Rounded(DType::kBFloat16, 1.0f + 3 * 0x1p-8f) == 0x3f82);  // tie, to even
  CHECK(Rounded(DType::kBFloat16, 1.0f + 0x1p-8f + 0x1p-20f) == 0x3f81);
  const uint16_t nan = Rounded(DType::kBFloat16, std::nanf(""));
  CHECK((nan & 0x7f80) == 0x7f80);
  CHECK((nan & 0x7f) != 0);
}

TEST_CASE("reduce: sums of bfloat16 are rounded once", "[comm]") {
  const uint16_t one = 0x3f80;
  const uint16_t tiny = 0x3b80;  // 2^-8: half a unit of 1.0, lost when every addition rounds
  const void* sources[] = {&one, &tiny, &tiny};
  uint16_t sum = 0;
  ReduceInOrder(DType::kBFloat16, ReduceOp::kSum, sources, &sum, 1);
  CHECK(sum == 0x3f81);
}

TEST_CASE("reduce: a NaN wins over every number in a maximum, from either side", "[comm]") {
  const float nan = std::nanf("");
  const float one = 1.0f;
  for (bool nan_first : {false, true}) {
    const void* sources[] = {nan_first ? &nan : &one, nan_first ? &one : &nan};
    float result = 0;
    ReduceInOrder(DType::kFloat32, ReduceOp::kMax, sources, &result, 1);
    CHECK(std::isnan(result));
  }
}

TEST_CASE("reduce: signed integers wrap around", "[comm]") {
  const int32_t most = std::numeric_limits<int32_t>::max();
  const int32_t one = 1;
  const void* sources[] = {&most, &one};
  int32_t sum = 0;
  ReduceInOrder(DType::kInt32, ReduceOp::kSum, sources, &sum, 1);
  CHECK(sum == std::numeric_limits<int32_t>::min());
  CHECK_FALSE(Supports(DType::kFloat32, ReduceOp::kOr));
  CHECK(Supports(DType::kUint8, ReduceOp::kOr));
}

}  // namespace
}  // namespace starling::comm
