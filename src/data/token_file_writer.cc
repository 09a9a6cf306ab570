#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/token_file_format.h"
#include "starling/base/crc32c.h"
#include "starling/base/fs.h"
#include "starling/base/status.h"
#include "starling/data/token_file.h"

namespace starling::data {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

// A temporary file with a write buffer and a running checksum; removed by the destructor unless
// renamed.
class SpillFile {
 public:
  explicit SpillFile(std::string path) : path_(std::move(path)) {}
  ~SpillFile() {
    if (fd_ < 0) return;
    close(fd_);
    if (!renamed_) unlink(path_.c_str());
  }
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  absl::Status Create() {
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return fd_ >= 0 ? absl::OkStatus() : Failed("create");
  }

  absl::Status Append(const void* data, size_t bytes) {
    crc_ = Crc32c(data, bytes, crc_);
    return AppendUnsummed(data, bytes);
  }

  // Padding and sections with a checksum of their own.
  absl::Status AppendUnsummed(const void* data, size_t bytes) {
    buffer_.append(static_cast<const char*>(data), bytes);
    return buffer_.size() >= kBufferBytes ? Flush() : absl::OkStatus();
  }

  absl::Status AppendFile(SpillFile* other) {
    STARLING_RETURN_IF_ERROR(other->Flush());
    std::string piece(kBufferBytes, '\0');
    for (off_t at = 0;;) {
      const ssize_t got = pread(other->fd_, piece.data(), piece.size(), at);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return other->Failed("read");
      if (got == 0) return absl::OkStatus();
      STARLING_RETURN_IF_ERROR(AppendUnsummed(piece.data(), static_cast<size_t>(got)));
      at += got;
    }
  }

  absl::Status Flush() {
    for (size_t done = 0; done < buffer_.size();) {
      const ssize_t wrote = write(fd_, buffer_.data() + done, buffer_.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return Failed("write");
      done += static_cast<size_t>(wrote);
    }
    buffer_.clear();
    return absl::OkStatus();
  }

  absl::Status WriteAtStart(const void* data, size_t bytes) {
    const ssize_t wrote = pwrite(fd_, data, bytes, 0);
    return wrote == static_cast<ssize_t>(bytes) ? absl::OkStatus() : Failed("write");
  }

  absl::Status SyncAndRename(const std::string& to) {
    if (fsync(fd_) != 0) return Failed("sync");
    STARLING_RETURN_IF_ERROR(RealFs().Rename(path_, to));
    renamed_ = true;
    return RealFs().SyncDirectory(DirectoryOf(to));
  }

  uint32_t crc() const { return crc_; }

 private:
  absl::Status Failed(std::string_view action) const {
    return ErrnoStatus(errno, absl::StrCat("cannot ", std::string(action), " ", path_));
  }

  const std::string path_;
  int fd_ = -1;
  bool renamed_ = false;
  std::string buffer_;
  uint32_t crc_ = 0;
};

class StreamingWriter final : public TokenFileWriter {
 public:
  StreamingWriter(const std::string& path, uint64_t vocab_size, uint64_t tokenizer_hash)
      : path_(path),
        main_(absl::StrCat(path, ".tmp.", getpid())),
        sentences_(absl::StrCat(path, ".tmp.", getpid(), ".sentences")),
        documents_(absl::StrCat(path, ".tmp.", getpid(), ".documents")),
        id_bytes_(IdBytesFor(vocab_size)) {
    info_.vocab_size = vocab_size;
    info_.tokenizer_hash = tokenizer_hash;
  }

  absl::Status Start() {
    STARLING_RETURN_IF_ERROR(main_.Create());
    STARLING_RETURN_IF_ERROR(sentences_.Create());
    STARLING_RETURN_IF_ERROR(documents_.Create());
    const TokenFileHeader empty{};
    STARLING_RETURN_IF_ERROR(main_.AppendUnsummed(&empty, sizeof(empty)));
    const uint64_t zero = 0;
    STARLING_RETURN_IF_ERROR(sentences_.Append(&zero, sizeof(zero)));
    return documents_.Append(&zero, sizeof(zero));
  }

