// Text → token file: what `starling prepare` does. Documents are read by one thread, segmented and
// encoded by `jobs` threads, and written in the order of the input by the caller's thread, so the
// output's bytes do not depend on `jobs`. Bounded memory: about 64 MiB of text is under way at a
// time, and each job keeps up to 40 MiB of words.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "starling/data/tokenizer.h"

namespace starling::data {

struct PrepareOptions {
  std::vector<std::string> inputs;  // files and folders, see text_reader.h
  std::string output;               // path of the token file, usually *.tokens
  int jobs = 0;                     // encoding threads; 0 = one a processor
  double validation_fraction = 0;   // in [0, 1): share of documents for the validation file
  bool skip_bad = false;            // count and skip invalid UTF-8 and JSON instead of stopping
  bool split_lines = true;          // line breaks end sentences; false = only the segmenter's rules

  // A sentence that says what is wrong, or "".
  std::string Validate() const;
};

// "X.validation.tokens" for "X.tokens".
std::string ValidationPath(const std::string& output);

// Whether a document goes to the validation file: by a hash of its id, or of its text when it has
// none, so the choice does not depend on other documents.
bool IsForValidation(std::string_view id, std::string_view text, double fraction);

struct PrepareProgress {
  uint64_t bytes_read = 0;  // of the files on the disk
  uint64_t bytes_total = 0;
  uint64_t documents = 0;  // written so far
  uint64_t tokens = 0;
};

struct PrepareCounts {
  uint64_t documents = 0;
  uint64_t sentences = 0;
  uint64_t tokens = 0;
};

struct PrepareReport {
  PrepareCounts train, validation;
  std::string validation_path;  // "" when no validation file was asked for
  uint64_t bytes_read = 0;
  uint64_t text_bytes = 0;  // of the documents' text
  uint64_t bad = 0;         // documents skipped
  std::string first_bad;    // where and why the first of them was
};

// Called after each written batch, from the thread that called Prepare. False stops: Cancelled.
using PrepareCallback = std::function<bool(const PrepareProgress&)>;

// Tokens of one document: sentences (split at line breaks first if `split_lines`) one after the
// other in `ids`, and the length of each, none of them 0. Both vectors are replaced. Errors as
// Tokenizer::EncodeIds.
absl::Status EncodeDocument(const Tokenizer& tokenizer, std::string_view text, bool split_lines,
                            Tokenizer::Scratch* scratch, std::vector<int32_t>* ids,
                            std::vector<uint32_t>* sentence_lengths);

// Writes options.output and, if asked for, the validation file, each by rename when complete; the
// folder is made if missing. On failure neither is touched, unless the disk fails between the two
// renames. InvalidArgument for options, DataLoss for bad input and for inputs without any text;
// else as TextReader and TokenFileWriter.
absl::StatusOr<PrepareReport> Prepare(const Tokenizer& tokenizer, const PrepareOptions& options,
                                      const PrepareCallback& progress = nullptr);

}  // namespace starling::data
