#include "config/schema.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/values.h"

namespace starling::config {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
// Any count of samples, tokens or steps; products of two stay inside 64 bits.
constexpr int64_t kMaxCount = int64_t{1} << 31;

std::string Describe(const Node& node) {
  switch (node.kind) {
    case Node::Kind::kNull:
      return "nothing";
    case Node::Kind::kList:
      return "a list";
    case Node::Kind::kMap:
      return "a section";
    case Node::Kind::kScalar:
      break;
  }
  return node.quoted ? absl::StrCat("the string \"", node.scalar, "\"")
                     : absl::StrCat("\"", node.scalar, "\"");
}

std::string Expected(const std::string& what, const Node& node) {
  std::string text = absl::StrCat("expected ", what, ", got ", Describe(node));
  const bool word = node.kind == Node::Kind::kScalar && !node.quoted;
  const bool boolean = absl::StartsWith(what, "true or false");
  if (word && boolean) absl::StrAppend(&text, "; write true or false without quotes");
  return text;
}

std::string RangeText(int64_t low, int64_t high) {
  if (low == std::numeric_limits<int64_t>::min()) return "a whole number";
  if (high == kNoLimit) return absl::StrCat("a whole number of at least ", low);
  return absl::StrCat("a whole number from ", low, " to ", high);
}

// What a double may be.
struct DoubleRange {
  const char* text;
  bool (*allows)(double);
};
constexpr DoubleRange kOpenUnit{"a number above 0 and below 1",
                                [](double x) { return x > 0 && x < 1; }};
constexpr DoubleRange kAnyDouble{"a number", [](double) { return true; }};

// A word for each value of an enumeration, and words that are understood but refused, with why.
template <typename E>
struct Choices {
  std::vector<std::pair<std::string, E>> words;
  std::map<std::string, std::string> refused = {};
};

class Table {
 public:
  explicit Table(std::vector<Field>* fields) : fields_(fields) {}

  // Later fields go to this section; `meaning` holds for them until the next call.
  void Section(const char* name, bool meaning) {
    section_ = name;
    meaning_ = meaning;
  }

  void Int(const char* key, int64_t* target, int64_t low = std::numeric_limits<int64_t>::min(),
           int64_t high = kNoLimit) {
    Add(
        key,
        [=](const Node& node) -> std::string {
          const std::optional<int64_t> value = IsWord(node) ? ParseInt(node.scalar) : std::nullopt;
          if (!value || *value < low || *value > high) return Expected(RangeText(low, high), node);
          *target = *value;
          return "";
        },
        [=] { return absl::StrCat(*target); });
  }

  void Uint(const char* key, uint64_t* target) {
    Add(
        key,
        [=](const Node& node) -> std::string {
          const std::optional<uint64_t> value =
              IsWord(node) ? ParseUint(node.scalar) : std::nullopt;
          if (!value) return Expected("a whole number from 0 to 18446744073709551615", node);
          *target = *value;
          return "";
        },
        [=] { return absl::StrCat(*target); });
  }

  template <typename T>  // double or std::optional<double>
  void Double(const char* key, T* target, DoubleRange range) {
    Add(
        key,
        [=](const Node& node) -> std::string {
          const std::optional<double> value =
              IsWord(node) ? ParseDouble(node.scalar) : std::nullopt;
          if (!value || !range.allows(*value)) return Expected(range.text, node);
          *target = *value;
          return "";
        },
        [=] { return FormatDouble(std::optional<double>(*target).value()); });
  }

  // `only`: the one value that is allowed today, and why the other is refused.
  template <typename T>  // bool or std::optional<bool>
  void Bool(const char* key, T* target, std::optional<bool> only = std::nullopt,
            const char* why = "") {
    Add(
        key,
        [=](const Node& node) -> std::string {
          const std::optional<bool> value = IsWord(node) ? ParseBool(node.scalar) : std::nullopt;
          if (!value) return Expected("true or false", node);
          if (only && *value != *only) return why;
          *target = *value;
          return "";
        },
        [=] { return std::optional<bool>(*target).value() ? "true" : "false"; });
  }

