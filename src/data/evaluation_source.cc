#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/row_maker.h"
#include "starling/base/status.h"
#include "starling/data/micro_batches.h"

namespace starling::data {
namespace {

// Stands for the step in the addresses of evaluation draws; no training step gets there.
constexpr uint64_t kEvaluationStep = ~uint64_t{0};

class FixedSource final : public EvaluationSource {
 public:
  FixedSource(std::shared_ptr<const Corpus> corpus, MicroBatchOptions options)
      : options_(std::move(options)),
        rows_(options_),
        table_(std::move(corpus), options_.lengths.front().length, options_.short_documents) {}

  absl::StatusOr<Batch> Make(MicroBatchId id) const override {
    if (id.step != 0 || id.index < 0 || id.index >= batches()) {
      return absl::OutOfRangeError(
          absl::StrCat("evaluation batch ", id.index, " does not exist: there are ", batches()));
    }
    const uint64_t begin = static_cast<uint64_t>(id.index) * options_.micro_batch;
    const uint64_t end = std::min(begin + options_.micro_batch, table_.size());
    std::vector<MaskedInstance> rows;
    for (uint64_t chunk = begin; chunk < end; ++chunk) {
      rows.push_back(rows_.Make(table_, chunk,
                                {.seed = options_.seed,
                                 .step = kEvaluationStep,
                                 .micro_batch = static_cast<uint32_t>(chunk >> 32),
                                 .row = static_cast<uint32_t>(chunk)}));
    }
    Batch batch = PadRows(rows, options_, table_.length());
    batch.sample_first = static_cast<int64_t>(begin);
    return batch;
  }

  int64_t batches() const override {
    return static_cast<int64_t>((table_.size() + options_.micro_batch - 1) / options_.micro_batch);
  }
  int64_t samples() const override { return static_cast<int64_t>(table_.size()); }

 private:
  const MicroBatchOptions options_;
  const RowMaker rows_;
  const ChunkTable table_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<EvaluationSource>> EvaluationSource::Create(
    std::shared_ptr<const Corpus> corpus, MicroBatchOptions options) {
  STARLING_RETURN_IF_ERROR(ValidateOptions(options, *corpus));
  auto source = std::make_unique<FixedSource>(std::move(corpus), std::move(options));
  if (source->samples() == 0) {
    return absl::InvalidArgumentError("the validation data holds no usable text");
  }
  return source;
}

}  // namespace starling::data
