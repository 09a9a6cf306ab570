#include "train/flat_params.h"

#include <ATen/ops/from_blob.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "starling/base/status.h"

namespace starling::train {
namespace {

constexpr size_t kBufferAlignment = 64;

at::Tensor ViewOf(const FlatTensor& tensor, std::span<float> buffer) {
  return at::from_blob(buffer.data() + tensor.begin, tensor.shape,
                       at::TensorOptions().dtype(at::kFloat));
}

}  // namespace

absl::StatusOr<AlignedFloats> AlignedFloats::Allocate(int64_t count) {
  const size_t bytes = (static_cast<size_t>(count) * sizeof(float) + kBufferAlignment - 1) /
                       kBufferAlignment * kBufferAlignment;
  AlignedFloats floats;
  floats.data_.reset(static_cast<float*>(std::aligned_alloc(kBufferAlignment, bytes)));
  if (floats.data_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for a buffer of ", bytes,
                                                     " bytes: use a smaller model or machine with "
                                                     "more memory"));
  }
  std::memset(floats.data_.get(), 0, bytes);
  floats.count_ = static_cast<size_t>(count);
  return floats;
}

absl::StatusOr<FlatBuffers> FlatBuffers::Allocate(const FlatLayout& layout) {
  FlatBuffers buffers;
  for (AlignedFloats* buffer : {&buffers.parameters, &buffers.first_moment, &buffers.second_moment,
                                &buffers.accumulator, &buffers.reduced}) {
    STARLING_ASSIGN_OR_RETURN(*buffer, AlignedFloats::Allocate(layout.size));
  }
  return buffers;
}

std::vector<at::Tensor> MakeParameterViews(const FlatLayout& layout, FlatBuffers* buffers) {
  std::vector<at::Tensor> parameters;
  for (const FlatTensor& tensor : layout.tensors) {
    at::Tensor parameter = ViewOf(tensor, buffers->parameters.span());
    parameter.set_requires_grad(true);
    parameter.mutable_grad() = ViewOf(tensor, buffers->accumulator.span());
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

absl::Status CheckGradientViews(const FlatLayout& layout, const FlatBuffers& buffers,
                                std::span<const at::Tensor> parameters) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const float* expected = buffers.accumulator.span().data() + layout.tensors[i].begin;
    if (parameters[i].grad().const_data_ptr() != expected) {
      return absl::InternalError(
          absl::StrCat("the gradient of ", layout.tensors[i].name, " has left the accumulator"));
    }
  }
  return absl::OkStatus();
}

}  // namespace starling::train
