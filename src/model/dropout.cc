#include "model/dropout.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <cmath>

#include "starling/base/rng.h"

namespace starling::model {
namespace {

at::Tensor SeededMask(uint64_t seed, at::IntArrayRef shape, double p, DropoutAddress address) {
  at::Tensor keep = at::empty(shape, at::TensorOptions().dtype(at::kByte));
  const auto dropped_below = static_cast<uint64_t>(std::llround(p * 0x1.0p32));
  auto* out = keep.mutable_data_ptr<uint8_t>();
  const int64_t count = keep.numel();
  for (int64_t block = 0; block * 4 < count; ++block) {
    const auto index = static_cast<uint64_t>(block);
    const auto bits =
        Philox(seed, {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                      static_cast<uint32_t>(address.site), address.block});
    for (int64_t i = block * 4; i < std::min(count, block * 4 + 4); ++i) {
      out[i] = bits[static_cast<size_t>(i % 4)] >= dropped_below;
    }
  }
  return keep;
}

}  // namespace

KeepMaskSource SeededMasks(uint64_t seed) {
  return [seed](at::IntArrayRef shape, double p, DropoutAddress address) {
    return SeededMask(seed, shape, p, address);
  };
}

at::Tensor ApplyDropout(const at::Tensor& x, double p, const KeepMaskSource& source,
                        DropoutAddress address) {
  if (p == 0 || !source) return x;
  const at::Tensor keep = source(x.sizes(), p, address);
  return at::mul(x, keep.to(x.options()).mul(1.0 / (1.0 - p)));
}

}  // namespace starling::model
