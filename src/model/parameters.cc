#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include "starling/base/log.h"
#include "starling/model/lean_albert.h"

namespace starling::model {

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
