#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "starling/base/log.h"
#include "starling/model/lean_albert_layout.h"

namespace starling::model {
namespace {

using Kind = InitRule::Kind;

// Appends entries in state-dict order and knows which storage each alias points to.
class LayoutBuilder {
 public:
  explicit LayoutBuilder(const LeanAlbertConfig& config) : config_(config) {}

  ParameterLayout Build() {
    Embeddings();
    for (int64_t group = 0; group < config_.groups(); ++group) {
      for (int64_t inner = 0; inner < config_.num_inner_groups; ++inner) Layer(group, inner);
    }
    Norm("albert.transformer.post_layer_norm", config_.hidden_size);
    if (config_.sop_head) {
      Add("albert.pooler.weight", {config_.hidden_size, config_.hidden_size}, Normal());
      Add("albert.pooler.bias", {config_.hidden_size}, {});
    }
    Heads();
    return std::move(layout_);
  }

 private:
  InitRule Normal() const { return {Kind::kNormal, config_.initializer_std()}; }
  static InitRule Normal(double std) { return {Kind::kNormal, std}; }
  // What torch's Linear draws for weight and bias: U(±1/√fan_in).
  static InitRule TorchLinear(int64_t fan_in) {
    return {Kind::kUniform, 1.0 / std::sqrt(static_cast<double>(fan_in))};
  }

  void Add(std::string name, std::vector<int64_t> shape, InitRule init) {
    LayoutEntry entry{std::move(name), std::move(shape)};
    entry.parameter = static_cast<int64_t>(layout_.parameters.size());
    entry.init = init;
    layout_.parameters.push_back(layout_.entries.size());
    layout_.entries.push_back(std::move(entry));
  }

  // Adds `name`, which shares storage with every entry added under the same `key`.
  void AddShared(const std::string& key, std::string name, std::vector<int64_t> shape,
                 InitRule init) {
    const auto [it, is_first] = first_of_.emplace(key, layout_.entries.size());
    if (is_first) return Add(std::move(name), std::move(shape), init);
    LayoutEntry alias = layout_.entries[it->second];
    alias.alias_of = std::exchange(alias.name, std::move(name));
    layout_.entries.push_back(std::move(alias));
  }

  void Norm(const std::string& name, int64_t size) {
    Add(name + ".weight", {size}, {Kind::kOnes});
    Add(name + ".bias", {size}, {});
  }

  void Embeddings() {
    const std::string prefix = "albert.embeddings.";
    const int64_t size = config_.embedding_size;
    if (!config_.rotary()) {
      LayoutEntry buffer{prefix + "position_ids", {1, config_.max_position_embeddings}};
      buffer.is_buffer = true;
      layout_.entries.push_back(std::move(buffer));
    }
    InitRule words = Normal();
    words.zero_row = config_.pad_token_id;
    AddShared("words", prefix + "word_embeddings.weight", {config_.vocab_size, size}, words);
    Add(prefix + "token_type_embeddings.weight", {config_.type_vocab_size, size}, Normal());
    if (!config_.rotary()) {
      Add(prefix + "position_embeddings.weight", {config_.max_position_embeddings, size}, Normal());
    }
    Norm(prefix + "layer_norm", size);
    if (config_.has_embedding_mapping()) {
      Add(prefix + "embedding_hidden_mapping.weight", {config_.hidden_size, size}, Normal());
      Add(prefix + "embedding_hidden_mapping.bias", {config_.hidden_size}, {});
    }
  }

