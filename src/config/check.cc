// Rules between settings, and what a setting that nobody gave follows from.
#include "config/check.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "config/schema.h"
#include "starling/base/host_port.h"

namespace starling::config {
namespace {

class Checker {
 public:
  Checker(const Config& config, std::vector<Problem>* problems, std::vector<Problem>* warnings)
      : config_(config), problems_(problems), warnings_(warnings) {}

  void Run() {
    CheckRun();
    CheckData();
    CheckModel();
    CheckBatch();
    CheckLengths();
    CheckOptimizer();
    CheckParallel();
    CheckElastic();
    CheckAddress("coordinator.bind", config_.coordinator.bind, false);
    CheckAddress("coordinator.http", config_.coordinator.http, true);
    if (config_.comm.bind_host.empty()) Bad("comm.bind_host", "must not be empty");
  }

 private:
  void Bad(const std::string& key, const std::string& text) {
    problems_->push_back({Source(), key, text});
  }
  void Odd(const std::string& key, const std::string& text) {
    warnings_->push_back({Source(), key, text});
  }

  // `sentences` of another layer's Validate: each begins with its field's name.
  void Adopt(const std::string& section, const std::vector<std::string>& sentences) {
    for (const std::string& sentence : sentences) {
      const std::string field = sentence.substr(0, sentence.find(' '));
      Bad(absl::StrCat(section, ".", field), sentence);
    }
  }

  void CheckRun() {
    const std::string& name = config_.run.name;
    const bool good = std::all_of(name.begin(), name.end(), [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
    });
    if (!good || name.empty() || name[0] == '.' || name[0] == '-') {
      Bad("run.name", absl::StrCat("\"", name,
                                   "\" is no run name: it must begin with a letter, a "
                                   "digit or '_' and hold only these, '.' and '-'"));
    }
  }

  void CheckData() {
    for (const std::string& path : config_.data.train) {
      if (path.empty()) Bad("data.train", "an empty path in the list");
    }
    if (!config_.data.train.empty() && config_.data.tokenizer.empty()) {
      Bad("data.tokenizer", "is not set, but data.train is: name the tokenizer.json that made it");
    }
  }

  void CheckModel() {
    for (std::string sentence : config_.model.Validate()) {
      const std::string field = ModelKey(sentence.substr(0, sentence.find(' ')));
      sentence = absl::StrReplaceAll(sentence, {{"num_hidden_layers", "layers"},
                                                {"num_hidden_groups", "groups"},
                                                {"num_inner_groups", "inner_groups"},
                                                {"num_inner_matrices", "inner_matrices"},
                                                {"num_attention_heads", "heads"}});
      Bad(absl::StrCat("model.", field), sentence);
    }
    if (config_.training.objective == Objective::kMlmSop && !config_.model.sop_head) {
      Bad("model.sop_head",
          "is false, but training.objective mlm_sop trains this head: set it to "
          "true or the objective to mlm");
    }
    if (config_.training.objective == Objective::kMlmSop && config_.model.num_labels != 2) {
      Bad("model.num_labels", absl::StrCat("is ", config_.model.num_labels,
                                           ", but sentence order "
                                           "(training.objective mlm_sop) has 2 classes"));
    }
    if (config_.model.type_vocab_size < 2) {
      Bad("model.type_vocab_size", "is below 2, but pairs of sentences have token types 0 and 1");
    }
  }

  void CheckBatch() {
    const Training& training = config_.training;
    if (training.micro_batch > training.global_batch) {
      Bad("training.micro_batch", absl::StrCat("is ", training.micro_batch,
                                               ", more than "
                                               "training.global_batch, which is ",
                                               training.global_batch));
      return;
    }
    if (training.global_batch % training.micro_batch != 0) {
      Bad("training.global_batch", absl::StrCat("is ", training.global_batch,
                                                ", not a multiple of "
                                                "training.micro_batch, which is ",
                                                training.micro_batch));
      return;
    }
    if (training.micro_batches() < config_.elastic.min_workers) {
      Odd("training.global_batch",
          absl::StrCat("a step has ", training.micro_batches(),
                       " micro-batches, fewer than elastic.min_workers (",
                       config_.elastic.min_workers,
                       "): some workers never have work; make training.micro_batch smaller"));
    }
  }

