// Documents out of text files, one after the other in bounded memory. Inputs are JSON Lines (names
// ending in .jsonl, .json or .ndjson; objects with a string `text` and an optional `id`) and plain
// text (everything else; documents are parted by blank lines), each also gzipped (.gz), and folders
// of these. One thread uses a reader.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace starling::data {

// Longest document; a longer JSON line or a longer line of plain text is bad input, longer plain
// text is cut in two at a line break.
inline constexpr size_t kMaxDocumentBytes = size_t{64} << 20;

struct Document {
  std::string id;    // as in the file; empty when it has none
  std::string text;  // valid UTF-8; plain text keeps its inner line breaks
};

struct TextReaderOptions {
  std::vector<std::string> inputs;  // files and folders, read in this order
  bool skip_bad = false;            // count and skip bad documents instead of stopping
};

// The files that `inputs` mean, in reading order: folders are replaced by the files below them in
// byte order of their names, hidden ones left out. NotFound for what does not exist,
// InvalidArgument for a folder without files.
absl::StatusOr<std::vector<std::string>> ExpandInputs(const std::vector<std::string>& inputs);

class TextReader {
 public:
  // Expands the inputs and sums up their sizes; opens none yet. Errors as ExpandInputs.
  static absl::StatusOr<std::unique_ptr<TextReader>> Open(const TextReaderOptions& options);
  virtual ~TextReader() = default;

  // The next document with something other than white space in it goes to `*document`; false at
  // the end of the last file. Bad input (invalid UTF-8 or JSON, no string `text`, a longer line
  // than kMaxDocumentBytes) is DataLoss naming file and line, or, with skip_bad, counted and
  // passed over. A gzip file that is cut off or damaged is DataLoss in either case, for nobody
  // knows how much of it is missing. After an error the reader is finished.
  virtual absl::StatusOr<bool> Next(Document* document) = 0;

  // Bytes of the files as they lie on the disk (compressed ones count compressed).
  virtual uint64_t bytes_read() const = 0;
  virtual uint64_t bytes_total() const = 0;
  // Bad documents passed over so far, and where the first of them was ("file:line: reason").
  virtual uint64_t bad() const = 0;
  virtual const std::string& first_bad() const = 0;
};

}  // namespace starling::data
