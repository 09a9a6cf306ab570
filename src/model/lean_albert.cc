#include "starling/model/lean_albert.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/blocks.h"
#include "starling/base/log.h"

namespace starling::model {
namespace {

constexpr int64_t kNoLabel = -100;
constexpr double kMlmHeadNormEps = 1e-5;

// Finds tensors by state-dict name while the blocks are put together.
class Binder {
 public:
  Binder(const LeanAlbertConfig& config, const ParameterLayout& layout,
         const std::vector<at::Tensor>& parameters)
      : config_(config) {
    for (const LayoutEntry& entry : layout.entries) {
      if (!entry.is_buffer) by_name_[entry.name] = parameters[static_cast<size_t>(entry.parameter)];
    }
  }

  // Undefined when the config has no such parameter.
  at::Tensor Get(const std::string& name) const {
    const auto it = by_name_.find(name);
    return it == by_name_.end() ? at::Tensor() : it->second;
  }

  Norm GetNorm(const std::string& name) const {
    return {Get(name + ".weight"), Get(name + ".bias"), config_.layer_norm_eps};
  }

  GeneralizedLinear GetLinear(const std::string& name) const {
    const std::string matrix = name + ".shared_matrix";
    return {.weight = Get(matrix + ".weight"),
            .bias = Get(name + ".bias"),
            .lowrank_first = Get(matrix + ".lowrank_first"),
            .lowrank_second = Get(matrix + ".lowrank_second"),
            .adapter_first = Get(name + ".adapter_first"),
            .adapter_second = Get(name + ".adapter_second")};
  }

  AttentionBlock GetAttention(const std::string& name) const {
    return {.norm = GetNorm(name + ".layer_norm"),
            .sandwich = GetNorm(name + ".sandwich_norm"),
            .qkv = GetLinear(name + ".dense_qkv"),
            .out = GetLinear(name + ".dense_out"),
            .heads = config_.num_attention_heads,
            .probs_dropout = config_.attention_probs_dropout_prob,
            .hidden_dropout = config_.hidden_dropout_prob};
  }

  FfnBlock GetFfn(const std::string& name) const {
    return {.norm = GetNorm(name + ".layer_norm"),
            .sandwich = GetNorm(name + ".sandwich_norm"),
            .first = GetLinear(name + ".dense_i2h"),
            .second = GetLinear(name + ".dense_h2o"),
            .activation = ParseActivation(config_.hidden_act),
            .gated = config_.hidden_act_gated,
            .hidden_dropout = config_.hidden_dropout_prob};
  }

  EmbeddingBlock GetEmbeddings() const {
    const std::string prefix = "albert.embeddings.";
    return {.words = Get(prefix + "word_embeddings.weight"),
            .types = Get(prefix + "token_type_embeddings.weight"),
            .positions = Get(prefix + "position_embeddings.weight"),
            .norm = GetNorm(prefix + "layer_norm"),
            .mapping_weight = Get(prefix + "embedding_hidden_mapping.weight"),
            .mapping_bias = Get(prefix + "embedding_hidden_mapping.bias"),
            .padding_id = config_.pad_token_id,
            .hidden_dropout = config_.hidden_dropout_prob};
  }

  MlmHead GetMlmHead() const {
    MlmHead head{.dense_weight = Get("predictions.dense.weight"),
                 .dense_bias = Get("predictions.dense.bias"),
                 .norm = GetNorm("predictions.layer_norm"),
                 .decoder_weight = Get("predictions.decoder.weight"),
                 .decoder_bias = Get("predictions.decoder.bias"),
                 .activation = ParseActivation(config_.hidden_act)};
    head.norm.eps = kMlmHeadNormEps;
    return head;
  }