  void String(const char* key, std::string* target) {
    Add(
        key,
        [=](const Node& node) -> std::string {
          if (node.kind != Node::Kind::kScalar) return Expected("a string", node);
          *target = node.scalar;
          return "";
        },
        [=] { return FormatString(*target); });
  }

  // A list of strings; a single string is a list of one.
  void Strings(const char* key, std::vector<std::string>* target) {
    Add(
        key,
        [=](const Node& node) -> std::string {
          const std::vector<Node> one = {node};
          const std::vector<Node>& items = node.kind == Node::Kind::kList ? node.items : one;
          std::vector<std::string> values;
          for (const Node& item : items) {
            if (item.kind != Node::Kind::kScalar) return Expected("a list of strings", item);
            values.push_back(item.scalar);
          }
          *target = std::move(values);
          return "";
        },
        [=] {
          std::vector<std::string> quoted;
          for (const std::string& value : *target) quoted.push_back(FormatString(value));
          return absl::StrCat("[", absl::StrJoin(quoted, ", "), "]");
        });
  }

  void Time(const char* key, absl::Duration* target, absl::Duration low) {
    Add(
        key,
        [=](const Node& node) -> std::string {
          const std::optional<absl::Duration> value =
              IsWord(node) ? ParseTime(node.scalar) : std::nullopt;
          if (!value || *value < low) {
            return Expected(absl::StrCat("a duration of at least ", FormatTime(low),
                                         " such as 500ms, 30s or 5m"),
                            node);
          }
          *target = *value;
          return "";
        },
        [=] { return FormatTime(*target); });
  }

  template <typename E>
  void Choice(const char* key, E* target, Choices<E> choices) {
    Add(
        key,
        [=](const Node& node) -> std::string {
          std::vector<std::string> names;
          for (const auto& [name, value] : choices.words) {
            names.push_back(name);
            if (node.kind == Node::Kind::kScalar && node.scalar == name) {
              *target = value;
              return "";
            }
          }
          const auto refused = choices.refused.find(node.scalar);
          if (refused != choices.refused.end()) {
            return absl::StrCat("\"", node.scalar, "\" ", refused->second);
          }
          return Expected(absl::StrJoin(names, names.size() == 2 ? " or " : ", "), node);
        },
        [=] {
          for (const auto& [name, value] : choices.words) {
            if (value == *target) return name;
          }
          return std::string();
        });
  }

 private:
  static bool IsWord(const Node& node) { return node.kind == Node::Kind::kScalar && !node.quoted; }

  void Add(const char* key, std::function<std::string(const Node&)> read,
           std::function<std::string()> write) {
    fields_->push_back(
        {absl::StrCat(section_, ".", key), meaning_, std::move(read), std::move(write)});
  }

