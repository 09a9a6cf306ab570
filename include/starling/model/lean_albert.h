// LeanALBERT for pretraining: embeddings, shared transformer, masked-token head and sentence-order
// head, over parameters that the caller owns. Autograd adds each use of a shared matrix into one
// gradient. Const and without hidden state: forwards may run in several threads, but backward adds
// into the parameters' gradients and therefore belongs to one thread at a time.
//
// All random numbers (dropout) are functions of ForwardOptions::dropout_seed, never of torch's
// global generator, so any worker computes the same masks for the same micro-batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "starling/model/lean_albert_config.h"
#include "starling/model/lean_albert_layout.h"

namespace starling::model {

// Fresh leaf tensors (zeros, requires_grad) for the distinct parameters, in parameters() order,
// each with its own storage; gradients undefined until the first backward.
std::vector<at::Tensor> AllocateParameters(const ParameterLayout& layout);

// Writes version 0 of the weights into `parameters` (parameters() order, contiguous fp32 on the
// CPU) and calls `progressed`, which may be empty, after each. The same bits on every worker,
// whatever the number of threads.
void InitializeParameters(const LeanAlbertConfig& config, uint64_t seed,
                          std::span<const at::Tensor> parameters,
                          const std::function<void()>& progressed = {});

// A batch of token sequences. B rows of T tokens, all int64 (the mask may be bool).
struct ModelInputs {
  at::Tensor input_ids;       // [B, T]
  at::Tensor token_type_ids;  // [B, T]; undefined = zeros
  at::Tensor attention_mask;  // [B, T], 1 = may be attended to; undefined = ones
};

struct ForwardOptions {
  bool training = false;      // dropout is live
  uint64_t dropout_seed = 0;  // of this micro-batch
  // Called with intermediate results as they appear, for tests and diagnosis: "embeddings" [B,T,H];
  // "layer.{i}.{j}.qkv" [B,T,3H], ".probs" [B,A,T,T], ".context" [B,T,H], ".attention" and ".ffn"
  // [B,T,H] (the residual stream after that block) for application i, inner layer j.
  std::function<void(const std::string& name, const at::Tensor& value)> observer;
};

struct ModelOutput {
  at::Tensor hidden;  // [B, T, H], after the final norm
  at::Tensor pooled;  // [B, H], tanh; undefined without the sentence-order head
};

struct PretrainingLabels {
  at::Tensor labels;          // [B, T]; the original id where masked, else −100
  at::Tensor sentence_order;  // [B]; −100 = none; undefined = no such term
};

// Losses of one micro-batch. `total` = mlm + sop, unweighted; a term without labels is 0 and has no
// gradient.
struct PretrainingLosses {
  at::Tensor total;  // scalar
  at::Tensor mlm;    // scalar: mean cross-entropy over the masked tokens of this micro-batch
  at::Tensor sop;    // scalar: mean cross-entropy over the rows with a sentence-order label
  int64_t masked_tokens = 0;
  int64_t sop_rows = 0;

  // Adds d(scale · total)/dp into every parameter's gradient; does nothing when neither term has
  // labels. Call it once.
  void Backward(double scale = 1.0) const;
};

class LeanAlbert {
 public:
  // `parameters`: leaf tensors in the order of MakeParameterLayout(config).parameters, with those
  // shapes, all of one floating dtype and device. The model keeps references to their storage, so
  // updating them in place (with gradients off) updates the model.
  // REQUIRES: config.Validate().empty() and matching shapes.
  LeanAlbert(const LeanAlbertConfig& config, std::vector<at::Tensor> parameters);
  ~LeanAlbert();
  LeanAlbert(LeanAlbert&&) noexcept;
  LeanAlbert& operator=(LeanAlbert&&) noexcept;

  const LeanAlbertConfig& config() const;
  const ParameterLayout& layout() const;
  // The distinct parameters, in optimizer order.
  const std::vector<at::Tensor>& parameters() const;

  // One entry of the state dict, in the reference's order.
  struct StateDictEntry {
    std::string name;
    at::Tensor tensor;     // aliases share storage with the entry they alias
    std::string alias_of;  // empty = first of its storage
  };
  std::vector<StateDictEntry> StateDictEntries() const;

  // REQUIRES: 0 ≤ ids < vocab_size, types < type_vocab_size, an integer or bool mask, and T ≤
  // max_position_embeddings with absolute positions. A row whose mask is all 0 attends by its raw
  // scores (the mask adds −10000 to scores, it does not remove keys).
  ModelOutput Forward(const ModelInputs& inputs, const ForwardOptions& options = {}) const;

  // Logits [P, V] over the vocabulary for `positions` [P] int64, indices into the B·T flattened
  // positions of `hidden` [B, T, H]. Undefined positions: all of them, [B·T, V].
  at::Tensor MlmLogits(const at::Tensor& hidden, const at::Tensor& positions) const;

  // Logits [B, num_labels] of the sentence-order head. REQUIRES: config().sop_head.
  at::Tensor SopLogits(const at::Tensor& pooled, const ForwardOptions& options = {}) const;

  // Forward, then both losses; logits are computed for masked positions only.
  PretrainingLosses PretrainingLoss(const ModelInputs& inputs, const PretrainingLabels& labels,
                                    const ForwardOptions& options = {}) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

}  // namespace starling::model