 private:
  const LeanAlbertConfig& config_;
  std::map<std::string, at::Tensor> by_name_;
};

void CheckParameters(const ParameterLayout& layout, const std::vector<at::Tensor>& parameters) {
  STARLING_CHECK(parameters.size() == layout.parameter_count())
      << parameters.size() << " tensors for " << layout.parameter_count() << " parameters";
  for (size_t i = 0; i < parameters.size(); ++i) {
    STARLING_CHECK(parameters[i].sizes() == at::IntArrayRef(layout.parameter(i).shape) &&
                   parameters[i].is_floating_point())
        << layout.parameter(i).name << " has another shape or an integer type";
  }
}

int64_t CountLabels(const at::Tensor& labels) {
  return labels.defined() ? labels.ne(kNoLabel).sum().item<int64_t>() : 0;
}

}  // namespace

struct LeanAlbert::Impl {
  Impl(const LeanAlbertConfig& model_config, std::vector<at::Tensor> tensors)
      : config(model_config), layout(MakeParameterLayout(config)), parameters(std::move(tensors)) {
    CheckParameters(layout, parameters);
    const Binder binder(config, layout, parameters);
    embeddings = binder.GetEmbeddings();
    for (int64_t group = 0; group < config.groups(); ++group) {
      for (int64_t inner = 0; inner < config.num_inner_groups; ++inner) {
        const std::string layer =
            absl::StrCat("albert.transformer.layer_groups.", group, ".layers.", inner);
        attention.push_back(binder.GetAttention(layer + ".attention"));
        ffn.push_back(binder.GetFfn(layer + ".ffn"));
      }
    }
    post_norm = binder.GetNorm("albert.transformer.post_layer_norm");
    pooler_weight = binder.Get("albert.pooler.weight");
    pooler_bias = binder.Get("albert.pooler.bias");
    mlm_head = binder.GetMlmHead();
    sop_weight = binder.Get("sop_classifier.classifier.weight");
    sop_bias = binder.Get("sop_classifier.classifier.bias");
  }

  // Runs every layer application over the residual stream.
  at::Tensor Transform(at::Tensor x, const ForwardContext& context) const {
    const int64_t inner_count = config.num_inner_groups;
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      const int64_t group = GroupOfLayer(layer, config.num_hidden_layers, config.groups());
      for (int64_t inner = 0; inner < inner_count; ++inner) {
        const auto distinct = static_cast<size_t>(group * inner_count + inner);
        const BlockPlace place{static_cast<uint32_t>(layer * inner_count + inner), layer, inner};
        x = attention[distinct](x, context, place);
        x = ffn[distinct](x, context, place);
      }
    }
    return post_norm(x);
  }

  LeanAlbertConfig config;
  ParameterLayout layout;
  std::vector<at::Tensor> parameters;
  EmbeddingBlock embeddings;
  std::vector<AttentionBlock> attention;  // one per distinct layer, group by group
  std::vector<FfnBlock> ffn;
  Norm post_norm;
  at::Tensor pooler_weight, pooler_bias;
  MlmHead mlm_head;
  at::Tensor sop_weight, sop_bias;
};

void PretrainingLosses::Backward(double scale) const {
  if (!total.requires_grad()) return;
  total.backward(at::full({}, scale, total.options().requires_grad(false)));
}

LeanAlbert::LeanAlbert(const LeanAlbertConfig& config, std::vector<at::Tensor> parameters)
    : impl_(std::make_unique<const Impl>(config, std::move(parameters))) {}
LeanAlbert::~LeanAlbert() = default;
LeanAlbert::LeanAlbert(LeanAlbert&&) noexcept = default;
LeanAlbert& LeanAlbert::operator=(LeanAlbert&&) noexcept = default;

const LeanAlbertConfig& LeanAlbert::config() const { return impl_->config; }
const ParameterLayout& LeanAlbert::layout() const { return impl_->layout; }
const std::vector<at::Tensor>& LeanAlbert::parameters() const { return impl_->parameters; }

