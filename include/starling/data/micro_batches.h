// Micro-batches by their address: the source of training data and that of evaluation. Both are pure
// functions of token files, options and address, so every worker makes the same batch for the same
// (step, micro-batch), in any order. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "starling/data/batch.h"
#include "starling/data/chunks.h"
#include "starling/data/masking.h"
#include "starling/data/position.h"
#include "starling/data/tokenizer.h"

namespace starling::data {

enum class Objective {
  kMlmSop,  // masked words and sentence order
  kMlm,     // masked words; each sample is one text [CLS] chunk [SEP]
};

struct MicroBatchOptions {
  uint64_t seed = 0;
  Objective objective = Objective::kMlmSop;
  ShortDocuments short_documents = ShortDocuments::kKeep;
  WordGroupRule word_groups = WordGroupRule::kReference;
  double mask_probability = 0.15;     // in (0, 1]
  uint64_t micro_batch = 0;           // rows
  uint64_t micro_batches = 0;         // M: micro-batches of a step; evaluation ignores it
  uint64_t pad_to_multiple = 128;     // rows are padded to a multiple of it, at most to the length
  std::vector<LengthChange> lengths;  // see position.h; evaluation uses no other than the first
  // Of the tokenizer that the token files were prepared with; see SetTokenizer.
  uint64_t tokenizer_hash = 0;
  SpecialIds special;
  std::vector<std::string> pieces;  // by id; as many as the vocabulary has
};

// Fills the last three fields of `options`.
void SetTokenizer(const Tokenizer& tokenizer, MicroBatchOptions* options);

// (step, i): micro-batch i of step `step`.
struct MicroBatchId {
  int64_t step = 0;
  int64_t index = 0;
  auto operator<=>(const MicroBatchId&) const = default;
};

class MicroBatchSource {
 public:
  virtual ~MicroBatchSource() = default;
  // OutOfRange for an address that does not exist. Takes milliseconds; the first call at a new
  // sequence length also makes the chunk table (about a second per 10^9 tokens).
  virtual absl::StatusOr<Batch> Make(MicroBatchId id) const = 0;
};

// Training: sequences, sentence pairs and masks by Draw(seed, step, index, row, …), order by a
// permutation per pass (position.h). Batch::sample_first = (step·M + index)·micro_batch.
// InvalidArgument for options that contradict each other or the corpus, and when no chunk of the
// corpus can be used.
absl::StatusOr<std::unique_ptr<MicroBatchSource>> MakeTrainingSource(
    std::shared_ptr<const Corpus> corpus, MicroBatchOptions options);

// Evaluation: every chunk of the corpus once, in the order of the text; pairs and masks depend on
// `seed` and the chunk alone, so they are the same at every evaluation and for every batch size.
// Address (0, index) with index in [0, batches()).
class EvaluationSource : public MicroBatchSource {
 public:
  static absl::StatusOr<std::unique_ptr<EvaluationSource>> Create(
      std::shared_ptr<const Corpus> corpus, MicroBatchOptions options);
  virtual int64_t batches() const = 0;  // the last one may have fewer rows
  virtual int64_t samples() const = 0;
};

}  // namespace starling::data
