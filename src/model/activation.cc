#include "model/activation.h"

#include <ATen/ops/clamp.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/tanh.h>
#include <torch/csrc/autograd/custom_function.h>

#include "starling/base/log.h"
#include "starling/model/lean_albert_config.h"

namespace starling::model {
namespace {

// Far beyond it the derivative is exactly 0 or 1, while its formula multiplies 0 by infinity.
constexpr double kFlatBeyond = 1e4;

struct GeluTanh : torch::autograd::Function<GeluTanh> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return at::gelu(x, "tanh");
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0].clamp(-kFlatBeyond, kFlatBeyond);
    return {at::gelu_backward(gradients[0], x, "tanh")};
  }
};

}  // namespace

Activation ParseActivation(const std::string& name) {
  STARLING_CHECK(IsActivation(name)) << name;
  if (name == "gelu") return Activation::kGeluErf;
  if (name == "relu") return Activation::kRelu;
  if (name == "silu") return Activation::kSilu;
  if (name == "tanh") return Activation::kTanh;
  return Activation::kGeluTanh;
}

at::Tensor Activate(Activation activation, const at::Tensor& x) {
  switch (activation) {
    case Activation::kGeluTanh:
      return GeluTanh::apply(x);
    case Activation::kGeluErf:
      return at::gelu(x, "none");
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kSilu:
      return at::silu(x);
    case Activation::kTanh:
      return at::tanh(x);
  }
  return x;
}

}  // namespace starling::model
