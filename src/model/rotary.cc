#include "model/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/sin.h>

namespace starling::model {

RotaryTables MakeRotaryTables(int64_t dim, double base, int64_t length,
                              const at::TensorOptions& options) {
  const at::TensorOptions fp32 = options.dtype(at::kFloat).requires_grad(false);
  const double last = -1.0 + 2.0 / static_cast<double>(dim);
  const at::Tensor frequencies = at::pow(base, at::linspace(0, last, dim / 2, fp32));
  const at::Tensor angles =
      at::outer(at::arange(length, fp32), at::cat({frequencies, frequencies}));
  return {at::cos(angles), at::sin(angles)};
}

at::Tensor ApplyRotary(const at::Tensor& x, const RotaryTables& tables, int64_t first) {
  const int64_t length = x.size(1), dim = x.size(-1);
  const at::Tensor cos = tables.cos.narrow(0, first, length).unsqueeze(1);  // [T, 1, dim]
  const at::Tensor sin = tables.sin.narrow(0, first, length).unsqueeze(1);
  const at::Tensor a = x.narrow(-1, 0, dim / 2), b = x.narrow(-1, dim / 2, dim / 2);
  return x * cos + at::cat({at::neg(b), a}, -1) * sin;
}

}  // namespace starling::model
