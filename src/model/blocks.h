// The pieces of a LeanALBERT layer as plain structs of tensors and functions over them. They own
// nothing: tensors are handles to the caller's parameters. An undefined tensor means that the part
// does not exist. Shapes: B rows of T tokens, hidden size H.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "model/activation.h"
#include "model/dropout.h"
#include "model/rotary.h"

namespace starling::model {

// LayerNorm over the last dimension.
struct Norm {
  at::Tensor weight;
  at::Tensor bias;
  double eps = 0;

  bool exists() const { return weight.defined(); }
  at::Tensor operator()(const at::Tensor& x) const;
};

// x·Wᵀ + b + (x·F₁ᵀ)·F₂ᵀ: the matrix and the low-rank part may be shared with other layers, the
// bias and the adapter are the layer's own. F₁ = [lowrank_first; adapter_first], F₂ =
// [lowrank_second | adapter_second]; no scaling.
struct GeneralizedLinear {
  at::Tensor weight;          // [out, in]
  at::Tensor bias;            // [out]
  at::Tensor lowrank_first;   // [k, in]
  at::Tensor lowrank_second;  // [out, k]
  at::Tensor adapter_first;   // [r, in]
  at::Tensor adapter_second;  // [out, r]

  at::Tensor operator()(const at::Tensor& x) const;
};

// What the blocks of one forward pass have in common.
struct ForwardContext {
  at::Tensor additive_mask;              // [B, 1, 1, T]: 0 or −10000
  const RotaryTables* rotary = nullptr;  // null with absolute positions
  KeepMaskSource dropout;                // empty in evaluation
  std::function<void(const std::string& name, const at::Tensor& value)> observer;
};

// Which of the network's blocks is being computed.
struct BlockPlace {
  uint32_t number = 0;  // application · J + inner; addresses dropout
  int64_t application = 0;
  int64_t inner = 0;
};

// (1 − m) · (−10000) in `dtype`, [B, 1, 1, T], for an integer or bool mask [B, T]. Finite, so that
// a row without any key attends by its raw scores instead of giving NaN.
at::Tensor AdditiveMask(const at::Tensor& mask, at::ScalarType dtype);

struct AttentionBlock {
  Norm norm;
  Norm sandwich;
  GeneralizedLinear qkv;  // [3H, H]: thirds Q, K, V
  GeneralizedLinear out;  // [H, H]
  int64_t heads = 1;
  double probs_dropout = 0;
  double hidden_dropout = 0;

  // Residual stream [B, T, H] → residual stream.
  at::Tensor operator()(const at::Tensor& x, const ForwardContext& context,
                        const BlockPlace& place) const;
};

struct FfnBlock {
  Norm norm;
  Norm sandwich;
  GeneralizedLinear first;   // [2I or I, H]
  GeneralizedLinear second;  // [H, I]
  Activation activation = Activation::kGeluTanh;
  bool gated = false;  // act(first half) · second half
  double hidden_dropout = 0;

  at::Tensor operator()(const at::Tensor& x, const ForwardContext& context,
                        const BlockPlace& place) const;
};

struct EmbeddingBlock {
  at::Tensor words;      // [V, E]
  at::Tensor types;      // [types, E]
  at::Tensor positions;  // [max, E]; undefined with rotary positions
  Norm norm;
  at::Tensor mapping_weight;  // [H, E]; undefined when E == H
  at::Tensor mapping_bias;
  int64_t padding_id = 0;  // this row gets no gradient through the lookup
  double hidden_dropout = 0;

  // ids, types [B, T] → [B, T, H].
  at::Tensor operator()(const at::Tensor& ids, const at::Tensor& type_ids,
                        const ForwardContext& context) const;
};

// Masked-token head: dense → activation → norm → decoder.
struct MlmHead {
  at::Tensor dense_weight;  // [E, H]
  at::Tensor dense_bias;
  Norm norm;                  // eps 1e-5, torch's default, whatever the model's layer_norm_eps
  at::Tensor decoder_weight;  // [V, E]
  at::Tensor decoder_bias;
  Activation activation = Activation::kGeluTanh;

  // [P, H] → [P, V].
  at::Tensor operator()(const at::Tensor& hidden) const;
};

}  // namespace starling::model
