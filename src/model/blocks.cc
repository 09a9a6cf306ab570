#include "model/blocks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "starling/base/log.h"

namespace starling::model {
namespace {

void Observe(const ForwardContext& context, const BlockPlace& place, const char* what,
             const at::Tensor& value) {
  if (!context.observer) return;
  context.observer(absl::StrCat("layer.", place.application, ".", place.inner, ".", what), value);
}

// [B, T, H] → [B, A, T, d].
at::Tensor SplitHeads(const at::Tensor& x, int64_t heads) {
  return x.unflatten(-1, {heads, -1}).permute({0, 2, 1, 3});
}

// Joins the two factors of the low-rank path, or returns the one that exists.
at::Tensor Joined(const at::Tensor& lowrank, const at::Tensor& adapter, int64_t dim) {
  if (!lowrank.defined()) return adapter;
  if (!adapter.defined()) return lowrank;
  return at::cat({lowrank, adapter}, dim);
}

// The tail that both blocks share: sandwich norm, dropout, residual.
at::Tensor FinishBlock(const at::Tensor& x, at::Tensor output, const Norm& sandwich, double p,
                       const ForwardContext& context, DropoutAddress address) {
  if (sandwich.exists()) output = sandwich(output);
  return x + ApplyDropout(output, p, context.dropout, address);
}

}  // namespace

at::Tensor Norm::operator()(const at::Tensor& x) const {
  return at::layer_norm(x, weight.sizes(), weight, bias, eps);
}

at::Tensor GeneralizedLinear::operator()(const at::Tensor& x) const {
  const at::Tensor out = at::linear(x, weight, bias);
  const at::Tensor first = Joined(lowrank_first, adapter_first, 0);
  if (!first.defined()) return out;
  return out + at::linear(at::linear(x, first), Joined(lowrank_second, adapter_second, 1));
}

at::Tensor AdditiveMask(const at::Tensor& mask, at::ScalarType dtype) {
  STARLING_CHECK(!mask.is_floating_point()) << "the attention mask must hold integers or booleans";
  return ((1 - mask.to(dtype)) * -10000.0).unsqueeze(1).unsqueeze(1);
}

at::Tensor AttentionBlock::operator()(const at::Tensor& x, const ForwardContext& context,
                                      const BlockPlace& place) const {
  const at::Tensor projected = qkv(norm(x));
  Observe(context, place, "qkv", projected);
  const std::vector<at::Tensor> thirds = projected.chunk(3, -1);
  at::Tensor q = thirds[0].unflatten(-1, {heads, -1}), k = thirds[1].unflatten(-1, {heads, -1});
  if (context.rotary != nullptr) {
    q = ApplyRotary(q, *context.rotary);
    k = ApplyRotary(k, *context.rotary);
  }
  q = q.permute({0, 2, 1, 3});                                                 // [B, A, T, d]
  k = (k / std::sqrt(static_cast<double>(k.size(-1)))).permute({0, 2, 3, 1});  // [B, A, d, T]
  const at::Tensor probs = at::softmax(at::matmul(q, k) + context.additive_mask, -1);
  Observe(context, place, "probs", probs);
  const at::Tensor kept = ApplyDropout(probs, probs_dropout, context.dropout,
                                       {DropoutSite::kAttentionProbs, place.number});
  const at::Tensor merged =
      at::matmul(kept, SplitHeads(thirds[2], heads)).permute({0, 2, 1, 3}).flatten(2);
  Observe(context, place, "context", merged);
  const at::Tensor result = FinishBlock(x, out(merged), sandwich, hidden_dropout, context,
                                        {DropoutSite::kAttentionOut, place.number});
  Observe(context, place, "attention", result);
  return result;
}

at::Tensor FfnBlock::operator()(const at::Tensor& x, const ForwardContext& context,
                                const BlockPlace& place) const {
  at::Tensor inner = first(norm(x));
  if (gated) {
    const std::vector<at::Tensor> halves = inner.chunk(2, -1);
    inner = Activate(activation, halves[0]) * halves[1];
  } else {
    inner = Activate(activation, inner);
  }
  const at::Tensor result = FinishBlock(x, second(inner), sandwich, hidden_dropout, context,
                                        {DropoutSite::kFfnOut, place.number});
  Observe(context, place, "ffn", result);
  return result;
}

at::Tensor EmbeddingBlock::operator()(const at::Tensor& ids, const at::Tensor& type_ids,
                                      const ForwardContext& context) const {
  at::Tensor sum = at::embedding(words, ids, padding_id) + at::embedding(types, type_ids);
  if (positions.defined()) sum = sum + positions.narrow(0, 0, ids.size(1));
  at::Tensor result =
      ApplyDropout(norm(sum), hidden_dropout, context.dropout, {DropoutSite::kEmbeddings, 0});
  if (mapping_weight.defined()) result = at::linear(result, mapping_weight, mapping_bias);
  if (context.observer) context.observer("embeddings", result);
  return result;
}

at::Tensor MlmHead::operator()(const at::Tensor& hidden) const {
  const at::Tensor inner = norm(Activate(activation, at::linear(hidden, dense_weight, dense_bias)));
  return at::linear(inner, decoder_weight, decoder_bias);
}

}  // namespace starling::model
