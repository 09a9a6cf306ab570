#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "data/row_maker.h"
#include "starling/base/status.h"
#include "starling/data/micro_batches.h"
#include "starling/data/permutation.h"

namespace starling::data {
namespace {

// Chunk tables by length. Tables are large: only the two used last are kept (prefetching straddles
// a change of length), the sizes of all.
class ChunkTables {
 public:
  ChunkTables(std::shared_ptr<const Corpus> corpus, ShortDocuments short_documents)
      : corpus_(std::move(corpus)), short_documents_(short_documents) {}

  std::shared_ptr<const ChunkTable> Get(uint64_t length) {
    absl::MutexLock lock(&mutex_);
    for (size_t i = 0; i < recent_.size(); ++i) {
      if (recent_[i]->length() != length) continue;
      std::rotate(recent_.begin(), recent_.begin() + static_cast<std::ptrdiff_t>(i),
                  recent_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      return recent_.front();
    }
    auto table = std::make_shared<const ChunkTable>(corpus_, length, short_documents_);
    recent_.insert(recent_.begin(), table);
    if (recent_.size() > 2) recent_.pop_back();
    sizes_[length] = table->size();
    return table;
  }

  uint64_t SizeAt(uint64_t length) {
    {
      absl::MutexLock lock(&mutex_);
      const auto known = sizes_.find(length);
      if (known != sizes_.end()) return known->second;
    }
    return Get(length)->size();
  }

 private:
  const std::shared_ptr<const Corpus> corpus_;
  const ShortDocuments short_documents_;
  absl::Mutex mutex_;
  std::vector<std::shared_ptr<const ChunkTable>> recent_ ABSL_GUARDED_BY(mutex_);  // newest first
  std::map<uint64_t, uint64_t> sizes_ ABSL_GUARDED_BY(mutex_);
};

class TrainingSource final : public MicroBatchSource {
 public:
  TrainingSource(std::shared_ptr<const Corpus> corpus, MicroBatchOptions options)
      : options_(std::move(options)),
        rows_(options_),
        tables_(std::move(corpus), options_.short_documents) {}

  absl::StatusOr<Batch> Make(MicroBatchId id) const override {
    if (id.step < 0 || id.index < 0 || static_cast<uint64_t>(id.index) >= options_.micro_batches) {
      return absl::OutOfRangeError(absl::StrCat("micro-batch ", id.index, " of step ", id.step,
                                                " does not exist: a step has ",
                                                options_.micro_batches));
    }
    const size_t current = ChangeAt(options_.lengths, id.step);
    STARLING_ASSIGN_OR_RETURN(const std::vector<uint64_t> counts, ChunkCounts(current));
    const auto table = tables_.Get(options_.lengths[current].length);
    const uint64_t samples_per_step = options_.micro_batches * options_.micro_batch;
    std::vector<MaskedInstance> rows;
    for (uint64_t row = 0; row < options_.micro_batch; ++row) {
      const uint64_t sample = static_cast<uint64_t>(id.index) * options_.micro_batch + row;
      const SamplePosition at =
          PositionOf(options_.lengths, counts, samples_per_step, id.step, sample);
      const Permutation order(options_.seed, at.pass, table->size());
      rows.push_back(rows_.Make(*table, order(at.offset),
                                {.seed = options_.seed,
                                 .step = static_cast<uint64_t>(id.step),
                                 .micro_batch = static_cast<uint32_t>(id.index),
                                 .row = static_cast<uint32_t>(row)}));
    }
    Batch batch = PadRows(rows, options_, table->length());
    batch.sample_first = id.step * static_cast<int64_t>(samples_per_step) +
                         id.index * static_cast<int64_t>(options_.micro_batch);
    return batch;
  }

  // Sizes of the chunk tables of changes 0..last.
  absl::StatusOr<std::vector<uint64_t>> ChunkCounts(size_t last) const {
    std::vector<uint64_t> counts;
    for (size_t c = 0; c <= last; ++c) {
      counts.push_back(tables_.SizeAt(options_.lengths[c].length));
      if (counts.back() == 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the training data holds no usable text at sequence length ",
            options_.lengths[c].length,
            options_.short_documents == ShortDocuments::kDiscard
                ? ": every chunk is a single sentence, and data.short_documents is discard"
                : ": its token files are empty"));
      }
    }
    return counts;
  }

 private:
  const MicroBatchOptions options_;
  const RowMaker rows_;
  mutable ChunkTables tables_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MicroBatchSource>> MakeTrainingSource(
    std::shared_ptr<const Corpus> corpus, MicroBatchOptions options) {
  STARLING_RETURN_IF_ERROR(ValidateOptions(options, *corpus));
  if (options.micro_batches == 0 || options.micro_batches > UINT32_MAX ||
      options.micro_batch > UINT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat(options.micro_batches, " micro-batches of ",
                                                   options.micro_batch,
                                                   " samples: both must be in 1 to 2^32 - 1"));
  }
  auto source = std::make_unique<TrainingSource>(std::move(corpus), std::move(options));
  STARLING_RETURN_IF_ERROR(source->ChunkCounts(0).status());
  return source;
}

}  // namespace starling::data
