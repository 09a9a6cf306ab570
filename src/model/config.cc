#include <array>
#include <cmath>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "starling/model/lean_albert_config.h"

namespace starling::model {
namespace {

constexpr std::array<std::string_view, 6> kActivations = {"gelu_fused", "gelu_new", "gelu",
                                                          "relu",       "silu",     "tanh"};
// Far above any real model; keeps every product of three sizes inside 64 bits.
constexpr int64_t kMaxSize = 1 << 20;
constexpr int64_t kMaxVocabulary = 1 << 30;

using Problems = std::vector<std::string>;

void CheckRange(const char* field, int64_t value, int64_t low, int64_t high, Problems* problems) {
  if (value >= low && value <= high) return;
  problems->push_back(
      absl::StrCat(field, " is ", value, ", but must lie between ", low, " and ", high));
}

void CheckProbability(const char* field, double value, Problems* problems) {
  if (value >= 0 && value < 1) return;
  problems->push_back(absl::StrCat(field, " is ", value, ", but must be at least 0 and below 1"));
}

void CheckPositive(const char* field, double value, Problems* problems) {
  if (value > 0 && std::isfinite(value)) return;
  problems->push_back(absl::StrCat(field, " is ", value, ", but must be a positive number"));
}

void CheckSizes(const LeanAlbertConfig& c, Problems* problems) {
  CheckRange("hidden_size", c.hidden_size, 1, kMaxSize, problems);
  CheckRange("num_hidden_layers", c.num_hidden_layers, 1, 10000, problems);
  CheckRange("num_hidden_groups", c.num_hidden_groups, 0, 10000, problems);
  CheckRange("num_inner_groups", c.num_inner_groups, 1, 100, problems);
  CheckRange("share_large_matrices", c.share_large_matrices, 0, kMaxSize, problems);
  CheckRange("num_inner_matrices", c.num_inner_matrices, 1, kMaxSize, problems);
  CheckRange("adapter_dim", c.adapter_dim, 0, kMaxSize, problems);
  CheckRange("lowrank_dim", c.lowrank_dim, 0, kMaxSize, problems);
  CheckRange("num_attention_heads", c.num_attention_heads, 1, kMaxSize, problems);
  CheckRange("intermediate_size", c.intermediate_size, 1, kMaxSize, problems);
  CheckRange("max_position_embeddings", c.max_position_embeddings, 1, kMaxSize, problems);
  CheckRange("vocab_size", c.vocab_size, 1, kMaxVocabulary, problems);
  CheckRange("embedding_size", c.embedding_size, 1, kMaxSize, problems);
  CheckRange("type_vocab_size", c.type_vocab_size, 1, kMaxSize, problems);
  CheckRange("num_labels", c.num_labels, 1, kMaxSize, problems);
}

// Rules between fields; each of them alone is in range.
void CheckCombinations(const LeanAlbertConfig& c, Problems* problems) {
  if (c.num_hidden_groups > c.num_hidden_layers) {
    problems->push_back(absl::StrCat("num_hidden_groups is ", c.num_hidden_groups,
                                     ", more than num_hidden_layers (", c.num_hidden_layers,
                                     "): some groups would never be used"));
  }
  if (c.hidden_size % c.num_attention_heads != 0) {
    problems->push_back(absl::StrCat("hidden_size ", c.hidden_size,
                                     " is not a multiple of num_attention_heads ",
                                     c.num_attention_heads));
  } else if (c.rotary() && c.head_dim() % 2 != 0) {
    problems->push_back(absl::StrCat("hidden_size / num_attention_heads is ", c.head_dim(),
                                     ", but rotary positions need an even head size"));
  }
  if (c.share_large_matrices == 0 && c.num_inner_matrices > 1) {
    problems->push_back(absl::StrCat("num_inner_matrices is ", c.num_inner_matrices,
                                     ", which needs share_large_matrices of at least 1"));
  }
  if (c.share_large_matrices == 0 && c.adapter_dim > 0) {
    problems->push_back(absl::StrCat("adapter_dim is ", c.adapter_dim,
                                     ", which needs share_large_matrices of at least 1"));
  }
  const int64_t sets = c.share_large_matrices * c.num_inner_matrices;
  if (sets > c.distinct_layers()) {
    problems->push_back(absl::StrCat("share_large_matrices x num_inner_matrices is ", sets,
                                     " matrix sets, but there are only ", c.distinct_layers(),
                                     " distinct layers (num_hidden_groups x num_inner_groups)"));
  }
}

void CheckTokens(const LeanAlbertConfig& c, Problems* problems) {
  CheckRange("pad_token_id", c.pad_token_id, 0, c.vocab_size - 1, problems);
  CheckRange("bos_token_id", c.bos_token_id, 0, c.vocab_size - 1, problems);
  CheckRange("eos_token_id", c.eos_token_id, 0, c.vocab_size - 1, problems);
}

}  // namespace

bool IsActivation(const std::string& name) {
  for (std::string_view known : kActivations) {
    if (name == known) return true;
  }
  return false;
}

double LeanAlbertConfig::initializer_std() const {
  return initializer_range.value_or(std::sqrt(2.0 / (5.0 * static_cast<double>(hidden_size))));
}

std::vector<std::string> LeanAlbertConfig::Validate() const {
  Problems problems;
  CheckSizes(*this, &problems);
  if (problems.empty()) {
    CheckCombinations(*this, &problems);
    CheckTokens(*this, &problems);
  }
  if (block_size != 0) {
    problems.push_back(absl::StrCat("block_size is ", block_size,
                                    ", but block-sparse matrices are not supported: set it to 0"));
  }
  if (!IsActivation(hidden_act)) {
    problems.push_back(absl::StrCat("hidden_act is \"", hidden_act,
                                    "\", but must be one of gelu_fused, gelu_new, gelu, relu, "
                                    "silu, tanh"));
  }
  if (!rotary() && position_embedding_type != "absolute") {
    problems.push_back(absl::StrCat("position_embedding_type is \"", position_embedding_type,
                                    "\", but must be \"rotary\" or \"absolute\""));
  }
  CheckProbability("hidden_dropout_prob", hidden_dropout_prob, &problems);
  CheckProbability("attention_probs_dropout_prob", attention_probs_dropout_prob, &problems);
  CheckProbability("classifier_dropout_prob", classifier_dropout_prob, &problems);
  CheckPositive("layer_norm_eps", layer_norm_eps, &problems);
  CheckPositive("rotary_embedding_base", rotary_embedding_base, &problems);
  if (initializer_range) CheckPositive("initializer_range", *initializer_range, &problems);
  return problems;
}

int64_t GroupOfLayer(int64_t layer, int64_t num_layers, int64_t num_groups) {
  // volatile: the quotient must be rounded to double before it is divided by.
  const volatile double layers_per_group =
      static_cast<double>(num_layers) / static_cast<double>(num_groups);
  return static_cast<int64_t>(static_cast<double>(layer) / layers_per_group);
}

int64_t MatrixSet(int64_t index, int64_t total, int64_t num_shared, int64_t num_inner) {
  const int64_t sets = num_shared > 0 ? num_shared : total;
  return (index * sets / total) * num_inner + index % num_inner;
}

}  // namespace starling::model
