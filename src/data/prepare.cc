#include "starling/data/prepare.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "data/fnv1a.h"
#include "starling/base/bounded_queue.h"
#include "starling/base/fs.h"
#include "starling/base/rng.h"
#include "starling/base/status.h"
#include "starling/data/sentences.h"
#include "starling/data/text_reader.h"
#include "starling/data/token_file.h"

namespace starling::data {
namespace {

constexpr uint64_t kBatchBytes = uint64_t{1} << 18;      // text that a job takes at a time
constexpr uint64_t kInFlightBytes = uint64_t{64} << 20;  // text read but not written yet
constexpr size_t kQueueCapacity = 1024;                  // batches; kInFlightBytes binds first

// Documents on their way to a job, and back.
struct TextBatch {
  uint64_t number = 0;
  uint64_t bytes = 0;       // of text
  uint64_t bytes_read = 0;  // of the inputs, once the batch was read
  std::vector<Document> documents;
};

struct EncodedDocument {
  bool validation = false;
  std::vector<int32_t> ids;
  std::vector<uint32_t> sentence_lengths;
};

struct EncodedBatch {
  uint64_t number = 0;
  uint64_t bytes = 0;
  uint64_t bytes_read = 0;
  std::vector<EncodedDocument> documents;
  absl::Status status;
};

// Bytes of text under way. One batch is always let through, however large.
class Allowance {
 public:
  // Blocks until there is room; false once stopped.
  bool Acquire(uint64_t bytes) {
    absl::MutexLock lock(&mutex_);
    const auto has_room = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopped_ || used_ == 0 || used_ + bytes <= kInFlightBytes;
    };
    mutex_.Await(absl::Condition(&has_room));
    used_ += bytes;
    return !stopped_;
  }
  void Release(uint64_t bytes) {
    absl::MutexLock lock(&mutex_);
    used_ -= bytes;
  }
  void Stop() {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }

 private:
  absl::Mutex mutex_;
  uint64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

// The two output files.
class Outputs {
 public:
  static absl::StatusOr<Outputs> Create(const Tokenizer& tokenizer, const PrepareOptions& options) {
    STARLING_RETURN_IF_ERROR(RealFs().MakeDirectories(DirectoryOf(options.output)));
    const auto vocab_size = static_cast<uint64_t>(tokenizer.vocab_size());
    Outputs outputs;
    STARLING_ASSIGN_OR_RETURN(
        outputs.train_, TokenFileWriter::Create(options.output, vocab_size, tokenizer.hash()));
    if (options.validation_fraction > 0) {
      STARLING_ASSIGN_OR_RETURN(
          outputs.validation_,
          TokenFileWriter::Create(ValidationPath(options.output), vocab_size, tokenizer.hash()));
    }
    return outputs;
  }

  absl::Status Add(const EncodedDocument& document) {
    TokenFileWriter& writer = document.validation ? *validation_ : *train_;
    return writer.AddDocument(document.ids, document.sentence_lengths);
  }

  absl::Status Finish() {
    if (validation_ != nullptr) STARLING_RETURN_IF_ERROR(validation_->Finish());
    return train_->Finish();
  }

  PrepareCounts train() const { return Counts(train_.get()); }
  PrepareCounts validation() const { return Counts(validation_.get()); }

 private:
  static PrepareCounts Counts(const TokenFileWriter* writer) {
    if (writer == nullptr) return {};
    return {writer->info().documents, writer->info().sentences, writer->info().tokens};
  }

  std::unique_ptr<TokenFileWriter> train_;
  std::unique_ptr<TokenFileWriter> validation_;  // null when none is asked for
};

// Reader thread → jobs → writer (the caller). Threads are joined before Run returns.
class Pipeline {
 public:
  Pipeline(const Tokenizer& tokenizer, const PrepareOptions& options, TextReader* reader,
           Outputs* outputs)
      : tokenizer_(tokenizer), options_(options), reader_(reader), outputs_(outputs) {}

