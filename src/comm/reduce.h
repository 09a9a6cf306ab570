// Element-wise reduction of untyped memory, a pass at a time. Sums of 16-bit floats are kept in
// fp32 until Finish, so they are rounded once. Pure functions; any alignment.
//
//   acc = x0 ⊕ x1 ⊕ … :  Start(acc, x0); Combine(acc, x1); …; Finish(out, acc)
#pragma once

#include <cstdint>
#include <span>

#include "starling/base/dtype.h"
#include "starling/comm/communicator.h"

namespace starling::comm {

// True for the types whose accumulator is float instead of the type itself.
constexpr bool HasWideAccumulator(DType dtype) {
  return dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

// Whether `op` is defined on `dtype` (kOr: integers only).
bool Supports(DType dtype, ReduceOp op);

// acc[i] = src[i]. `acc` holds floats for the wide types, else elements of `dtype`.
void Start(DType dtype, void* acc, const void* src, int64_t count);
// acc[i] = acc[i] ⊕ src[i]. A NaN wins over every number in kMax. REQUIRES: Supports(dtype, op).
void Combine(DType dtype, ReduceOp op, void* acc, const void* src, int64_t count);
// dst[i] = acc[i], rounded to nearest even for the wide types. Nothing to do when acc == dst.
void Finish(DType dtype, void* dst, const void* acc, int64_t count);

// dst[i] = sources[0][i] ⊕ sources[1][i] ⊕ …; `dst` may be one of the sources.
void ReduceInOrder(DType dtype, ReduceOp op, std::span<const void* const> sources, void* dst,
                   int64_t count);

}  // namespace starling::comm
