#include "starling/data/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "data/token_file_format.h"
#include "starling/base/crc32c.h"
#include "starling/base/log.h"
#include "starling/base/rng.h"
#include "starling/base/status.h"

namespace starling::data {
namespace {

// Ids that are looked at together: few enough to stay in the cache for the second look.
constexpr uint64_t kBlock = uint64_t{1} << 16;

// Whether offsets start at 0, end at `total` and grow strictly.
bool AreOffsets(std::span<const uint64_t> offsets, uint64_t total) {
  if (offsets.front() != 0 || offsets.back() != total) return false;
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] <= offsets[i - 1]) return false;
  }
  return true;
}

template <typename Id>
uint64_t LargestId(const uint8_t* ids, uint64_t count) {
  const Id* begin = reinterpret_cast<const Id*>(ids);
  Id largest = 0;
  for (uint64_t i = 0; i < count; ++i) largest = std::max(largest, begin[i]);
  return largest;
}

}  // namespace

absl::Status TokenFile::Corrupt(std::string_view what) const {
  return absl::DataLossError(absl::StrCat("token file ", path_, ": ", std::string(what),
                                          "; make it again with `starling prepare`"));
}

absl::StatusOr<std::shared_ptr<const TokenFile>> TokenFile::Open(const std::string& path) {
  std::shared_ptr<TokenFile> file(new TokenFile(path));
  STARLING_RETURN_IF_ERROR(file->Map());
  STARLING_RETURN_IF_ERROR(file->ParseHeader());
  STARLING_RETURN_IF_ERROR(file->CheckOffsets());
  STARLING_RETURN_IF_ERROR(file->CheckData());
  return file;
}

TokenFile::~TokenFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), bytes_);
}

absl::Status TokenFile::Map() {
  const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot open token file ", path_));
  struct stat info;
  if (fstat(fd, &info) != 0) {
    const int error = errno;
    close(fd);
    return ErrnoStatus(error, absl::StrCat("cannot stat token file ", path_));
  }
  bytes_ = static_cast<uint64_t>(info.st_size);
  if (!S_ISREG(info.st_mode) || bytes_ < sizeof(TokenFileHeader)) {
    close(fd);
    return Corrupt(absl::StrCat("not a token file (", bytes_, " bytes are less than its header)"));
  }
  void* mapping = mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  if (mapping == MAP_FAILED) return ErrnoStatus(error, absl::StrCat("cannot map ", path_));
  data_ = static_cast<const uint8_t*>(mapping);
  return absl::OkStatus();
}

absl::Status TokenFile::ParseHeader() {
  TokenFileHeader header;
  std::memcpy(&header, data_, sizeof(header));
  if (std::memcmp(header.magic, kTokenFileMagic, sizeof(header.magic)) != 0) {
    return Corrupt("not a token file (wrong magic bytes)");
  }
  if (header.version != kTokenFileVersion) {
    return Corrupt(absl::StrCat("format version ", header.version, ", this build reads version ",
                                kTokenFileVersion));
  }
  if (header.header_crc != Crc32c(&header, offsetof(TokenFileHeader, header_crc))) {
    return Corrupt("the checksum of the header is wrong");
  }
  // The bound on each count keeps the sum below from overflowing.
  constexpr uint64_t bound = uint64_t{1} << 56;
  if (header.vocab_size == 0 || header.vocab_size > (uint64_t{1} << 31) ||
      header.id_bytes != IdBytesFor(header.vocab_size) || header.tokens > bound ||
      header.sentences > bound || header.documents > bound) {
    return Corrupt("the header contradicts itself");
  }
  const uint64_t ids_bytes = header.tokens * header.id_bytes;
  const uint64_t sentences_at = sizeof(header) + ids_bytes + PaddingAfter(ids_bytes);
  const uint64_t documents_at = sentences_at + (header.sentences + 1) * sizeof(uint64_t);
  const uint64_t end = documents_at + (header.documents + 1) * sizeof(uint64_t);
  if (end != bytes_) {
    return Corrupt(absl::StrCat("it has ", bytes_, " bytes where its header asks for ", end,
                                bytes_ < end ? " (cut off)" : ""));
  }
  info_ = {header.vocab_size, header.tokenizer_hash, header.tokens,
           header.sentences,  header.documents,      header.header_crc};
  id_bytes_ = header.id_bytes;
  section_crc_[0] = header.ids_crc;
  section_crc_[1] = header.sentence_offsets_crc;
  section_crc_[2] = header.document_offsets_crc;
  ids_ = data_ + sizeof(header);
  sentence_offsets_ = {reinterpret_cast<const uint64_t*>(data_ + sentences_at),
                       static_cast<size_t>(header.sentences + 1)};
  document_offsets_ = {reinterpret_cast<const uint64_t*>(data_ + documents_at),
                       static_cast<size_t>(header.documents + 1)};
  return absl::OkStatus();
}