  absl::Status AddDocument(std::span<const int32_t> ids,
                           std::span<const uint32_t> sentence_lengths) override {
    STARLING_RETURN_IF_ERROR(Check(ids, sentence_lengths));
    if (ids.empty()) return absl::OkStatus();
    STARLING_RETURN_IF_ERROR(AddIds(ids));
    for (const uint32_t length : sentence_lengths) {
      if (length == 0) continue;
      info_.tokens += length;
      ++info_.sentences;
      STARLING_RETURN_IF_ERROR(sentences_.Append(&info_.tokens, sizeof(info_.tokens)));
    }
    ++info_.documents;
    return documents_.Append(&info_.sentences, sizeof(info_.sentences));
  }

  absl::Status Finish() override {
    const uint64_t zero = 0;
    STARLING_RETURN_IF_ERROR(main_.AppendUnsummed(&zero, PaddingAfter(info_.tokens * id_bytes_)));
    STARLING_RETURN_IF_ERROR(main_.AppendFile(&sentences_));
    STARLING_RETURN_IF_ERROR(main_.AppendFile(&documents_));
    STARLING_RETURN_IF_ERROR(main_.Flush());
    const TokenFileHeader header = MakeHeader();
    info_.header_crc = header.header_crc;
    STARLING_RETURN_IF_ERROR(main_.WriteAtStart(&header, sizeof(header)));
    return main_.SyncAndRename(path_);
  }

  const TokenFileInfo& info() const override { return info_; }

 private:
  absl::Status Check(std::span<const int32_t> ids, std::span<const uint32_t> lengths) const {
    const uint64_t sum = std::accumulate(lengths.begin(), lengths.end(), uint64_t{0});
    if (sum != ids.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("sentence lengths add up to ", sum, ", not to ", ids.size(), " ids"));
    }
    for (const int32_t id : ids) {
      if (id < 0 || static_cast<uint64_t>(id) >= info_.vocab_size) {
        return absl::InvalidArgumentError(
            absl::StrCat("token id ", id, " is outside a vocabulary of ", info_.vocab_size));
      }
    }
    return absl::OkStatus();
  }

  absl::Status AddIds(std::span<const int32_t> ids) {
    if (id_bytes_ == 4) return main_.Append(ids.data(), ids.size_bytes());
    const std::vector<uint16_t> narrow(ids.begin(), ids.end());
    return main_.Append(narrow.data(), narrow.size() * sizeof(uint16_t));
  }

  TokenFileHeader MakeHeader() const {
    TokenFileHeader header{};
    std::memcpy(header.magic, kTokenFileMagic, sizeof(header.magic));
    header.version = kTokenFileVersion;
    header.id_bytes = id_bytes_;
    header.vocab_size = info_.vocab_size;
    header.tokenizer_hash = info_.tokenizer_hash;
    header.tokens = info_.tokens;
    header.sentences = info_.sentences;
    header.documents = info_.documents;
    header.ids_crc = main_.crc();
    header.sentence_offsets_crc = sentences_.crc();
    header.document_offsets_crc = documents_.crc();
    header.header_crc = Crc32c(&header, offsetof(TokenFileHeader, header_crc));
    return header;
  }

  const std::string path_;
  SpillFile main_;       // header and token ids, in the end everything
  SpillFile sentences_;  // sentence offsets
  SpillFile documents_;  // document offsets
  const uint32_t id_bytes_;
  TokenFileInfo info_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TokenFileWriter>> TokenFileWriter::Create(const std::string& path,
                                                                         uint64_t vocab_size,
                                                                         uint64_t tokenizer_hash) {
  if (vocab_size == 0 || vocab_size > (uint64_t{1} << 31)) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocabulary size ", vocab_size, " of ", path, ": expected 1 to 2^31"));
  }
  auto writer = std::make_unique<StreamingWriter>(path, vocab_size, tokenizer_hash);
  STARLING_RETURN_IF_ERROR(writer->Start());
  return writer;
}

}  // namespace starling::data
