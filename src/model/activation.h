// Activations of the FFN blocks and the MLM head, by their configuration name.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace starling::model {

enum class Activation { kGeluTanh, kGeluErf, kRelu, kSilu, kTanh };

// "gelu_fused" and "gelu_new" name one function: 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))).
// REQUIRES: IsActivation(name).
Activation ParseActivation(const std::string& name);

// Elementwise; saves only `x` for backward. The derivative is finite for every finite x (the
// textbook form of the tanh GELU gives NaN beyond about 1.8e19).
at::Tensor Activate(Activation activation, const at::Tensor& x);

}  // namespace starling::model
