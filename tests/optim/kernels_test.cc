// The variants of the kernels must give the same bits, whatever the processor and however a tensor
// is cut.
#include "optim/kernels.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "optim/optim_tensors.h"
#include "starling/optim/adamw.h"
#include "starling/optim/lamb.h"

namespace starling::optim {
namespace {

using testing::OptimTensor;

const LambConstants kLamb = {{0.37f, 0.9f, 0.1f, 0.95f, 0.05f, 1e-6f}, 0.01f, 0.0123f};
const AdamWConstants kAdamW = {{0.37f, 0.9f, 0.1f, 0.95f, 0.05f, 1e-6f}, 0.9999f, 0.01f, 0.3f};

}  // namespace

TEST_CASE("kernels: every variant gives the bits of the portable one", "[optim]") {
  const Kernels& portable = KernelsFor(Variant::kPortable);
  for (Variant variant : SupportedVariants()) {
    const Kernels& kernels = KernelsFor(variant);
    for (int64_t count : {0, 1, 15, 16, 17, 1000, 4096, 10007}) {
      INFO("variant " << static_cast<int>(variant) << " count " << count);
      OptimTensor expected(count), actual(count);
      CHECK(kernels.square_sum(actual.g.data(), count) ==
            portable.square_sum(expected.g.data(), count));
      const LambSums a = kernels.lamb_measure(actual.slice(), kLamb);
      const LambSums b = portable.lamb_measure(expected.slice(), kLamb);
      CHECK(a.weight_squares == b.weight_squares);
      CHECK(a.update_squares == b.update_squares);
      kernels.lamb_apply(actual.slice(), kLamb);
      portable.lamb_apply(expected.slice(), kLamb);
      CHECK(actual == expected);
      kernels.adamw_apply(actual.slice(), kAdamW);
      portable.adamw_apply(expected.slice(), kAdamW);
      CHECK(actual == expected);
    }
  }
}

TEST_CASE("kernels: slices of a tensor give the bits of the whole", "[optim]") {
  OptimTensor whole(5000), cut(5000);
  BestKernels().lamb_apply(whole.slice(), kLamb);
  for (int64_t begin = 0; begin < 5000; begin += 377) {
    BestKernels().lamb_apply(cut.slice(begin, std::min<int64_t>(begin + 377, 5000)), kLamb);
  }
  CHECK(cut == whole);
  BestKernels().adamw_apply(whole.slice(), kAdamW);
  for (int64_t begin = 0; begin < 5000; begin += 1001) {
    BestKernels().adamw_apply(cut.slice(begin, std::min<int64_t>(begin + 1001, 5000)), kAdamW);
  }
  CHECK(cut == whole);
}

TEST_CASE("kernels: measured and applied updates are the same numbers", "[optim]") {
  OptimTensor tensor(1000);
  const OptimTensor before = tensor;
  const LambSums sums = BestKernels().lamb_measure(tensor.slice(), kLamb);
  CHECK(tensor == before);
  // With step 1 and p = 0 beforehand, p becomes −u exactly.
  OptimTensor zero = tensor;
  LambConstants constants = kLamb;
  constants.step = 1;
  constants.decay = 0;
  std::fill(zero.p.begin(), zero.p.end(), 0.0f);
  const LambSums of_zero = BestKernels().lamb_measure(zero.slice(), constants);
  BestKernels().lamb_apply(zero.slice(), constants);
  CHECK(SquareSum(zero.p) == of_zero.update_squares);
  CHECK(sums.weight_squares == SquareSum(before.p));
}

TEST_CASE("square sum: double precision, and what is not finite comes through", "[optim]") {
  std::vector<float> values(1'000'003, 0.1f);
  CHECK(std::abs(SquareSum(values) - 1'000'003 * 0.010000000298023226) < 1e-6);
  values[77] = std::numeric_limits<float>::infinity();
  CHECK(std::isinf(SquareSum(values)));
  values[1'000'002] = std::numeric_limits<float>::quiet_NaN();
  CHECK(std::isnan(SquareSum(values)));
}

TEST_CASE("clip: factor on the norm", "[optim]") {
  CHECK(ClipFactor(0.5, 1.0) == 1.0);
  CHECK(ClipFactor(4.0, 1.0) == 1.0 / (4.0 + 1e-6));
  CHECK(ClipFactor(1e9, 0) == 1.0);
  CHECK(std::isnan(ClipFactor(std::nan(""), 1.0)));
  CHECK(ClipFactor(std::numeric_limits<double>::infinity(), 1.0) == 0.0);
}

TEST_CASE("integer power: close to pow", "[optim]") {
  for (int64_t exponent : {0, 1, 2, 3, 10, 1000, 15625}) {
    CHECK(std::abs(IntegerPower(0.95, exponent) - std::pow(0.95, exponent)) <= 1e-14);
  }
}

}  // namespace starling::optim
