// Prefetching: one thread makes micro-batches before they are asked for. What it prefetches is a
// hint only: Take gives the right batch whatever was requested, and a change of plan replaces the
// list at any moment. Thread-safe. The destructor stops the thread after the batch it is making.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "starling/data/batch.h"
#include "starling/data/micro_batches.h"

namespace starling::data {

class Loader {
 public:
  // Keeps at most `capacity` finished batches that nobody has taken yet (I12). Starts the thread.
  // REQUIRES: capacity > 0.
  static std::unique_ptr<Loader> Create(std::shared_ptr<const MicroBatchSource> source,
                                        size_t capacity);
  virtual ~Loader() = default;

  // Replaces the list of what is made next, in this order. Finished batches that are not in it are
  // dropped. An empty list cancels everything. Does not block.
  virtual void Request(std::vector<MicroBatchId> wanted) = 0;

  // Gives the batch away; blocks until it is made, before everything else that is wanted, if
  // nobody has made it yet. Errors are those of MicroBatchSource::Make, for this batch only.
  virtual absl::StatusOr<Batch> Take(MicroBatchId id) = 0;
};

}  // namespace starling::data
