// Rotary position embeddings, half-split (NeoX) convention, over the whole head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace starling::model {

// cos and sin of θ[t, :] = t · (f, f), f_i = base^(−2i/dim), i < dim/2; fp32 [length, dim].
// Computed anew for each forward: it is nothing beside a layer, and leaves the model without
// mutable state.
struct RotaryTables {
  at::Tensor cos;
  at::Tensor sin;
};
RotaryTables MakeRotaryTables(int64_t dim, double base, int64_t length,
                              const at::TensorOptions& options);

// x · cos + [−b|a] · sin for x = [a|b] split in the middle of the last dimension.
// x [batch, T, heads, dim] sits at positions first … first + T − 1 of the tables.
at::Tensor ApplyRotary(const at::Tensor& x, const RotaryTables& tables, int64_t first = 0);

}  // namespace starling::model
