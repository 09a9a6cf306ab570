#include "cli/worker_setup.h"

#include <unistd.h>

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/run_setup.h"
#include "starling/base/exit_codes.h"
#include "starling/base/host.h"
#include "starling/base/secret.h"
#include "starling/base/status.h"
#include "starling/comm/transport.h"
#include "starling/data/chunks.h"

namespace starling::cli {
namespace {

// Workers of equal numerics compute equal bits from equal inputs. Raise the last number with every
// change of a kernel, a reduction order or a random draw.
constexpr const char* kNumericsVersion = "torch-2.11.0/fp32/1";

struct Sources {
  std::shared_ptr<const data::MicroBatchSource> training;
  std::shared_ptr<const data::EvaluationSource> evaluation;
  uint64_t data_hash = 0;
};

absl::StatusOr<std::shared_ptr<const data::Corpus>> OpenCorpus(
    const std::string& key, const std::vector<std::string>& paths) {
  absl::StatusOr<std::shared_ptr<const data::Corpus>> corpus = data::Corpus::Open(paths);
  if (!corpus.ok()) return Annotate(corpus.status(), key);
  return corpus;
}

// Data that the options make useless is a matter of the config, not of this program's arguments.
template <typename T>
absl::StatusOr<T> UsableAs(const std::string& key, absl::StatusOr<T> source) {
  if (source.ok()) return source;
  absl::Status status = Annotate(source.status(), key);
  if (absl::IsInvalidArgument(status)) return WithExitCode(std::move(status), ExitCode::kConfig);
  return status;
}

absl::StatusOr<Sources> OpenSources(const config::Config& config,
                                    const data::Tokenizer& tokenizer) {
  Sources sources;
  STARLING_ASSIGN_OR_RETURN(const auto corpus, OpenCorpus("data.train", config.data.train));
  sources.data_hash = corpus->DataHash();
  data::MicroBatchOptions batches = TrainingBatchesOf(config);
  data::SetTokenizer(tokenizer, &batches);
  STARLING_ASSIGN_OR_RETURN(
      sources.training,
      UsableAs("data.train", data::MakeTrainingSource(corpus, std::move(batches))));
  if (config.data.validation.empty()) return sources;
  STARLING_ASSIGN_OR_RETURN(const auto validation,
                            OpenCorpus("data.validation", {config.data.validation}));
  data::MicroBatchOptions evaluation = EvaluationBatchesOf(config);
  data::SetTokenizer(tokenizer, &evaluation);
  STARLING_ASSIGN_OR_RETURN(sources.evaluation,
                            UsableAs("data.validation", data::EvaluationSource::Create(
                                                            validation, std::move(evaluation))));
  return sources;
}

worker::ExecutorOptions ExecutorOptionsOf(const config::Config& config,
                                          const WorkerArguments& arguments,
                                          const membership::Options& protocol,
                                          Incarnation incarnation) {
  return {.membership = protocol,
          .run_directory = arguments.run_directory,
          .incarnation = incarnation,
          .seed = config.run.seed,
          .learning_rate = config.optimizer.options.learning_rate,
          .schedule = config.optimizer.schedule,
          .clip = config.optimizer.options.clip,
          .evaluation_batches = config.training.evaluation_batches,
          .faults = arguments.faults};
}

absl::StatusOr<std::unique_ptr<comm::Transport>> Listen(const config::Config& config) {
  comm::SocketTransportOptions options;
  options.bind_host = config.comm.bind_host;
  options.advertise_host = config.comm.advertise_host;
  options.shared_memory = config.comm.shared_memory;
  absl::StatusOr<std::unique_ptr<comm::Transport>> transport = comm::MakeSocketTransport(options);
  if (!transport.ok()) return Annotate(transport.status(), "comm.bind_host");
  return transport;
}

}  // namespace

Incarnation NewIncarnation() {
  uint64_t value = 0;
  while (value == 0) FillRandom(&value, sizeof(value));
  return Incarnation(value);
}

train::TrainerOptions TrainerOptionsOf(const config::Config& config) {
  return {.model = config.model,
          .optimizer = config.optimizer.options,
          .seed = config.run.seed,
          .threads = static_cast<int>(config.training.threads),
          .sentence_order = config.training.objective == config::Objective::kMlmSop};
}

data::MicroBatchOptions TrainingBatchesOf(const config::Config& config) {
  data::MicroBatchOptions options;
  options.seed = config.run.seed;
  options.objective = config.training.objective;
  options.short_documents = config.data.short_documents;
  options.word_groups = config.data.word_groups;
  options.mask_probability = config.data.mask_probability;
  options.micro_batch = static_cast<uint64_t>(config.training.micro_batch);
  options.micro_batches = static_cast<uint64_t>(config.training.micro_batches());
  options.pad_to_multiple = static_cast<uint64_t>(config.data.pad_to_multiple);
  options.lengths = config.training.sequence_length.Changes();
  return options;
}

data::MicroBatchOptions EvaluationBatchesOf(const config::Config& config) {
  data::MicroBatchOptions options = TrainingBatchesOf(config);
  options.lengths = {{0, config.training.sequence_length.maximum}};
  return options;
}

absl::StatusOr<WorkerSetup> SetUpWorker(const config::Config& config,
                                        const data::Tokenizer& tokenizer,
                                        const WorkerArguments& arguments, Incarnation incarnation) {
  WorkerSetup setup;
  setup.protocol = ProtocolOptions(config, 1, false);
  STARLING_ASSIGN_OR_RETURN(Sources sources, OpenSources(config, tokenizer));
  STARLING_ASSIGN_OR_RETURN(setup.parts.transport, Listen(config));
  STARLING_ASSIGN_OR_RETURN(setup.parts.trainer, train::Trainer::Create(TrainerOptionsOf(config)));
  setup.parts.training = std::move(sources.training);
  setup.parts.evaluation = std::move(sources.evaluation);
  setup.executor = ExecutorOptionsOf(config, arguments, setup.protocol, incarnation);
  setup.identity = {
      .member = {incarnation, arguments.name, HostId(), getpid(), setup.parts.transport->address()},
      .run_id = setup.protocol.run_id,
      .numerics_version = kNumericsVersion,
      .config_hash = setup.protocol.config_hash,
      .model_hash = setup.protocol.model_hash,
      .data_hash = sources.data_hash};
  return setup;
}

}  // namespace starling::cli
