// Token files (*.tokens): sentences as token ids, cut into documents; what `starling prepare`
// writes and training maps into memory (byte by byte in src/data/token_file_format.h):
//
//   header (128 bytes) | token ids, uint16 or uint32 | sentence offsets, uint64 [sentences + 1]
//   | document offsets, uint64 [documents + 1]          (little-endian; sections start at multiples
//                                                        of 8)
//
// Sentence s is tokens [sentence_offset[s], sentence_offset[s+1]); document d is sentences
// [document_offset[d], document_offset[d+1]). No sentence and no document is empty.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace starling::data {

inline constexpr uint32_t kTokenFileVersion = 1;

// What a token file says about itself.
struct TokenFileInfo {
  uint64_t vocab_size = 0;      // every id is below it
  uint64_t tokenizer_hash = 0;  // of the tokenizer that made the ids
  uint64_t tokens = 0;
  uint64_t sentences = 0;
  uint64_t documents = 0;
  uint32_t header_crc = 0;  // over all the above and the sections' checksums: names the content
};

// Writes a token file in bounded memory, whatever its size: token ids go straight to a temporary
// file beside `path`, offsets to two more that Finish appends. One thread. Without a successful
// Finish nothing appears at `path`, and the destructor removes the temporary files.
class TokenFileWriter {
 public:
  // InvalidArgument for a vocabulary of 0 or above 2^31; else as ErrnoStatus, naming the path.
  static absl::StatusOr<std::unique_ptr<TokenFileWriter>> Create(const std::string& path,
                                                                 uint64_t vocab_size,
                                                                 uint64_t tokenizer_hash);
  virtual ~TokenFileWriter() = default;

  // Appends one document: `sentence_lengths` (tokens of each sentence) cut `ids` up. Sentences of
  // length 0 are left out, and so is a document without tokens. REQUIRES: the lengths add up to
  // ids.size() and 0 <= id < vocab_size (checked; InvalidArgument).
  virtual absl::Status AddDocument(std::span<const int32_t> ids,
                                   std::span<const uint32_t> sentence_lengths) = 0;

  // Completes, syncs and renames the file. No other call may follow.
  virtual absl::Status Finish() = 0;

  virtual const TokenFileInfo& info() const = 0;  // counts so far; header_crc after Finish
};

// A token file mapped read-only. Thread-safe. The file must not be changed while it is mapped;
// replacing it by rename is fine.
class TokenFile {
 public:
  // Trusts nothing, and so reads the whole file once: magic, version, sizes, the checksum of every
  // section, the order of all offsets and that every id is in the vocabulary are checked. DataLoss
  // naming the file, the fault and what to do; NotFound and others from opening it.
  static absl::StatusOr<std::shared_ptr<const TokenFile>> Open(const std::string& path);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;

  const std::string& path() const { return path_; }
  const TokenFileInfo& info() const { return info_; }

  // Offsets as described above; [sentences + 1] and [documents + 1].
  std::span<const uint64_t> sentence_offsets() const { return sentence_offsets_; }
  std::span<const uint64_t> document_offsets() const { return document_offsets_; }

  // Appends the ids of tokens [begin, end) to `out`. REQUIRES: begin <= end <= tokens.
  void AppendIds(uint64_t begin, uint64_t end, std::vector<int32_t>* out) const;

 private:
  explicit TokenFile(std::string path) : path_(std::move(path)) {}
  absl::Status Map();
  absl::Status ParseHeader();
  absl::Status CheckOffsets() const;
  absl::Status CheckData() const;
  absl::Status Corrupt(std::string_view what) const;

  const std::string path_;
  const uint8_t* data_ = nullptr;  // the mapping
  uint64_t bytes_ = 0;
  TokenFileInfo info_;
  uint32_t id_bytes_ = 0;
  uint32_t section_crc_[3] = {0, 0, 0};
  const uint8_t* ids_ = nullptr;
  std::span<const uint64_t> sentence_offsets_;
  std::span<const uint64_t> document_offsets_;
};

// One number for the content of all files, in this order, and their tokenizer: equal on two
// machines exactly when they train on the same data (by checksum).
uint64_t DataHash(std::span<const std::shared_ptr<const TokenFile>> files);

}  // namespace starling::data
