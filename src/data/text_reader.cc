#include "starling/data/text_reader.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "data/line_source.h"
#include "data/utf8.h"
#include "starling/base/fs.h"
#include "starling/base/status.h"

namespace starling::data {
namespace {

using Json = nlohmann::json;

bool IsFolder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

absl::Status ExpandInto(const std::string& path, std::vector<std::string>* files) {
  if (!IsFolder(path)) {
    files->push_back(path);
    return absl::OkStatus();
  }
  STARLING_ASSIGN_OR_RETURN(const std::vector<std::string> names, RealFs().List(path));
  for (const std::string& name : names) {
    if (name.front() == '.') continue;
    STARLING_RETURN_IF_ERROR(ExpandInto(JoinPath(path, name), files));
  }
  return absl::OkStatus();
}

bool IsJsonName(std::string name) {
  if (absl::EndsWith(name, ".gz")) name.resize(name.size() - 3);
  return absl::EndsWith(name, ".jsonl") || absl::EndsWith(name, ".json") ||
         absl::EndsWith(name, ".ndjson");
}

bool IsBlank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n\v\f") == std::string::npos;
}

// The document in one line of JSON; otherwise why there is none.
absl::StatusOr<Document> ParseJsonLine(const std::string& line) {
  if (const size_t bad = FindInvalidUtf8(line); bad != std::string::npos) {
    return absl::DataLossError(absl::StrCat("invalid UTF-8 at byte ", bad + 1, " of the line"));
  }
  Json json;
  try {
    json = Json::parse(line);
  } catch (const Json::parse_error& error) {
    return absl::DataLossError(absl::StrCat("invalid JSON at byte ", error.byte, " of the line"));
  }
  if (!json.is_object()) return absl::DataLossError("not a JSON object");
  const auto text = json.find("text");
  if (text == json.end() || !text->is_string()) {
    return absl::DataLossError("the object has no string \"text\"");
  }
  Document document;
  document.text = std::move(text->get_ref<std::string&>());
  if (const auto id = json.find("id"); id != json.end() && !id->is_null()) {
    document.id = id->is_string() ? id->get<std::string>() : id->dump();
  }
  return document;
}

class FileReader final : public TextReader {
 public:
  FileReader(std::vector<std::string> files, uint64_t bytes_total, bool skip_bad)
      : files_(std::move(files)), bytes_total_(bytes_total), skip_bad_(skip_bad) {}

  absl::StatusOr<bool> Next(Document* document) override {
    for (;;) {
      if (source_ == nullptr) {
        if (next_file_ == files_.size()) return false;
        const std::string& path = files_[next_file_];
        STARLING_ASSIGN_OR_RETURN(source_, LineSource::Open(path));
        is_json_ = IsJsonName(path);
      }
      STARLING_ASSIGN_OR_RETURN(const bool found,
                                is_json_ ? NextJson(document) : NextPlain(document));
      if (found) return true;
      finished_bytes_ += source_->bytes_read();
      source_.reset();
      ++next_file_;
    }
  }

  uint64_t bytes_read() const override {
    return finished_bytes_ + (source_ != nullptr ? source_->bytes_read() : 0);
  }
  uint64_t bytes_total() const override { return bytes_total_; }
  uint64_t bad() const override { return bad_; }
  const std::string& first_bad() const override { return first_bad_; }

 private:
  // Counts bad input or makes the error that stops.
  absl::Status Bad(uint64_t line_number, std::string_view reason) {
    std::string what =
        absl::StrCat(files_[next_file_], ":", line_number, ": ", std::string(reason));
    if (!skip_bad_) return absl::DataLossError(what);
    if (bad_++ == 0) first_bad_ = std::move(what);
    return absl::OkStatus();
  }

  static std::string TooLong() {
    return absl::StrCat("line longer than ", kMaxDocumentBytes >> 20, " MiB");
  }

  absl::StatusOr<bool> NextJson(Document* document) {
    std::string line;
    bool too_long = false;
    for (;;) {
      STARLING_ASSIGN_OR_RETURN(const bool found,
                                source_->Next(kMaxDocumentBytes, &line, &too_long));
      if (!found) return false;
      if (too_long) {
        STARLING_RETURN_IF_ERROR(Bad(source_->line_number(), TooLong()));
        continue;
      }
      if (IsBlank(line)) continue;
      absl::StatusOr<Document> parsed = ParseJsonLine(line);
      if (!parsed.ok()) {
        STARLING_RETURN_IF_ERROR(
            Bad(source_->line_number(), std::string(parsed.status().message())));
        continue;
      }
      if (IsBlank(parsed->text)) continue;
      *document = *std::move(parsed);
      return true;
    }
  }

  // A bad line spoils its whole document: what is left of it would read on across the gap.
  absl::StatusOr<bool> NextPlain(Document* document) {
    *document = Document();
    std::string line = std::exchange(carried_line_, std::string());
    bool have_line = !line.empty(), spoilt = false, too_long = false;
    for (;;) {
      if (!have_line) {
        STARLING_ASSIGN_OR_RETURN(const bool found,
                                  source_->Next(kMaxDocumentBytes, &line, &too_long));
        if (!found) return !spoilt && !document->text.empty();
      }
      have_line = false;
      if (!too_long && IsBlank(line)) {
        if (!spoilt && !document->text.empty()) return true;
        *document = Document();
        spoilt = false;
        continue;
      }
      const size_t bad = too_long ? 0 : FindInvalidUtf8(line);
      if (bad != std::string::npos) {
        if (!spoilt) {
          STARLING_RETURN_IF_ERROR(
              Bad(source_->line_number(),
                  too_long ? TooLong()
                           : absl::StrCat("invalid UTF-8 at byte ", bad + 1, " of the line")));
        }
        spoilt = true;
        document->text.clear();
      }
      if (spoilt) continue;
      if (!document->text.empty() && document->text.size() + 1 + line.size() > kMaxDocumentBytes) {
        carried_line_ = std::move(line);
        return true;
      }
      if (!document->text.empty()) document->text.push_back('\n');
      document->text.append(line);
    }
  }

  const std::vector<std::string> files_;
  const uint64_t bytes_total_;
  const bool skip_bad_;
  size_t next_file_ = 0;                // the open file's number while source_ is set
  std::unique_ptr<LineSource> source_;  // null between files
  bool is_json_ = false;
  std::string carried_line_;  // first line of the second part of a long plain document
  uint64_t finished_bytes_ = 0;
  uint64_t bad_ = 0;
  std::string first_bad_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandInputs(const std::vector<std::string>& inputs) {
  std::vector<std::string> files;
  for (const std::string& input : inputs) {
    const size_t before = files.size();
    STARLING_RETURN_IF_ERROR(ExpandInto(input, &files));
    if (files.size() == before) {
      return absl::InvalidArgumentError(absl::StrCat("input folder ", input, " holds no files"));
    }
  }
  for (const std::string& file : files) STARLING_RETURN_IF_ERROR(RealFs().Size(file).status());
  return files;
}

absl::StatusOr<std::unique_ptr<TextReader>> TextReader::Open(const TextReaderOptions& options) {
  STARLING_ASSIGN_OR_RETURN(std::vector<std::string> files, ExpandInputs(options.inputs));
  uint64_t total = 0;
  for (const std::string& file : files) {
    STARLING_ASSIGN_OR_RETURN(const uint64_t bytes, RealFs().Size(file));
    total += bytes;
  }
  return std::make_unique<FileReader>(std::move(files), total, options.skip_bad);
}

}  // namespace starling::data