  std::vector<Field>* const fields_;
  std::string section_;
  bool meaning_ = false;
};

void RunFields(Run* run, Table* table) {
  table->Section("run", false);
  table->String("name", &run->name);
  table->String("directory", &run->directory);
  table->Section("run", true);
  table->Uint("seed", &run->seed);
}

void DataFields(Data* data, Table* table) {
  table->Section("data", false);
  table->Strings("train", &data->train);
  table->String("validation", &data->validation);
  table->String("tokenizer", &data->tokenizer);
  table->Bool("split_lines", &data->split_lines);
  table->Section("data", true);
  table->Choice<WordGroupRule>(
      "word_groups", &data->word_groups,
      {{{"reference", WordGroupRule::kReference}, {"corrected", WordGroupRule::kCorrected}}});
  table->Choice<ShortDocuments>(
      "short_documents", &data->short_documents,
      {{{"keep", ShortDocuments::kKeep}, {"discard", ShortDocuments::kDiscard}}});
  table->Int("pad_to_multiple", &data->pad_to_multiple, 1, 1 << 20);
  table->Double("mask_probability", &data->mask_probability, kOpenUnit);
}

// Ranges are LeanAlbertConfig::Validate's business.
void ModelFields(model::LeanAlbertConfig* model, Table* table) {
  table->Section("model", true);
  table->Int("hidden_size", &model->hidden_size);
  table->Int("layers", &model->num_hidden_layers);
  table->Int("groups", &model->num_hidden_groups);
  table->Int("inner_groups", &model->num_inner_groups);
  table->Int("share_large_matrices", &model->share_large_matrices);
  table->Int("inner_matrices", &model->num_inner_matrices);
  table->Int("adapter_dim", &model->adapter_dim);
  table->Int("lowrank_dim", &model->lowrank_dim);
  table->Int("heads", &model->num_attention_heads);
  table->Int("intermediate_size", &model->intermediate_size);
  table->Int("block_size", &model->block_size);
  table->String("hidden_act", &model->hidden_act);
  table->Bool("gated", &model->hidden_act_gated);
  table->Bool("attn_qkv_bias", &model->attn_qkv_bias);
  table->Bool("out_proj_bias", &model->out_proj_bias);
  table->Bool("sandwich_norm", &model->sandwich_norm);
  table->Double("layer_norm_eps", &model->layer_norm_eps, kAnyDouble);
  table->Double("hidden_dropout_prob", &model->hidden_dropout_prob, kAnyDouble);
  table->Double("attention_probs_dropout_prob", &model->attention_probs_dropout_prob, kAnyDouble);
  table->Double("classifier_dropout_prob", &model->classifier_dropout_prob, kAnyDouble);
  table->String("position_embedding_type", &model->position_embedding_type);
  table->Int("max_position_embeddings", &model->max_position_embeddings);
  table->Double("rotary_embedding_base", &model->rotary_embedding_base, kAnyDouble);
  table->Double("initializer_range", &model->initializer_range, kAnyDouble);
  table->Int("vocab_size", &model->vocab_size);
  table->Int("embedding_size", &model->embedding_size);
  table->Int("type_vocab_size", &model->type_vocab_size);
  table->Int("pad_token_id", &model->pad_token_id);
  table->Int("bos_token_id", &model->bos_token_id);
  table->Int("eos_token_id", &model->eos_token_id);
  table->Bool("tie_word_embeddings", &model->tie_word_embeddings);
  table->Bool("sop_head", &model->sop_head);
  table->Int("num_labels", &model->num_labels);
}

void TrainingFields(Training* training, Table* table) {
  table->Section("training", true);
  table->Int("steps", &training->steps, 1, kMaxCount);
  table->Int("global_batch", &training->global_batch, 1, kMaxCount);
  table->Int("micro_batch", &training->micro_batch, 1, kMaxCount);
  table->Choice<Precision>(
      "precision", &training->precision,
      {{{"auto", Precision::kAuto}, {"fp32", Precision::kFp32}},
       {{"bf16", "is not supported by this version, which computes in fp32: set auto or fp32"},
        {"fp16", "is not supported by this version, which computes in fp32: set auto or fp32"}}});
  table->Choice<Objective>("objective", &training->objective,
                           {{{"mlm_sop", Objective::kMlmSop}, {"mlm", Objective::kMlm}}});
  table->Bool("exact", &training->exact, false,
              "true is not supported by this version: training is exact up to the order of fp32 "
              "sums only; set false");
  table->Int("sequence_length.initial", &training->sequence_length.initial, 0, 1 << 20);
  table->Int("sequence_length.final", &training->sequence_length.maximum, 8, 1 << 20);
  table->Int("sequence_length.warmup_steps", &training->sequence_length.warmup_steps, 0, kMaxCount);
  table->Int("sequence_length.multiple", &training->sequence_length.multiple, 1, 1 << 20);
  table->Section("training", false);
  table->Choice<ActivationCheckpointing>(
      "activation_checkpointing", &training->activation_checkpointing,
      {{{"none", ActivationCheckpointing::kNone}},
       {{"full", "is not supported by this version: set none"},
        {"lean", "is not supported by this version: set none"}}});
  table->Int("digest_every", &training->digest_every, 0, kMaxCount);
  table->Int("evaluate_every", &training->evaluate_every, 0, kMaxCount);
  table->Int("evaluation_batches", &training->evaluation_batches, 0, kMaxCount);
  table->Int("threads", &training->threads, 1, 1024);
}

// Ranges are checked by optim::Options::Validate and plan::LrSchedule::Validate.
void OptimizerFields(Optimizer* optimizer, Table* table) {
  optim::Options& options = optimizer->options;
  table->Section("optimizer", true);
  table->Choice<optim::Name>("name", &options.name,
                             {{{"lamb", optim::Name::kLamb}, {"adamw", optim::Name::kAdamW}}});
  table->Double("learning_rate", &options.learning_rate, kAnyDouble);
  table->Choice<plan::LrScheduleName>(
      "schedule", &optimizer->schedule.name,
      {{{"live", plan::LrScheduleName::kLive}, {"linear", plan::LrScheduleName::kLinear}}});
  table->Int("warmup_steps", &optimizer->schedule.warmup_steps, 0, kMaxCount);
  table->Int("zero_steps", &optimizer->schedule.zero_steps, 0, kMaxCount);
  table->Double("floor", &optimizer->schedule.floor, kAnyDouble);
  table->Double("beta1", &options.beta1, kAnyDouble);
  table->Double("beta2", &options.beta2, kAnyDouble);
  table->Double("epsilon", &options.epsilon, kAnyDouble);
  table->Double("weight_decay", &options.weight_decay, kAnyDouble);
  table->Double("clip", &options.clip, kAnyDouble);
  table->Double("clamp", &options.clamp, kAnyDouble);
  table->Choice<int64_t>(
      "state_bits", &optimizer->state_bits,
      {{{"32", 32}},
       {{"8", "is not supported by this version, which keeps moments in fp32: set 32"}}});
}

void ElasticFields(Elastic* elastic, Table* table) {
  table->Section("elastic", false);
  table->Int("min_workers", &elastic->min_workers, 1, 100000);
  table->Int("max_workers", &elastic->max_workers, 1, 100000);
  table->Time("detection", &elastic->detection, absl::Milliseconds(150));
  table->Time("patience", &elastic->patience, absl::ZeroDuration());
  table->Time("stuck_after", &elastic->stuck_after, absl::Seconds(1));
  table->Time("join_stall_max", &elastic->join_stall_max, absl::ZeroDuration());
  table->Time("gather_after", &elastic->gather_after, absl::ZeroDuration());
}

void ClusterFields(Config* config, Table* table) {
  static constexpr const char* kDdpOnly =
      "is not supported by this version, which keeps the whole state on every worker: set ddp";
  table->Section("parallel", false);
  table->Choice<Strategy>(
      "strategy", &config->parallel.strategy,
      {{{"ddp", Strategy::kDdp}}, {{"zero1", kDdpOnly}, {"zero2", kDdpOnly}, {"zero3", kDdpOnly}}});
  table->Int("replication", &config->parallel.replication, 1, 1024);
  ElasticFields(&config->elastic, table);
  table->Section("comm", false);
  table->Choice<Backend>("backend", &config->comm.backend,
                         {{{"auto", Backend::kAuto}, {"socket", Backend::kSocket}},
                          {{"nccl", "is not built into this version: set auto or socket"},
                           {"mpi", "is not built into this version: set auto or socket"}}});
  table->String("bind_host", &config->comm.bind_host);
  table->String("advertise_host", &config->comm.advertise_host);
  table->Bool("shared_memory", &config->comm.shared_memory);
  table->Section("coordinator", false);
  table->String("bind", &config->coordinator.bind);
  table->String("http", &config->coordinator.http);
  table->Section("checkpoint", false);
  table->Int("every_steps", &config->checkpoint.every_steps, 0, kMaxCount);
  table->Int("keep", &config->checkpoint.keep, 1, kMaxCount);
}

}  // namespace

std::vector<Field> Fields(Config* config) {
  std::vector<Field> fields;
  Table table(&fields);
  RunFields(&config->run, &table);
  DataFields(&config->data, &table);
  ModelFields(&config->model, &table);
  TrainingFields(&config->training, &table);
  OptimizerFields(&config->optimizer, &table);
  ClusterFields(config, &table);
  return fields;
}

std::string ModelKey(const std::string& name) {
  static const std::map<std::string, std::string>* const kNames =
      new std::map<std::string, std::string>{
          {"num_hidden_layers", "layers"},      {"num_hidden_groups", "groups"},
          {"num_inner_groups", "inner_groups"}, {"num_inner_matrices", "inner_matrices"},
          {"num_attention_heads", "heads"},     {"hidden_act_gated", "gated"}};
  const auto found = kNames->find(name);
  return found == kNames->end() ? name : found->second;
}

}  // namespace starling::config
