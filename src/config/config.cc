#include "starling/config/config.h"

namespace starling::config {

model::LeanAlbertConfig DefaultModel() {
  model::LeanAlbertConfig model;
  model.hidden_size = 256;
  model.num_hidden_layers = 6;
  model.share_large_matrices = 1;
  model.num_attention_heads = 4;
  model.intermediate_size = 1024;
  model.hidden_act_gated = true;
  model.embedding_size = 128;
  return model;
}

}  // namespace starling::config
