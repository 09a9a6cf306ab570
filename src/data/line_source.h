// Lines of a file that may be gzipped, in bounded memory; the private part of text_reader.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace starling::data {

class LineSource {
 public:
  // Opens `path`; ".gz" at the end of the name means gzip. Errors name the path.
  static absl::StatusOr<std::unique_ptr<LineSource>> Open(const std::string& path);
  ~LineSource();
  LineSource(const LineSource&) = delete;
  LineSource& operator=(const LineSource&) = delete;

  // The next line without its "\n" or "\r\n" (and, in the first line, without a byte order mark).
  // False at the end. A line longer than `max_bytes` is read to its end, but only its first
  // `max_bytes` bytes are kept, and `*too_long` is set. DataLoss for a damaged gzip file.
  absl::StatusOr<bool> Next(size_t max_bytes, std::string* line, bool* too_long);

  uint64_t line_number() const { return line_number_; }  // of the line read last, from 1
  uint64_t bytes_read() const;                           // on the disk

 private:
  explicit LineSource(std::string path) : path_(std::move(path)) {}
  absl::Status Fill();

  const std::string path_;
  void* gz_ = nullptr;  // gzFile; it passes plain files through
  bool compressed_ = false;
  std::string buffer_;
  size_t begin_ = 0;  // of what is not used yet in buffer_
  size_t end_ = 0;
  bool at_end_ = false;
  uint64_t line_number_ = 0;
};

}  // namespace starling::data
