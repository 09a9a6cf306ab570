// Makes a tokenizer of one's own: a Unigram vocabulary trained by SentencePiece, written as a
// tokenizer.json that Tokenizer and Python's `tokenizers` read. Functions; one training at a time
// per process. The same sentences and options give the same bytes, whatever
// the number of cores.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace starling::data {

// The next line of text (valid UTF-8), nothing at the end, or why reading failed.
using SentenceSource = std::function<absl::StatusOr<std::optional<std::string>>()>;

struct TokenizerTrainOptions {
  int32_t vocab_size = 8000;           // all pieces, the five special ones included
  std::string output;                  // path of the tokenizer.json
  bool lowercase = false;              // normalize to lower case
  double character_coverage = 0.9995;  // share of the characters that must not be unknown
  // Most sentences to train on: of more, a sample chosen evenly over all of them is taken (memory
  // is about 15 bytes a byte of text in the sample).
  uint64_t max_sentences = 1'000'000;
  int32_t seed_sentencepiece_size = 1'000'000;  // candidates that training starts from
  // Told now and then how many sentences were read; `done` once, before the training proper.
  std::function<void(uint64_t sentences, bool done)> progress;
};

// Lines of the documents in `inputs` (what TextReader takes). Errors of opening at once, errors of
// reading from the source.
absl::StatusOr<SentenceSource> SentencesOf(const std::vector<std::string>& inputs);

// Trains on all that `source` yields and writes options.output atomically. The file declares Nmt,
// NFKC, [Lowercase,] collapsed spaces, Metaspace, the template [CLS] A [SEP] B [SEP], and the
// special tokens <pad> 0, <unk> 1, [CLS] 2, [SEP] 3, [MASK] 4. Blocks until done (about a minute
// for 25 MB of text). InvalidArgument for impossible options and a vocabulary too
// large or too small for the text (naming the bound); DataLoss for a source without text; errors of
// the source and of writing as they are. Nothing is written on an error.
absl::Status TrainTokenizer(const TokenizerTrainOptions& options, const SentenceSource& source);

}  // namespace starling::data
