// Shape and options of a LeanALBERT model, and the arithmetic that decides which layers share what.
// Torch-free, so that the config layer and `starling validate` can use it. Plain values;
// thread-safe.
//
// Symbols in comments: H hidden_size, E embedding_size, V vocab_size, I intermediate_size, A heads,
// L layer applications, G groups, J inner layers of a group.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace starling::model {

// Field names and defaults are the reference's (RuLeanALBERT src/models/transformer.py, albert.py).
struct LeanAlbertConfig {
  int64_t hidden_size = 4096;
  int64_t num_hidden_layers = 32;    // layer applications, before sharing
  int64_t num_hidden_groups = 0;     // groups with their own biases and norms; 0 = one per layer
  int64_t num_inner_groups = 1;      // (attention, FFN) pairs in a group
  int64_t share_large_matrices = 0;  // number of shared matrix sets; 0 = none is shared
  int64_t num_inner_matrices = 1;    // sets that alternate inside a shared one; >1 needs sharing
  int64_t adapter_dim = 0;           // rank of the private adapters; needs sharing
  int64_t lowrank_dim = 0;           // rank of the shared low-rank part
  int64_t num_attention_heads = 64;
  int64_t intermediate_size = 16384;
  int64_t block_size = 0;  // block-sparse matrices; only 0 is supported

  // gelu_fused (tanh form), gelu_new (the same), gelu (erf), relu, silu or tanh. The MLM head uses
  // it too, never gated.
  std::string hidden_act = "gelu_fused";
  bool hidden_act_gated = false;
  bool attn_qkv_bias = true;
  std::optional<bool> out_proj_bias;  // attention-out and FFN-second; unset = !sandwich_norm
  bool sandwich_norm = false;         // LayerNorm on each block's output, before the residual
  double layer_norm_eps = 1e-12;      // every norm but the MLM head's, which uses 1e-5

  // Probabilities in [0, 1).
  double hidden_dropout_prob = 0;
  double attention_probs_dropout_prob = 0;
  double classifier_dropout_prob = 0.1;  // on the pooled output, live in pretraining

  std::string position_embedding_type = "rotary";  // or "absolute"
  int64_t max_position_embeddings = 512;           // longest sequence; "absolute" only
  double rotary_embedding_base = 10000;

  std::optional<double> initializer_range;  // standard deviation; unset = sqrt(2 / (5 H))

  int64_t vocab_size = 30000;
  int64_t embedding_size = 128;
  int64_t type_vocab_size = 2;
  int64_t pad_token_id = 0;
  int64_t bos_token_id = 2;
  int64_t eos_token_id = 3;

  bool tie_word_embeddings = true;  // false: predictions.decoder.weight is a tensor of its own
  bool sop_head = true;             // false: neither the pooler nor the sentence-order head exists
  int64_t num_labels = 2;           // classes of the sentence-order head

  // Every problem as a sentence that names the field, its value and what is allowed; empty = valid.
  // The functions below and everything built from a config REQUIRE a valid one.
  std::vector<std::string> Validate() const;

  bool rotary() const { return position_embedding_type == "rotary"; }
  bool has_out_proj_bias() const { return out_proj_bias.value_or(!sandwich_norm); }
  bool has_embedding_mapping() const { return embedding_size != hidden_size; }
  int64_t head_dim() const { return hidden_size / num_attention_heads; }
  int64_t groups() const { return num_hidden_groups > 0 ? num_hidden_groups : num_hidden_layers; }
  int64_t distinct_layers() const { return groups() * num_inner_groups; }
  // Rows of the first FFN matrix: 2 I when gated (activated half first), else I.
  int64_t ffn_first_rows() const {
    return hidden_act_gated ? 2 * intermediate_size : intermediate_size;
  }
  double initializer_std() const;
};

// Whether `name` is an activation that the model has.
bool IsActivation(const std::string& name);

// Group of layer application `layer` in [0, num_layers): trunc(layer / (L / G)) in double, L / G
// rounded first, as the reference computes it. It differs from integer arithmetic for some pairs:
// L = 18, G = 14 puts application 9 into group 6, not 7.
int64_t GroupOfLayer(int64_t layer, int64_t num_layers, int64_t num_groups);

// Set of large matrices that distinct layer `index` = group · J + inner uses:
// (index · n_sets div total) · num_inner + index mod num_inner, with n_sets = `num_shared`, or
// `total` when that is 0.
int64_t MatrixSet(int64_t index, int64_t total, int64_t num_shared, int64_t num_inner);

}  // namespace starling::model
