// What a config means in numbers: size of the model, memory, traffic, work and waiting times. Pure;
// `starling validate` prints it. Bytes are exact, formulas those of protocol.md §4.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "starling/config/config.h"

namespace starling::config {

// One size of the group.
struct WorkersRow {
  int64_t workers = 0;
  int64_t memory_bytes = 0;        // a worker's parameters, accumulator, sums and moments
  int64_t sent_bytes = 0;          // by a worker in a step: 2(n−1)/n of the gradient
  int64_t most_micro_batches = 0;  // a worker's share of a step when all are equally fast
};

struct Summary {
  int64_t parameters = 0;           // distinct values, Ψ: stored, trained and sent
  int64_t unrolled_parameters = 0;  // the same with every use of a shared matrix counted
  int64_t micro_batches = 0;        // of a step, M
  int64_t samples = 0;              // of the whole run
  int64_t tokens = 0;               // of the whole run, padding included: an upper bound
  int64_t snapshot_bytes = 0;       // on top of a worker's memory while a checkpoint is written
  std::vector<WorkersRow> rows;     // for every size from min_workers to max_workers
};

// REQUIRES: a config without problems.
Summary Summarize(const Config& config);

// The summary with the derived waiting times as lines of text for people.
std::string Explain(const Config& config);

}  // namespace starling::config
