// AdamW against the textbook formula in double precision, over several updates.
#include "starling/optim/adamw.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "optim/optim_tensors.h"

namespace starling::optim {
namespace {

// One element, all in double.
struct ReferenceElement {
  double p, m = 0, v = 0;

  void Step(const Options& o, double g, double rate, int t, bool decay) {
    m = o.beta1 * m + (1 - o.beta1) * g;
    v = o.beta2 * v + (1 - o.beta2) * g * g;
    const double unbiased_m = m / (1 - std::pow(o.beta1, t));
    const double unbiased_v = v / (1 - std::pow(o.beta2, t));
    if (decay) p -= rate * o.weight_decay * p;
    p -= rate * unbiased_m / (std::sqrt(unbiased_v) + o.epsilon);
  }
};

}  // namespace

TEST_CASE("adamw: twenty updates follow the formula", "[optim]") {
  Options options;
  options.name = Name::kAdamW;
  options.weight_decay = 0.1;
  for (bool decay : {true, false}) {
    testing::OptimTensor tensor(100);
    tensor.decay = decay;
    tensor.m.assign(100, 0.0f);
    tensor.v.assign(100, 0.0f);
    std::vector<ReferenceElement> reference;
    for (float p : tensor.p) reference.push_back({p});
    for (int t = 1; t <= 20; ++t) {
      const testing::OptimTensor drawn(100, static_cast<uint64_t>(t));
      tensor.g = drawn.p;
      AdamWApply(options, {0.01 / t, 0.25, t}, tensor.slice());
      for (size_t i = 0; i < 100; ++i) {
        reference[i].Step(options, 0.25 * double{tensor.g[i]}, 0.01 / t, t, decay);
        if (std::abs(reference[i].p - double{tensor.p[i]}) > 1e-6) {
          FAIL("update " << t << " element " << i << ": " << tensor.p[i] << ", expected "
                         << reference[i].p);
        }
      }
    }
  }
}

TEST_CASE("adamw: a zero gradient only decays", "[optim]") {
  testing::OptimTensor tensor(64);
  const std::vector<float> before = tensor.p;
  tensor.m.assign(64, 0.0f);
  tensor.v.assign(64, 0.0f);
  tensor.g.assign(64, 0.0f);
  Options options;
  options.weight_decay = 0.5;
  AdamWApply(options, {0.5, 1, 1}, tensor.slice());
  for (size_t i = 0; i < 64; ++i) CHECK(tensor.p[i] == before[i] * 0.75f);
}

}  // namespace starling::optim
