// Chunks: runs of sentences of one document that make one training sample each. The table is a pure
// function of the token files and the sequence length. Thread-safe once made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "starling/data/token_file.h"

namespace starling::data {

// What becomes of a chunk of one sentence, which has no sentence order.
enum class ShortDocuments {
  kKeep,     // a sample without sentence-order label
  kDiscard,  // none, as the reference does
};

// Sentences [first, first + count) of a document, or of a token file.
struct SentenceRange {
  uint64_t first = 0;
  uint32_t count = 0;
  bool operator==(const SentenceRange&) const = default;
};

// Cuts one document (model.md §3.2): sentences are appended until the sum of their lengths, in
// tokens without special ones, reaches `length` or the document ends; chunks do not overlap. All
// chunks are given, those of one sentence too. REQUIRES: length > 0.
std::vector<SentenceRange> CutDocument(std::span<const uint32_t> sentence_lengths, uint64_t length);

// The token files of a run in their order. All of one tokenizer.
class Corpus {
 public:
  // InvalidArgument, naming two files, when vocabulary size or tokenizer hash differ, and for an
  // empty list.
  static absl::StatusOr<std::shared_ptr<const Corpus>> Create(
      std::vector<std::shared_ptr<const TokenFile>> files);

  // Opens (see TokenFile::Open) and joins them.
  static absl::StatusOr<std::shared_ptr<const Corpus>> Open(std::span<const std::string> paths);

  std::span<const std::shared_ptr<const TokenFile>> files() const { return files_; }
  uint64_t vocab_size() const { return files_.front()->info().vocab_size; }
  uint64_t tokenizer_hash() const { return files_.front()->info().tokenizer_hash; }
  uint64_t tokens() const;
  // See starling::data::DataHash.
  uint64_t DataHash() const;

 private:
  explicit Corpus(std::vector<std::shared_ptr<const TokenFile>> files) : files_(std::move(files)) {}
  const std::vector<std::shared_ptr<const TokenFile>> files_;
};

// All chunks of a corpus at one length, in the order of the text: 12 bytes of memory each.
class ChunkTable {
 public:
  // REQUIRES: length > 0.
  ChunkTable(std::shared_ptr<const Corpus> corpus, uint64_t length, ShortDocuments short_documents);

  uint64_t size() const { return first_sentence_.size(); }
  uint64_t length() const { return length_; }

  // Token ids of chunk `index` and the number of tokens of each of its sentences; both vectors are
  // replaced. REQUIRES: index < size().
  void Read(uint64_t index, std::vector<int32_t>* ids,
            std::vector<uint32_t>* sentence_lengths) const;

 private:
  void AddFile(const TokenFile& file, ShortDocuments short_documents);

  const std::shared_ptr<const Corpus> corpus_;
  const uint64_t length_;
  std::vector<uint64_t> first_sentence_;  // within its file
  std::vector<uint32_t> count_;           // sentences
  std::vector<uint64_t> file_end_;        // chunks in files 0..f together
};

}  // namespace starling::data