  absl::Status Run(const PrepareCallback& progress) {
    const int jobs = options_.jobs > 0
                         ? options_.jobs
                         : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    std::thread reading([this] { Read(); });
    std::vector<std::thread> encoding;
    {
      absl::MutexLock lock(&mutex_);
      jobs_running_ = jobs;
    }
    for (int job = 0; job < jobs; ++job) encoding.emplace_back([this] { EncodeBatches(); });
    const absl::Status status = Write(progress);
    allowance_.Stop();
    texts_.Close();
    encoded_.Close();
    reading.join();
    for (std::thread& thread : encoding) thread.join();
    STARLING_RETURN_IF_ERROR(status);
    return read_status_;
  }

  uint64_t text_bytes() const { return text_bytes_; }

 private:
  void Read() {
    TextBatch batch;
    bool more = true;
    while (more) {
      Document document;
      absl::StatusOr<bool> found = reader_->Next(&document);
      if (!found.ok()) read_status_ = found.status();
      more = found.ok() && *found;
      if (more) {
        batch.bytes += document.text.size();
        batch.documents.push_back(std::move(document));
      }
      if (batch.bytes < kBatchBytes && (more || batch.documents.empty())) continue;
      batch.bytes_read = reader_->bytes_read();
      const uint64_t next = batch.number + 1;
      if (!allowance_.Acquire(batch.bytes) || !texts_.Push(std::move(batch))) break;
      batch = TextBatch();
      batch.number = next;
    }
    texts_.Close();
  }

  void EncodeBatches() {
    Tokenizer::Scratch scratch;
    while (std::optional<TextBatch> batch = texts_.Pop()) {
      EncodedBatch encoded{batch->number, batch->bytes, batch->bytes_read, {}, {}};
      for (const Document& document : batch->documents) {
        encoded.documents.emplace_back();
        EncodedDocument& out = encoded.documents.back();
        out.validation = IsForValidation(document.id, document.text, options_.validation_fraction);
        const absl::Status status = EncodeDocument(tokenizer_, document.text, options_.split_lines,
                                                   &scratch, &out.ids, &out.sentence_lengths);
        if (!status.ok()) {
          encoded.status = Annotate(status, absl::StrCat("document \"", document.id, "\""));
          break;
        }
      }
      if (!encoded_.Push(std::move(encoded))) break;
    }
    absl::MutexLock lock(&mutex_);
    if (--jobs_running_ == 0) encoded_.Close();
  }

  // Takes batches in whatever order they come and writes them in that of the input.
  absl::Status Write(const PrepareCallback& progress) {
    std::map<uint64_t, EncodedBatch> waiting;
    uint64_t next = 0;
    while (std::optional<EncodedBatch> batch = encoded_.Pop()) {
      const uint64_t number = batch->number;
      waiting.emplace(number, *std::move(batch));
      for (auto first = waiting.begin(); first != waiting.end() && first->first == next; ++next) {
        STARLING_RETURN_IF_ERROR(WriteBatch(first->second, progress));
        first = waiting.erase(first);
      }
    }
    return absl::OkStatus();
  }

  absl::Status WriteBatch(const EncodedBatch& batch, const PrepareCallback& progress) {
    STARLING_RETURN_IF_ERROR(batch.status);
    for (const EncodedDocument& document : batch.documents) {
      STARLING_RETURN_IF_ERROR(outputs_->Add(document));
    }
    allowance_.Release(batch.bytes);
    text_bytes_ += batch.bytes;
    if (progress == nullptr) return absl::OkStatus();
    const PrepareCounts train = outputs_->train(), validation = outputs_->validation();
    const bool go_on =
        progress({batch.bytes_read, reader_->bytes_total(), train.documents + validation.documents,
                  train.tokens + validation.tokens});
    return go_on ? absl::OkStatus() : absl::CancelledError("prepare was stopped");
  }