  // A linear with a private bias and adapter over a matrix (and low-rank part) of set `set`.
  void Linear(const std::string& name, const std::string& kind, int64_t set, int64_t out,
              int64_t in, bool bias) {
    if (bias) Add(name + ".bias", {out}, {});
    if (const int64_t rank = config_.adapter_dim; rank > 0) {
      // Xavier: variance 2 / (in + rank). A zero second factor makes the adapter start as nothing.
      const InitRule first = Normal(std::sqrt(2.0 / static_cast<double>(in + rank)));
      Add(name + ".adapter_first", {rank, in}, first);
      Add(name + ".adapter_second", {out, rank}, {});
    }
    const std::string key = absl::StrCat(kind, ".", set);
    const std::string matrix = name + ".shared_matrix";
    AddShared(key, matrix + ".weight", {out, in}, Normal());
    if (const int64_t rank = config_.lowrank_dim; rank > 0) {
      const InitRule low = Normal(std::sqrt(2.0 / (5.0 * static_cast<double>(std::min(out, in)))));
      AddShared(key + ".first", matrix + ".lowrank_first", {rank, in}, low);
      AddShared(key + ".second", matrix + ".lowrank_second", {out, rank}, low);
    }
  }

  void BlockNorms(const std::string& block) {
    Norm(block + "layer_norm", config_.hidden_size);
    if (config_.sandwich_norm) Norm(block + "sandwich_norm", config_.hidden_size);
  }

  void Layer(int64_t group, int64_t inner) {
    const int64_t index = group * config_.num_inner_groups + inner;
    const int64_t set = MatrixSet(index, config_.distinct_layers(), config_.share_large_matrices,
                                  config_.num_inner_matrices);
    const std::string prefix =
        absl::StrCat("albert.transformer.layer_groups.", group, ".layers.", inner, ".");
    const int64_t hidden = config_.hidden_size;
    const bool out_bias = config_.has_out_proj_bias();
    const std::string attention = prefix + "attention.", ffn = prefix + "ffn.";
    Linear(attention + "dense_qkv", "qkv", set, 3 * hidden, hidden, config_.attn_qkv_bias);
    Linear(attention + "dense_out", "out", set, hidden, hidden, out_bias);
    BlockNorms(attention);
    Linear(ffn + "dense_i2h", "i2h", set, config_.ffn_first_rows(), hidden, true);
    Linear(ffn + "dense_h2o", "h2o", set, hidden, config_.intermediate_size, out_bias);
    BlockNorms(ffn);
  }

  void Heads() {
    const int64_t hidden = config_.hidden_size, size = config_.embedding_size;
    AddShared("prediction bias", "predictions.bias", {config_.vocab_size}, {});
    Norm("predictions.layer_norm", size);
    Add("predictions.dense.weight", {size, hidden}, TorchLinear(hidden));
    Add("predictions.dense.bias", {size}, TorchLinear(hidden));
    AddShared(config_.tie_word_embeddings ? "words" : "decoder", "predictions.decoder.weight",
              {config_.vocab_size, size}, TorchLinear(size));
    AddShared("prediction bias", "predictions.decoder.bias", {config_.vocab_size}, {});
    if (config_.sop_head) {
      const std::string name = "sop_classifier.classifier";
      Add(name + ".weight", {config_.num_labels, hidden}, TorchLinear(hidden));
      Add(name + ".bias", {config_.num_labels}, TorchLinear(hidden));
    }
  }

  const LeanAlbertConfig& config_;
  ParameterLayout layout_;
  std::map<std::string, size_t> first_of_;  // storage key → first entry
};

}  // namespace

int64_t LayoutEntry::element_count() const {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

int64_t ParameterLayout::total_values() const {
  int64_t total = 0;
  for (const LayoutEntry& entry : entries) total += entry.element_count();
  return total;
}

int64_t ParameterLayout::distinct_values() const {
  int64_t total = 0;
  for (size_t i : parameters) total += entries[i].element_count();
  return total;
}

ParameterLayout MakeParameterLayout(const LeanAlbertConfig& config) {
  STARLING_CHECK(config.Validate().empty()) << config.Validate().front();
  return LayoutBuilder(config).Build();
}

bool HasWeightDecay(std::string_view name) {
  return !name.ends_with("bias") && !name.ends_with("norm.weight");
}

}  // namespace starling::model
