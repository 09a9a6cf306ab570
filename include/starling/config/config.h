// All settings of a run, as plain values: one struct a section of the YAML file, one member a key.
// LoadConfig (config/load.h) fills and checks them; whoever builds a Config by hand calls
// CheckConfig. No thread, file or torch in here.
//
// Keys in YAML are the members' names, except in `model`, where layers, groups, inner_groups,
// inner_matrices, heads and gated are the short forms of num_hidden_layers and so on. Durations are
// written 500ms, 30s, 5m; paths are relative to the working directory of the process.
//
// A member marked [meaning] changes what a step computes: it goes into ConfigHash, and all workers
// of a run must agree on it. The others may differ between workers and between starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "starling/data/micro_batches.h"
#include "starling/model/lean_albert_config.h"
#include "starling/optim/options.h"
#include "starling/plan/length_schedule.h"
#include "starling/plan/lr_schedule.h"

namespace starling::config {

struct Run {
  std::string name = "run";  // letters, digits, '.', '_' and '-'
  std::string directory;     // run folder; empty in YAML = runs/<name>
  uint64_t seed = 1;         // [meaning] of data order, masks, dropout and version 0
};

using data::Objective;
using data::ShortDocuments;
using data::WordGroupRule;

struct Data {
  std::vector<std::string> train;  // token files, read as one after the other
  std::string validation;          // token file; empty = no evaluation
  std::string tokenizer;           // tokenizer.json that made them
  bool split_lines = true;         // line breaks end sentences; read by `starling prepare --config`
  WordGroupRule word_groups = WordGroupRule::kReference;   // [meaning]
  ShortDocuments short_documents = ShortDocuments::kKeep;  // [meaning]
  int64_t pad_to_multiple = 128;   // [meaning] batches become so wide, at most the length
  double mask_probability = 0.15;  // [meaning] share of tokens chosen for masking, in (0, 1)
};

enum class Precision { kAuto, kFp32 };  // kAuto asks the processor; today that is fp32 everywhere
enum class ActivationCheckpointing { kNone };

struct Training {
  int64_t steps = 1000;       // [meaning] decided steps of the run; the schedules end here
  int64_t global_batch = 64;  // [meaning] samples a step, whatever the number of workers
  int64_t micro_batch = 4;    // [meaning] samples a micro-batch; divides global_batch
  Precision precision = Precision::kAuto;    // [meaning]
  Objective objective = Objective::kMlmSop;  // [meaning]
  bool exact = false;  // [meaning] weights independent of membership; only false today
  // [meaning] Keys initial, final (its `maximum`), warmup_steps and multiple; tokens a sample.
  plan::LengthSchedule sequence_length{128, 128, 0, 128};
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::kNone;
  int64_t digest_every = 0;        // steps between digests of the state; 0 = never
  int64_t evaluate_every = 0;      // steps between evaluations; 0 = only at the end
  int64_t evaluation_batches = 0;  // micro-batches of an evaluation; 0 = the whole file
  int64_t threads = 1;             // compute threads of a worker

  int64_t micro_batches() const { return global_batch / micro_batch; }  // M
};

struct Optimizer {
  optim::Options options;  // [meaning] name, learning_rate, beta1, … of this section
  // [meaning] Keys schedule, warmup_steps, zero_steps and floor. total_steps is training.steps: it
  // has no key, LoadConfig copies it.
  plan::LrSchedule schedule{plan::LrScheduleName::kLive, 100, 1000, 0, 0.02};
  int64_t state_bits = 32;  // [meaning] bits of a stored moment; only 32 today
};

enum class Strategy { kDdp };

struct Parallel {
  Strategy strategy = Strategy::kDdp;
  int64_t replication = 2;  // owners of a unit under sharding; ddp keeps every unit everywhere
};

// See protocol.md §§5, 6. `detection` is the one to know: the others follow from it or are upper
// bounds that a healthy run never meets.
struct Elastic {
  int64_t min_workers = 1;
  int64_t max_workers = 64;
  absl::Duration detection = absl::Seconds(3);     // silence after which a worker counts as lost
  absl::Duration patience = absl::Seconds(30);     // wait for a silent sole owner before restoring
  absl::Duration stuck_after = absl::Seconds(30);  // no progress although others wait: dropped
  // A newcomer whose copy of the state takes longer than a step: the others wait for it so long.
  absl::Duration join_stall_max = absl::Seconds(30);
  absl::Duration gather_after = absl::Seconds(5);  // wait for more once min_workers are there

  absl::Duration heartbeat_interval() const { return detection / 3; }
};

enum class Backend { kAuto, kSocket };

struct Comm {
  Backend backend = Backend::kAuto;     // kAuto takes the best one built in: socket
  std::string bind_host = "127.0.0.1";  // address that a worker listens on for its peers
  // Address that peers connect to. Empty in YAML = bind_host; it stays empty when that is a
  // wildcard (0.0.0.0 or ::), and then a worker gives its host's name.
  std::string advertise_host;
  bool shared_memory = true;  // between workers on one host
};

struct Coordinator {
  std::string bind = "127.0.0.1:0";  // control plane, HOST:PORT; port 0 = any free one
  std::string http = "127.0.0.1:0";  // status page and metrics; empty = none
};

struct Checkpoint {
  int64_t every_steps = 100;  // 0 = only at the end
  int64_t keep = 3;           // newest ones that are never deleted
};

// The shape that a file without `model` trains: small enough for a laptop, all matrices shared,
// gated, rotary. Other defaults are the reference's (LeanAlbertConfig).
model::LeanAlbertConfig DefaultModel();

struct Config {
  Run run;
  Data data;
  model::LeanAlbertConfig model = DefaultModel();  // [meaning]
  Training training;
  Optimizer optimizer;
  Parallel parallel;
  Elastic elastic;
  Comm comm;
  Coordinator coordinator;
  Checkpoint checkpoint;
};

// What a tokenizer file says about the model that reads its ids.
struct TokenizerFacts {
  int64_t vocab_size = 0;
  int64_t pad_token_id = 0;
  int64_t bos_token_id = 0;  // [CLS]
  int64_t eos_token_id = 0;  // [SEP]
};

// Fingerprint of everything marked [meaning], model included, data files excluded: workers whose
// hashes are equal compute the same steps from the same data. The same on every platform and for
// every order and origin of the keys.
uint64_t ConfigHash(const Config& config);

// Fingerprint of the model alone; values that are unset and those set to the same derived value
// hash alike. REQUIRES: a valid model.
uint64_t ModelHash(const model::LeanAlbertConfig& model);

}  // namespace starling::config