absl::Status TokenFile::CheckOffsets() const {
  if (Crc32c(sentence_offsets_.data(), sentence_offsets_.size_bytes()) != section_crc_[1] ||
      !AreOffsets(sentence_offsets_, info_.tokens)) {
    return Corrupt("the sentence offsets are damaged");
  }
  if (Crc32c(document_offsets_.data(), document_offsets_.size_bytes()) != section_crc_[2] ||
      !AreOffsets(document_offsets_, info_.sentences)) {
    return Corrupt("the document offsets are damaged");
  }
  return absl::OkStatus();
}

absl::Status TokenFile::CheckData() const {
  uint64_t largest = 0;
  uint32_t crc = 0;
  for (uint64_t first = 0; first < info_.tokens; first += kBlock) {
    const uint64_t count = std::min(kBlock, info_.tokens - first);
    const uint8_t* ids = ids_ + first * id_bytes_;
    crc = Crc32c(ids, count * id_bytes_, crc);
    largest = std::max(largest, id_bytes_ == 2 ? LargestId<uint16_t>(ids, count)
                                               : LargestId<uint32_t>(ids, count));
  }
  if (crc != section_crc_[0]) return Corrupt("the checksum of the token ids is wrong");
  const uint8_t* padding = ids_ + info_.tokens * id_bytes_;
  const uint64_t padding_bytes = PaddingAfter(info_.tokens * id_bytes_);
  if (std::any_of(padding, padding + padding_bytes, [](uint8_t byte) { return byte != 0; })) {
    return Corrupt("bytes between its sections are not zero");
  }
  if (info_.tokens > 0 && largest >= info_.vocab_size) {
    return Corrupt(
        absl::StrCat("token id ", largest, " is outside its vocabulary of ", info_.vocab_size));
  }
  return absl::OkStatus();
}

void TokenFile::AppendIds(uint64_t begin, uint64_t end, std::vector<int32_t>* out) const {
  STARLING_CHECK(begin <= end && end <= info_.tokens)
      << path_ << " tokens " << begin << " to " << end;
  if (id_bytes_ == 2) {
    const uint16_t* ids = reinterpret_cast<const uint16_t*>(ids_);
    out->insert(out->end(), ids + begin, ids + end);
  } else {
    const uint32_t* ids = reinterpret_cast<const uint32_t*>(ids_);
    out->insert(out->end(), ids + begin, ids + end);
  }
}

uint64_t DataHash(std::span<const std::shared_ptr<const TokenFile>> files) {
  uint64_t hash = Mix64(files.size());
  for (const auto& file : files) {
    const TokenFileInfo& info = file->info();
    for (const uint64_t word : {uint64_t{info.header_crc}, info.tokenizer_hash, info.vocab_size,
                                info.tokens, info.sentences, info.documents}) {
      hash = Mix64(hash ^ word);
    }
  }
  return hash;
}

}  // namespace starling::data
