#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include "starling/base/log.h"
#include "starling/model/lean_albert.h"

namespace starling::model {
namespace {

void CheckFlatBuffer(const char* what, const at::Tensor& buffer, int64_t values) {
  STARLING_CHECK(buffer.defined() && buffer.dim() == 1 && buffer.is_contiguous() &&
                 buffer.scalar_type() == at::kFloat && !buffer.requires_grad() &&
                 buffer.numel() >= values)
      << "the flat buffer of " << what << " must be plain contiguous fp32 of " << values
      << " elements";
}

}  // namespace

std::vector<at::Tensor> AllocateParameters(const ParameterLayout& layout) {
  std::vector<at::Tensor> parameters;
  parameters.reserve(layout.parameter_count());
  for (size_t i = 0; i < layout.parameter_count(); ++i) {
    parameters.push_back(
        at::zeros(layout.parameter(i).shape, at::TensorOptions().dtype(at::kFloat)));
    parameters.back().set_requires_grad(true);
  }
  return parameters;
}

std::vector<at::Tensor> ParameterViews(const ParameterLayout& layout, const at::Tensor& values,
                                       const at::Tensor& gradients) {
  CheckFlatBuffer("parameters", values, layout.distinct_values());
  CheckFlatBuffer("gradients", gradients, layout.distinct_values());
  std::vector<at::Tensor> parameters;
  parameters.reserve(layout.parameter_count());
  int64_t offset = 0;
  for (size_t i = 0; i < layout.parameter_count(); ++i) {
    const LayoutEntry& entry = layout.parameter(i);
    const int64_t count = entry.element_count();
    parameters.push_back(values.narrow(0, offset, count).view(entry.shape));
    parameters.back().set_requires_grad(true);
    parameters.back().mutable_grad() = gradients.narrow(0, offset, count).view(entry.shape);
    offset += count;
  }
  return parameters;
}

void InitializeParameters(const LeanAlbertConfig& config, uint64_t seed,
                          std::span<const at::Tensor> parameters,
                          const std::function<void()>& progressed) {
  const ParameterLayout layout = MakeParameterLayout(config);
  STARLING_CHECK(parameters.size() == layout.parameter_count())
      << parameters.size() << " tensors for " << layout.parameter_count() << " parameters";
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& tensor = parameters[i];
    STARLING_CHECK(tensor.sizes() == at::IntArrayRef(layout.parameter(i).shape) &&
                   tensor.is_contiguous() && tensor.is_cpu() && tensor.scalar_type() == at::kFloat)
        << layout.parameter(i).name << " must be contiguous fp32 of its shape on the CPU";
    float* data = tensor.mutable_data_ptr<float>();
    at::parallel_for(0, tensor.numel(), 1 << 15, [&](int64_t begin, int64_t end) {
      FillInitialValues(layout, i, seed, begin, {data + begin, static_cast<size_t>(end - begin)});
    });
    if (progressed) progressed();
  }
}

}  // namespace starling::model
