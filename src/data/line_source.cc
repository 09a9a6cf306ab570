#include "data/line_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "starling/base/status.h"

namespace starling::data {
namespace {

constexpr size_t kBufferBytes = 1 << 18;

gzFile Handle(void* gz) { return static_cast<gzFile>(gz); }

}  // namespace

absl::StatusOr<std::unique_ptr<LineSource>> LineSource::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  std::unique_ptr<LineSource> source(new LineSource(path));
  source->gz_ = gzdopen(fd, "rb");
  if (source->gz_ == nullptr) {
    close(fd);
    return absl::ResourceExhaustedError(absl::StrCat("cannot open ", path, ": out of memory"));
  }
  gzbuffer(Handle(source->gz_), kBufferBytes);
  source->compressed_ = absl::EndsWith(path, ".gz");
  source->buffer_.resize(kBufferBytes);
  struct stat info;
  const bool has_bytes = fstat(fd, &info) == 0 && info.st_size > 0;
  const bool is_gzip = gzdirect(Handle(source->gz_)) == 0;
  if (has_bytes && source->compressed_ != is_gzip) {
    return absl::DataLossError(
        is_gzip ? absl::StrCat(path, " is gzipped: give it a name that ends in .gz")
                : absl::StrCat(path, " is named .gz but is not a gzip file"));
  }
  return source;
}

LineSource::~LineSource() {
  if (gz_ != nullptr) gzclose(Handle(gz_));
}

absl::Status LineSource::Fill() {
  begin_ = end_ = 0;
  const int got = gzread(Handle(gz_), buffer_.data(), static_cast<unsigned>(buffer_.size()));
  int code = Z_OK;
  const char* text = gzerror(Handle(gz_), &code);
  if (got < 0 || code == Z_BUF_ERROR) {
    if (code == Z_ERRNO) return ErrnoStatus(errno, absl::StrCat("cannot read ", path_));
    return absl::DataLossError(absl::StrCat(
        path_, ": damaged or cut off gzip file after line ", line_number_, " (",
        code == Z_BUF_ERROR ? "unexpected end" : text, "): fetch or compress it again"));
  }
  end_ = static_cast<size_t>(got);
  at_end_ = got == 0;
  return absl::OkStatus();
}

absl::StatusOr<bool> LineSource::Next(size_t max_bytes, std::string* line, bool* too_long) {
  line->clear();
  *too_long = false;
  bool something = false;
  for (bool line_end = false; !line_end;) {
    if (begin_ == end_) {
      if (!at_end_) STARLING_RETURN_IF_ERROR(Fill());
      if (at_end_) break;
    }
    something = true;
    const char* start = buffer_.data() + begin_;
    const void* found = std::memchr(start, '\n', end_ - begin_);
    line_end = found != nullptr;
    const size_t bytes = line_end ? static_cast<const char*>(found) - start : end_ - begin_;
    const size_t kept = std::min(bytes, max_bytes - line->size());
    line->append(start, kept);
    *too_long = *too_long || kept < bytes;
    begin_ += bytes + (line_end ? 1 : 0);
  }
  if (!something) return false;
  ++line_number_;
  if (line_number_ == 1 && absl::StartsWith(*line, "\xEF\xBB\xBF")) line->erase(0, 3);
  if (!line->empty() && line->back() == '\r') line->pop_back();
  return true;
}

uint64_t LineSource::bytes_read() const {
  const auto offset = gzoffset(Handle(gz_));
  return offset < 0 ? 0 : static_cast<uint64_t>(offset);
}

}  // namespace starling::data
