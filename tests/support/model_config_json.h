// Reads the model configurations that lie beside the parity vectors.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "starling/model/lean_albert_config.h"
#include "support/parity.h"  // where they lie

namespace starling::testing {

// Fields that `json` lacks keep their defaults; keys that the model does not know are ignored, as
// in the reference.
inline model::LeanAlbertConfig ConfigFromJson(const nlohmann::json& json) {
  model::LeanAlbertConfig config;
  const auto read = [&json](const char* key, auto* field) {
    if (json.contains(key) && !json[key].is_null()) json[key].get_to(*field);
  };
  read("hidden_size", &config.hidden_size);
  read("num_hidden_layers", &config.num_hidden_layers);
  read("num_hidden_groups", &config.num_hidden_groups);
  read("num_inner_groups", &config.num_inner_groups);
  read("share_large_matrices", &config.share_large_matrices);
  read("num_inner_matrices", &config.num_inner_matrices);
  read("adapter_dim", &config.adapter_dim);
  read("lowrank_dim", &config.lowrank_dim);
  read("num_attention_heads", &config.num_attention_heads);
  read("intermediate_size", &config.intermediate_size);
  read("block_size", &config.block_size);
  read("hidden_act", &config.hidden_act);
  read("hidden_act_gated", &config.hidden_act_gated);
  read("attn_qkv_bias", &config.attn_qkv_bias);
  if (json.contains("out_proj_bias")) config.out_proj_bias = json["out_proj_bias"].get<bool>();
  read("sandwich_norm", &config.sandwich_norm);
  read("layer_norm_eps", &config.layer_norm_eps);
  read("hidden_dropout_prob", &config.hidden_dropout_prob);
  read("attention_probs_dropout_prob", &config.attention_probs_dropout_prob);
  read("classifier_dropout_prob", &config.classifier_dropout_prob);
  read("position_embedding_type", &config.position_embedding_type);
  read("max_position_embeddings", &config.max_position_embeddings);
  read("rotary_embedding_base", &config.rotary_embedding_base);
  if (json.contains("initializer_range")) {
    config.initializer_range = json["initializer_range"].get<double>();
  }
  read("vocab_size", &config.vocab_size);
  read("embedding_size", &config.embedding_size);
  read("type_vocab_size", &config.type_vocab_size);
  read("pad_token_id", &config.pad_token_id);
  read("bos_token_id", &config.bos_token_id);
  read("eos_token_id", &config.eos_token_id);
  read("num_labels", &config.num_labels);
  read("tie_word_embeddings", &config.tie_word_embeddings);
  return config;
}

}  // namespace starling::testing
