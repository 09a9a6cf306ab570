// From a config to everything a training worker consists of. Torch stays behind train/trainer.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "starling/base/ids.h"
#include "starling/comm/fault.h"
#include "starling/config/config.h"
#include "starling/data/micro_batches.h"
#include "starling/data/tokenizer.h"
#include "starling/membership/worker_core.h"
#include "starling/train/trainer.h"
#include "starling/worker/executor.h"

namespace starling::cli {

// What the command line adds to the config.
struct WorkerArguments {
  std::string name;           // stable name of the worker
  std::string run_directory;  // where checkpoints and logs are
  std::vector<comm::Fault> faults;
};

struct WorkerSetup {
  membership::Options protocol;
  membership::WorkerIdentity identity;
  worker::ExecutorOptions executor;
  worker::ExecutorParts parts;
};

// A new life's number from the system's random source; never 0.
Incarnation NewIncarnation();

train::TrainerOptions TrainerOptionsOf(const config::Config& config);
// What data::SetTokenizer sets is left out.
data::MicroBatchOptions TrainingBatchesOf(const config::Config& config);
// The same masks and pairs at every evaluation, at the final sequence length.
data::MicroBatchOptions EvaluationBatchesOf(const config::Config& config);

// `tokenizer` is the config's. Opens token files, allocates the model, listens for peers. Takes
// seconds: token files are read once to check them. Errors name the setting and the file; their
// exit codes are ExitCodeFor's.
absl::StatusOr<WorkerSetup> SetUpWorker(const config::Config& config,
                                        const data::Tokenizer& tokenizer,
                                        const WorkerArguments& arguments, Incarnation incarnation);

}  // namespace starling::cli
