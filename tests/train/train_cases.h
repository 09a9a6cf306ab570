// Small models and random batches for the trainer's tests.
#pragma once

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <memory>
#include <vector>

#include "starling/base/rng.h"
#include "starling/optim/step.h"
#include "starling/train/trainer.h"

namespace starling::testing {

inline train::TrainerOptions SmallOptions() {
  train::TrainerOptions options;
  options.model.vocab_size = 101;
  options.model.embedding_size = 24;
  options.model.hidden_size = 48;
  options.model.num_attention_heads = 4;
  options.model.intermediate_size = 72;
  options.model.num_hidden_layers = 2;
  options.model.share_large_matrices = 1;
  options.model.hidden_act_gated = true;
  options.seed = 7;
  return options;
}

// Rows of different lengths with about a sixth of the tokens to be predicted; every row has one.
inline data::Batch RandomBatch(int64_t rows, int64_t length, uint64_t seed,
                               int64_t vocabulary = 101) {
  data::Batch batch;
  batch.rows = rows;
  batch.length = length;
  const auto draw = [&](int64_t row, uint32_t column, uint32_t what, uint64_t bound) {
    return static_cast<int64_t>(ToBounded(
        Draw({.seed = seed, .step = what, .row = static_cast<uint32_t>(row), .counter = column}),
        bound));
  };
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t tokens = length - draw(row, 0, 9, static_cast<uint64_t>(length / 2));
    for (int64_t i = 0; i < length; ++i) {
      const bool pad = i >= tokens;
      const auto column = static_cast<uint32_t>(i);
      const int64_t id = 5 + draw(row, column, 1, static_cast<uint64_t>(vocabulary - 5));
      const bool predict = !pad && (i == 1 || draw(row, column, 2, 6) == 0);
      batch.input_ids.push_back(pad ? 0 : predict ? 4 : id);
      batch.token_type_ids.push_back(!pad && i >= tokens / 2);
      batch.attention_mask.push_back(!pad);
      batch.labels.push_back(predict ? id : data::kIgnoredLabel);
      batch.tokens += !pad;
      batch.predicted += predict;
    }
    batch.sentence_order_labels.push_back(draw(row, 0, 3, 2));
  }
  return batch;
}

// At version 0.
inline std::unique_ptr<train::Trainer> MakeTrainer(const train::TrainerOptions& options) {
  auto trainer = train::Trainer::Create(options);
  INFO(trainer.status().ToString());
  REQUIRE(trainer.ok());
  (*trainer)->InitializeFromSeed([] {});
  return *std::move(trainer);
}

inline train::MicroBatchLosses MustCompute(train::Trainer& trainer, const data::Batch& batch,
                                           uint64_t dropout_seed = 1) {
  const auto losses = trainer.Compute(batch, dropout_seed);
  INFO(losses.status().ToString());
  REQUIRE(losses.ok());
  return *losses;
}

inline std::vector<float> Copy(std::span<const float> values) {
  return {values.begin(), values.end()};
}

inline std::vector<comm::Range> Everything(const train::Trainer& trainer) {
  return {{0, trainer.layout().size}};
}

// What one worker alone does for a step: mean losses and the norm of the mean gradient.
struct StepResult {
  double mlm = 0, sop = 0, norm = 0;
};

inline StepResult LocalStep(train::Trainer& trainer, const train::TrainerOptions& options,
                            const std::vector<data::Batch>& micro_batches, double rate,
                            int64_t update) {
  const double scale = 1.0 / static_cast<double>(micro_batches.size());
  StepResult result;
  trainer.ClearAccumulator();
  for (const data::Batch& batch : micro_batches) {
    const train::MicroBatchLosses losses = MustCompute(trainer, batch);
    result.mlm += losses.mlm * scale;
    result.sop += losses.sop * scale;
  }
  std::ranges::copy(trainer.accumulator(), trainer.reduced().begin());
  const std::vector<comm::Range> all = Everything(trainer);
  result.norm = std::sqrt(trainer.SquaredNorm(all)) * scale;
  const train::UpdateScalars scalars{
      rate, scale, optim::ClipFactor(result.norm, options.optimizer.clip), update};
  trainer.Apply(all, scalars, trainer.Measure(all, scalars));
  return result;
}

}  // namespace starling::testing