std::vector<LeanAlbert::StateDictEntry> LeanAlbert::StateDictEntries() const {
  std::vector<StateDictEntry> result;
  for (const LayoutEntry& entry : impl_->layout.entries) {
    const at::Tensor tensor = entry.is_buffer
                                  ? at::arange(entry.shape.back(), at::kLong).unsqueeze(0)
                                  : impl_->parameters[static_cast<size_t>(entry.parameter)];
    result.push_back({entry.name, tensor, entry.alias_of});
  }
  return result;
}

ModelOutput LeanAlbert::Forward(const ModelInputs& inputs, const ForwardOptions& options) const {
  const at::Tensor& ids = inputs.input_ids;
  const at::Tensor types =
      inputs.token_type_ids.defined() ? inputs.token_type_ids : at::zeros_like(ids);
  const at::Tensor mask =
      inputs.attention_mask.defined() ? inputs.attention_mask : at::ones_like(ids);
  const at::Tensor& any = impl_->parameters.front();
  STARLING_CHECK(impl_->config.rotary() || ids.size(1) <= impl_->config.max_position_embeddings)
      << "sequences of " << ids.size(1) << " tokens, max_position_embeddings "
      << impl_->config.max_position_embeddings;

  RotaryTables tables;
  ForwardContext context;
  context.additive_mask = AdditiveMask(mask, any.scalar_type());
  if (impl_->config.rotary()) {
    tables = MakeRotaryTables(impl_->config.head_dim(), impl_->config.rotary_embedding_base,
                              ids.size(1), any.options());
    context.rotary = &tables;
  }
  if (options.training) context.dropout = SeededMasks(options.dropout_seed);
  context.observer = options.observer;

  ModelOutput output;
  output.hidden = impl_->Transform(impl_->embeddings(ids, types, context), context);
  if (impl_->config.sop_head) {
    output.pooled =
        at::tanh(at::linear(output.hidden.select(1, 0), impl_->pooler_weight, impl_->pooler_bias));
  }
  return output;
}

at::Tensor LeanAlbert::MlmLogits(const at::Tensor& hidden, const at::Tensor& positions) const {
  const at::Tensor rows = hidden.flatten(0, 1);
  return impl_->mlm_head(positions.defined() ? at::index_select(rows, 0, positions) : rows);
}

at::Tensor LeanAlbert::SopLogits(const at::Tensor& pooled, const ForwardOptions& options) const {
  STARLING_CHECK(impl_->config.sop_head) << "the model has no sentence-order head";
  const KeepMaskSource source =
      options.training ? SeededMasks(options.dropout_seed) : KeepMaskSource();
  return at::linear(ApplyDropout(pooled, impl_->config.classifier_dropout_prob, source,
                                 {DropoutSite::kClassifier, 0}),
                    impl_->sop_weight, impl_->sop_bias);
}

PretrainingLosses LeanAlbert::PretrainingLoss(const ModelInputs& inputs,
                                              const PretrainingLabels& labels,
                                              const ForwardOptions& options) const {
  const ModelOutput output = Forward(inputs, options);
  PretrainingLosses losses;
  losses.mlm = at::zeros({}, output.hidden.options().requires_grad(false));
  losses.sop = losses.mlm;
  const at::Tensor flat = labels.labels.flatten();
  const at::Tensor positions = at::nonzero(flat.ne(kNoLabel)).flatten();
  losses.masked_tokens = positions.numel();
  if (losses.masked_tokens > 0) {
    losses.mlm = at::cross_entropy_loss(MlmLogits(output.hidden, positions),
                                        at::index_select(flat, 0, positions));
  }
  losses.sop_rows = impl_->config.sop_head ? CountLabels(labels.sentence_order) : 0;
  if (losses.sop_rows > 0) {
    losses.sop =
        at::cross_entropy_loss(SopLogits(output.pooled, options), labels.sentence_order.flatten());
  }
  losses.total = losses.mlm + losses.sop;
  return losses;
}

}  // namespace starling::model