  void CheckLengths() {
    const plan::LengthSchedule& length = config_.training.sequence_length;
    Adopt("training.sequence_length", length.Validate());
    if (!config_.model.rotary() && length.maximum > config_.model.max_position_embeddings) {
      Bad("model.max_position_embeddings",
          absl::StrCat("is ", config_.model.max_position_embeddings,
                       ", but training.sequence_length.final is ", length.maximum));
    }
  }

  void CheckOptimizer() {
    const plan::LrSchedule& schedule = config_.optimizer.schedule;
    Adopt("optimizer", config_.optimizer.options.Validate());
    Adopt("optimizer", schedule.Validate());
    if (schedule.zero_steps > schedule.warmup_steps) {
      Bad("optimizer.zero_steps", absl::StrCat("is ", schedule.zero_steps,
                                               ", more than "
                                               "optimizer.warmup_steps, of which it is a part (",
                                               schedule.warmup_steps, ")"));
    }
    if (schedule.warmup_steps > config_.training.steps) {
      Odd("optimizer.warmup_steps",
          absl::StrCat("is ", schedule.warmup_steps,
                       ", but training ends "
                       "after ",
                       config_.training.steps, " steps: the full learning rate is never reached"));
    }
  }

  void CheckParallel() {
    const int64_t replication = config_.parallel.replication;
    if (replication == Parallel().replication) return;
    Bad("parallel.replication",
        absl::StrCat(replication, " is not supported by this version, which keeps the whole state ",
                     "on every worker: leave the key out"));
  }

  void CheckElastic() {
    const Elastic& elastic = config_.elastic;
    if (elastic.min_workers > elastic.max_workers) {
      Bad("elastic.min_workers", absl::StrCat("is ", elastic.min_workers,
                                              ", more than "
                                              "elastic.max_workers, which is ",
                                              elastic.max_workers));
    }
    if (elastic.stuck_after < elastic.detection) {
      Bad("elastic.stuck_after",
          "is shorter than elastic.detection: a worker would be dropped "
          "as stuck before its silence counts");
    }
  }

  void CheckAddress(const std::string& key, const std::string& address, bool may_be_empty) {
    if (address.empty() && may_be_empty) return;
    if (!ParseHostPort(address).ok()) {
      Bad(key, absl::StrCat("\"", address,
                            "\" is no address: expected HOST:PORT, with port 0 for "
                            "any free one"));
    }
  }

  const Config& config_;
  std::vector<Problem>* const problems_;
  std::vector<Problem>* const warnings_;
};

}  // namespace

void Resolve(const std::function<bool(const std::string&)>& is_set, Config* config) {
  model::LeanAlbertConfig& model = config->model;
  if (config->run.directory.empty()) {
    config->run.directory = absl::StrCat("runs/", config->run.name);
  }
  if (!is_set("model.sop_head")) {
    model.sop_head = config->training.objective == Objective::kMlmSop;
  }
  model.num_hidden_groups = model.groups();
  model.out_proj_bias = model.has_out_proj_bias();
  if (model.hidden_size > 0) model.initializer_range = model.initializer_std();
  plan::LengthSchedule& length = config->training.sequence_length;
  if (length.initial == 0) length.initial = length.multiple;
  if (!is_set("training.sequence_length.initial")) {
    length.initial = std::min(length.initial, length.maximum);
  }
  config->optimizer.schedule.total_steps = config->training.steps;
  Comm& comm = config->comm;
  const bool wildcard = comm.bind_host == "0.0.0.0" || comm.bind_host == "::";
  if (comm.advertise_host.empty() && !wildcard) comm.advertise_host = comm.bind_host;
}

void CheckConfig(const Config& config, std::vector<Problem>* problems,
                 std::vector<Problem>* warnings) {
  Checker(config, problems, warnings).Run();
}

}  // namespace starling::config