  const Tokenizer& tokenizer_;
  const PrepareOptions& options_;
  TextReader* const reader_;  // the reader thread's while it runs
  Outputs* const outputs_;
  Allowance allowance_;
  BoundedQueue<TextBatch> texts_{kQueueCapacity};
  BoundedQueue<EncodedBatch> encoded_{kQueueCapacity};
  absl::Status read_status_;  // written by the reader thread, read after it was joined
  uint64_t text_bytes_ = 0;
  absl::Mutex mutex_;
  int jobs_running_ ABSL_GUARDED_BY(mutex_) = 0;  // the last one closes encoded_
};

absl::Status EncodePart(const Tokenizer& tokenizer, std::string_view part,
                        Tokenizer::Scratch* scratch, std::vector<int32_t>* ids,
                        std::vector<uint32_t>* sentence_lengths) {
  for (const ByteSpan span : SegmentSentences(part)) {
    if (span.begin == span.end) continue;
    const size_t before = ids->size();
    STARLING_RETURN_IF_ERROR(
        tokenizer.EncodeIds(part.substr(span.begin, span.end - span.begin), scratch, ids));
    if (ids->size() > before) {
      sentence_lengths->push_back(static_cast<uint32_t>(ids->size() - before));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string PrepareOptions::Validate() const {
  if (inputs.empty()) return "no input files given";
  if (output.empty()) return "no output file given";
  if (jobs < 0 || jobs > 1024) return absl::StrCat("jobs is ", jobs, ": expected 0 to 1024");
  if (!(validation_fraction >= 0 && validation_fraction < 1)) {
    return absl::StrCat("validation fraction is ", validation_fraction,
                        ": expected at least 0 and below 1");
  }
  return "";
}

std::string ValidationPath(const std::string& output) {
  std::string stem = output;
  if (absl::EndsWith(stem, ".tokens")) stem.resize(stem.size() - 7);
  return stem + ".validation.tokens";
}

bool IsForValidation(std::string_view id, std::string_view text, double fraction) {
  return fraction > 0 && ToUnit(Mix64(Fnv1a(id.empty() ? text : id))) < fraction;
}

absl::Status EncodeDocument(const Tokenizer& tokenizer, std::string_view text, bool split_lines,
                            Tokenizer::Scratch* scratch, std::vector<int32_t>* ids,
                            std::vector<uint32_t>* sentence_lengths) {
  ids->clear();
  sentence_lengths->clear();
  if (!split_lines) return EncodePart(tokenizer, text, scratch, ids, sentence_lengths);
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of("\r\n"), text.size());
    STARLING_RETURN_IF_ERROR(
        EncodePart(tokenizer, text.substr(0, end), scratch, ids, sentence_lengths));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<PrepareReport> Prepare(const Tokenizer& tokenizer, const PrepareOptions& options,
                                      const PrepareCallback& progress) {
  if (const std::string fault = options.Validate(); !fault.empty()) {
    return absl::InvalidArgumentError(fault);
  }
  STARLING_ASSIGN_OR_RETURN(auto reader, TextReader::Open({options.inputs, options.skip_bad}));
  STARLING_ASSIGN_OR_RETURN(Outputs outputs, Outputs::Create(tokenizer, options));
  Pipeline pipeline(tokenizer, options, reader.get(), &outputs);
  STARLING_RETURN_IF_ERROR(pipeline.Run(progress));
  PrepareReport report;
  report.train = outputs.train();
  report.validation = outputs.validation();
  report.bytes_read = reader->bytes_read();
  report.text_bytes = pipeline.text_bytes();
  report.bad = reader->bad();
  report.first_bad = reader->first_bad();
  if (report.train.documents == 0) {
    return absl::DataLossError(
        absl::StrCat("the inputs hold no text to train on (", report.validation.documents,
                     " documents for validation, ", report.bad, " bad ones skipped)"));
  }
  if (options.validation_fraction > 0) report.validation_path = ValidationPath(options.output);
  STARLING_RETURN_IF_ERROR(outputs.Finish());
  return report;
}

}  // namespace starling::data
