// Model configurations out of the reference vectors' JSON files.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "starling/model/lean_albert_config.h"
#include "support/parity.h"

namespace starling::testing {

inline nlohmann::json ReadTrajectoryConfig() {
  const std::string text = ReadWhole(ParityPath("p25_trajectory/config.json"));
  REQUIRE_FALSE(text.empty());
  return nlohmann::json::parse(text);
}

inline model::LeanAlbertConfig ModelOf(const nlohmann::json& json) {
  model::LeanAlbertConfig config;
  const auto set = [&](const char* key, auto* value) { json.at(key).get_to(*value); };
  set("hidden_size", &config.hidden_size);
  set("num_hidden_layers", &config.num_hidden_layers);
  set("num_hidden_groups", &config.num_hidden_groups);
  set("num_inner_groups", &config.num_inner_groups);
  set("share_large_matrices", &config.share_large_matrices);
  set("num_inner_matrices", &config.num_inner_matrices);
  set("adapter_dim", &config.adapter_dim);
  set("lowrank_dim", &config.lowrank_dim);
  set("num_attention_heads", &config.num_attention_heads);
  set("intermediate_size", &config.intermediate_size);
  set("hidden_act", &config.hidden_act);
  set("hidden_act_gated", &config.hidden_act_gated);
  set("attn_qkv_bias", &config.attn_qkv_bias);
  config.out_proj_bias = json.at("out_proj_bias").get<bool>();
  set("sandwich_norm", &config.sandwich_norm);
  set("layer_norm_eps", &config.layer_norm_eps);
  set("hidden_dropout_prob", &config.hidden_dropout_prob);
  set("attention_probs_dropout_prob", &config.attention_probs_dropout_prob);
  set("classifier_dropout_prob", &config.classifier_dropout_prob);
  set("position_embedding_type", &config.position_embedding_type);
  set("max_position_embeddings", &config.max_position_embeddings);
  set("rotary_embedding_base", &config.rotary_embedding_base);
  config.initializer_range = json.at("initializer_range").get<double>();
  set("vocab_size", &config.vocab_size);
  set("embedding_size", &config.embedding_size);
  set("type_vocab_size", &config.type_vocab_size);
  set("pad_token_id", &config.pad_token_id);
  set("num_labels", &config.num_labels);
  return config;
}

}  // namespace starling::testing
