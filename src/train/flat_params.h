// The five flat buffers of a worker, and the model's parameters as views into them. Owned by the
// trainer; one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "starling/train/flat_layout.h"

namespace starling::train {

// Floats on a 64-byte boundary.
class AlignedFloats {
 public:
  // All zero. ResourceExhausted, saying how many bytes were asked for.
  static absl::StatusOr<AlignedFloats> Allocate(int64_t count);

  std::span<float> span() { return {data_.get(), count_}; }
  std::span<const float> span() const { return {data_.get(), count_}; }

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };
  std::unique_ptr<float[], Free> data_;
  size_t count_ = 0;
};

struct FlatBuffers {
  AlignedFloats parameters, first_moment, second_moment, accumulator, reduced;

  // All zero.
  static absl::StatusOr<FlatBuffers> Allocate(const FlatLayout& layout);
};

// Leaf tensors over the parameters, whose gradients are tensors over the accumulator: backward adds
// into it in place. The buffers must outlive them and stay where they are.
std::vector<at::Tensor> MakeParameterViews(const FlatLayout& layout, FlatBuffers* buffers);

// Whether every gradient still lies in the accumulator. Internal, naming the tensor, when libtorch
// has replaced one, which would lose gradients silently.
absl::Status CheckGradientViews(const FlatLayout& layout, const FlatBuffers& buffers,
                                std::span<const at::Tensor> parameters);

}  // namespace starling::train
