#include "starling/data/chunks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "starling/base/log.h"
#include "starling/base/status.h"

namespace starling::data {
namespace {

// The one place that knows where a chunk ends: calls `emit(first, count)` for each chunk of the
// sentences [begin, end), whose lengths `length_of` tells.
template <typename LengthOf, typename Emit>
void Cut(uint64_t begin, uint64_t end, uint64_t length, LengthOf length_of, Emit emit) {
  uint64_t first = begin, sum = 0;
  for (uint64_t s = begin; s < end; ++s) {
    sum += length_of(s);
    if (sum < length && s + 1 < end) continue;
    emit(first, static_cast<uint32_t>(s + 1 - first));
    first = s + 1;
    sum = 0;
  }
}

}  // namespace

std::vector<SentenceRange> CutDocument(std::span<const uint32_t> sentence_lengths,
                                       uint64_t length) {
  std::vector<SentenceRange> chunks;
  Cut(
      0, sentence_lengths.size(), length, [&](uint64_t s) { return sentence_lengths[s]; },
      [&](uint64_t first, uint32_t count) {
        chunks.push_back({first, count});
      });
  return chunks;
}

absl::StatusOr<std::shared_ptr<const Corpus>> Corpus::Create(
    std::vector<std::shared_ptr<const TokenFile>> files) {
  if (files.empty()) return absl::InvalidArgumentError("no token files given");
  const TokenFile& first = *files.front();
  for (const auto& file : files) {
    if (file->info().vocab_size != first.info().vocab_size ||
        file->info().tokenizer_hash != first.info().tokenizer_hash) {
      return absl::InvalidArgumentError(
          absl::StrCat("token files ", first.path(), " (vocabulary ", first.info().vocab_size,
                       ") and ", file->path(), " (vocabulary ", file->info().vocab_size,
                       ") were made with different tokenizers: prepare both with one"));
    }
  }
  return std::shared_ptr<const Corpus>(new Corpus(std::move(files)));
}

absl::StatusOr<std::shared_ptr<const Corpus>> Corpus::Open(std::span<const std::string> paths) {
  std::vector<std::shared_ptr<const TokenFile>> files;
  for (const std::string& path : paths) {
    STARLING_ASSIGN_OR_RETURN(auto file, TokenFile::Open(path));
    files.push_back(std::move(file));
  }
  return Create(std::move(files));
}

uint64_t Corpus::tokens() const {
  uint64_t sum = 0;
  for (const auto& file : files_) sum += file->info().tokens;
  return sum;
}

uint64_t Corpus::DataHash() const { return data::DataHash(files_); }

ChunkTable::ChunkTable(std::shared_ptr<const Corpus> corpus, uint64_t length,
                       ShortDocuments short_documents)
    : corpus_(std::move(corpus)), length_(length) {
  STARLING_CHECK(length > 0);
  for (const auto& file : corpus_->files()) {
    AddFile(*file, short_documents);
    file_end_.push_back(first_sentence_.size());
  }
  first_sentence_.shrink_to_fit();
  count_.shrink_to_fit();
}

void ChunkTable::AddFile(const TokenFile& file, ShortDocuments short_documents) {
  const auto sentences = file.sentence_offsets();
  const auto documents = file.document_offsets();
  for (size_t d = 0; d + 1 < documents.size(); ++d) {
    Cut(
        documents[d], documents[d + 1], length_,
        [&](uint64_t s) { return sentences[s + 1] - sentences[s]; },
        [&](uint64_t first, uint32_t count) {
          if (count == 1 && short_documents == ShortDocuments::kDiscard) return;
          first_sentence_.push_back(first);
          count_.push_back(count);
        });
  }
}

void ChunkTable::Read(uint64_t index, std::vector<int32_t>* ids,
                      std::vector<uint32_t>* sentence_lengths) const {
  STARLING_CHECK(index < size()) << "chunk " << index << " of " << size();
  const size_t f = std::upper_bound(file_end_.begin(), file_end_.end(), index) - file_end_.begin();
  const TokenFile& file = *corpus_->files()[f];
  const auto offsets = file.sentence_offsets().subspan(first_sentence_[index], count_[index] + 1);
  ids->clear();
  sentence_lengths->clear();
  file.AppendIds(offsets.front(), offsets.back(), ids);
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    sentence_lengths->push_back(static_cast<uint32_t>(offsets[s + 1] - offsets[s]));
  }
}

}  // namespace starling::data
