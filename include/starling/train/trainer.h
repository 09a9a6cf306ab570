// The façade behind which libtorch lives: the model, its gradient accumulator and the optimizer of
// one worker, as flat float buffers that a communicator can move. Nothing here knows of workers,
// generations or communicators; src/worker/elastic_loop.cc puts the two together.
//
// All five buffers have the layout of flat_layout.h:
//
//   parameters     fp32 master copy p, which is the working copy too
//   first_moment   m
//   second_moment  v
//   accumulator    Σ over this worker's finished micro-batches of their gradients
//   reduced        Σ over all workers of their accumulators, where this worker has received it
//
// Threads: one thread (the training thread) uses a Trainer; buffers are stable for its life.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "starling/comm/communicator.h"
#include "starling/data/batch.h"
#include "starling/model/lean_albert_config.h"
#include "starling/optim/options.h"
#include "starling/train/flat_layout.h"

namespace starling::train {

struct TrainerOptions {
  model::LeanAlbertConfig model;
  optim::Options optimizer;
  uint64_t seed = 0;
  int threads = 1;
  bool sentence_order = true;  // objective mlm_sop; false: mlm
};

// What a micro-batch adds to the step's metrics. Losses are means over the micro-batch's own
// labels.
struct MicroBatchLosses {
  double mlm = 0;
  double sop = 0;
  int64_t tokens = 0;  // without padding
  int64_t samples = 0;
};

// Sums over evaluated micro-batches; they add up across workers.
struct EvaluationSums {
  double mlm_loss = 0;         // Σ of token losses
  int64_t masked = 0;          // masked tokens
  int64_t masked_correct = 0;  // of them, predicted right
  double sop_loss = 0;         // Σ over pairs with a label
  int64_t pairs = 0;
  int64_t pairs_correct = 0;
};

// Numbers of one update that are the same on every worker.
struct UpdateScalars {
  double learning_rate = 0;
  double gradient_scale = 1;  // 1 / M, which turns the reduced sum into the mean
  double clip_factor = 1;     // on the mean; from the global norm
  int64_t update = 1;         // the optimizer's own count t = 1, 2, …; skipped steps do not count
};

// Partial sums per tensor, in the order of FlatLayout::tensors; they add up across first owners.
struct PartialNorms {
  std::vector<double> weight_squares;  // Σ p²
  std::vector<double> update_squares;  // Σ u²
};

class Trainer {
 public:
  virtual ~Trainer() = default;

  // Allocates all buffers, full of zeros: whoever joins or resumes fills them from elsewhere, so
  // nothing is drawn here. Sets libtorch's number of threads and its deterministic mode for the
  // whole process. InvalidArgument for a model that cannot be built; ResourceExhausted for no
  // memory.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const TrainerOptions& options);

  // Sets version 0 from the seed, whatever the buffers hold: parameters with the same bits on every
  // worker; moments and accumulator zero. Draws every weight, which takes many seconds for a large
  // model: calls `progressed` after each tensor.
  virtual void InitializeFromSeed(const std::function<void()>& progressed) = 0;

  virtual const FlatLayout& layout() const = 0;
  virtual std::span<float> parameters() = 0;
  virtual std::span<float> first_moment() = 0;
  virtual std::span<float> second_moment() = 0;
  virtual std::span<float> accumulator() = 0;
  virtual std::span<float> reduced() = 0;

  // Forward and backward of one micro-batch; its gradient enters the accumulator whole. After an
  // error the accumulator is spoilt: ClearAccumulator before anything else. `dropout_seed` decides
  // every dropout mask. Errors: ResourceExhausted for no memory; Internal when libtorch fails,
  // which includes a batch of another shape than it says or with ids outside the vocabulary; the
  // message says how.
  virtual absl::StatusOr<MicroBatchLosses> Compute(const data::Batch& batch,
                                                   uint64_t dropout_seed) = 0;
  virtual void ClearAccumulator() = 0;

  // Σ g² over `ranges` of the reduced sum (not yet scaled), in double. Non-finite values come
  // through.
  virtual double SquaredNorm(std::span<const comm::Range> ranges) = 0;

  // Partial norms of the optimizer over `ranges` (LAMB: of p and of the update u it would make).
  // Reads p, m, v and the reduced sum; writes nothing. Both vectors are zero for AdamW.
  virtual PartialNorms Measure(std::span<const comm::Range> ranges,
                               const UpdateScalars& scalars) = 0;

  // Writes m, v and p over `ranges` from the reduced sum and the complete norms of all tensors. The
  // same inputs give the same bits on every processor.
  virtual void Apply(std::span<const comm::Range> ranges, const UpdateScalars& scalars,
                     const PartialNorms& norms) = 0;

  // Loss and accuracy of one batch without gradient and dropout. Errors as Compute's.
  virtual absl::StatusOr<EvaluationSums> Evaluate(const data::Batch& batch) = 0;

  // Digest (protocol.md §8) of p, m, v over `ranges`, which begin and end on multiples of 4096
  // elements of the flat space (or at its end): Σ over blocks of SHA-256(buffer id, block index,
  // bytes without padding) as four 64-bit lanes with wrap-around.
  virtual std::array<uint64_t, 4> Digest(std::span<const comm::Range> ranges) = 0;
};

}  // namespace starling::train
