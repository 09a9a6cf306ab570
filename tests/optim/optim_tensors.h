// Flat buffers of one tensor with pseudo-random contents, for the optimizer tests.
#pragma once

#include <cstdint>
#include <vector>

#include "starling/base/rng.h"
#include "starling/optim/step.h"

namespace starling::testing {

struct OptimTensor {
  std::vector<float> p, m, v, g;
  bool decay = true;

  explicit OptimTensor(int64_t count, uint64_t seed = 1) {
    const auto draw = [&](uint32_t row, int64_t i) {
      return static_cast<float>(
          2 * ToUnit(Draw({.seed = seed, .step = static_cast<uint64_t>(i), .row = row})) - 1);
    };
    for (int64_t i = 0; i < count; ++i) {
      p.push_back(draw(0, i));
      m.push_back(draw(1, i) * 1e-2f);
      v.push_back(draw(2, i) * draw(2, i) * 1e-4f);
      // From subnormal to large.
      g.push_back(draw(3, i) * (i % 7 == 0 ? 1e-38f : i % 5 == 0 ? 1e3f : 1.0f));
    }
  }

  int64_t count() const { return static_cast<int64_t>(p.size()); }
  optim::Slice slice(int64_t begin, int64_t end) {
    return {p.data() + begin, m.data() + begin, v.data() + begin,
            g.data() + begin, end - begin,      decay};
  }
  optim::Slice slice() { return slice(0, count()); }
  bool operator==(const OptimTensor&) const = default;
};

}  // namespace starling::testing
