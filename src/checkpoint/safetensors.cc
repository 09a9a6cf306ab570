#include "starling/checkpoint/safetensors.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/json_reader.h"
#include "checkpoint/mapped_file.h"
#include "starling/base/status.h"

namespace starling::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kPrefixBytes = 8;
// The limit of the reference implementation; a longer header is an attack or garbage.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::string_view kMetadataKey = "__metadata__";

uint64_t LoadLittleEndian64(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < kPrefixBytes; ++i) {
    value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return value;
}

// Bytes of a tensor, or nothing when a dimension is negative or the product leaves int64.
std::optional<uint64_t> ByteCount(DType dtype, std::span<const int64_t> shape) {
  uint64_t bytes = SizeOf(dtype);
  bool empty = false;
  for (const int64_t dimension : shape) {
    if (dimension < 0) return std::nullopt;
    empty = empty || dimension == 0;
  }
  if (empty) return 0;
  for (const int64_t dimension : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dimension), &bytes)) {
      return std::nullopt;
    }
  }
  if (bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return bytes;
}

// Parses `text`, refusing a key that comes twice in one object (nlohmann would keep the last).
Json ParseWithoutDuplicates(std::string_view text, std::string* duplicate) {
  std::vector<std::set<std::string>> keys;
  auto callback = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second && duplicate->empty()) *duplicate = key;
    }
    return true;
  };
  return Json::parse(text.begin(), text.end(), callback, /*allow_exceptions=*/false);
}

// One tensor with the place of its data, before that place is checked.
struct Entry {
  TensorView view;
  uint64_t begin = 0;
  uint64_t end = 0;
};

absl::StatusOr<Entry> ParseEntry(const std::string& name, const Json& value) {
  const std::string label = absl::StrCat("tensor '", name, "'");
  JsonReader reader(value, label);
  const std::string dtype_name = reader.String("dtype");
  Entry entry;
  entry.view.name = name;
  entry.view.shape = reader.Integers("shape");
  const std::vector<int64_t> offsets = reader.Integers("data_offsets");
  STARLING_RETURN_IF_ERROR(reader.Finish());
  const std::optional<DType> dtype = ParseDType(dtype_name);
  if (!dtype) return reader.Error("dtype", absl::StrCat("'", dtype_name, "' is not supported"));
  entry.view.dtype = *dtype;
  if (offsets.size() != 2) return reader.Error("data_offsets", "is not a pair");
  entry.begin = static_cast<uint64_t>(offsets[0]);
  entry.end = static_cast<uint64_t>(offsets[1]);
  const std::optional<uint64_t> bytes = ByteCount(entry.view.dtype, entry.view.shape);
  if (!bytes) return reader.Error("shape", "takes a number of bytes that overflows");
  if (entry.end < entry.begin || entry.end - entry.begin != *bytes) {
    return absl::DataLossError(absl::StrCat(label, ": data_offsets [", entry.begin, ", ", entry.end,
                                            ") contradict its shape, which takes ", *bytes,
                                            " bytes"));
  }
  return entry;
}

// Sorts `entries` by place and requires that they fill `data` from its first byte to its last.
absl::StatusOr<std::vector<TensorView>> PlaceEntries(std::vector<Entry> entries,
                                                     std::string_view data) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.view.name) < std::tie(b.begin, b.end, b.view.name);
  });
  std::vector<TensorView> tensors;
  tensors.reserve(entries.size());
  uint64_t covered = 0;
  for (Entry& entry : entries) {
    auto bad = [&](std::string_view rule) {
      return absl::DataLossError(absl::StrCat("tensor '", entry.view.name, "': its data begins at ",
                                              entry.begin, " and ends at ", entry.end,
                                              std::string(rule)));
    };
    if (entry.begin < covered) return bad(", which overlaps the tensor before it");
    if (entry.begin > covered) {
      return bad(absl::StrCat(", which leaves a hole after byte ", covered));
    }
    if (entry.end > data.size()) {
      return bad(absl::StrCat(", but the file has ", data.size(), " bytes of data"));
    }
    entry.view.data = data.substr(entry.begin, entry.end - entry.begin);
    covered = entry.end;
    tensors.push_back(std::move(entry.view));
  }
  if (covered != data.size()) {
    return absl::DataLossError(
        absl::StrCat(data.size() - covered, " bytes at the end belong to", " no tensor"));
  }
  return tensors;
}

// The header's JSON object and the bytes after it.
absl::StatusOr<std::pair<Json, std::string_view>> SplitHeader(std::string_view bytes) {
  if (bytes.size() < kPrefixBytes) {
    return absl::DataLossError(
        absl::StrCat("only ", bytes.size(), " bytes; the header length alone takes 8"));
  }
  const uint64_t header_bytes = LoadLittleEndian64(bytes);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - kPrefixBytes) {
    return absl::DataLossError(absl::StrCat("header length ", header_bytes, " is beyond the file (",
                                            bytes.size(), " bytes) or the limit of ",
                                            kMaxHeaderBytes));
  }
  std::string duplicate;
  Json header = ParseWithoutDuplicates(bytes.substr(kPrefixBytes, header_bytes), &duplicate);
  if (header.is_discarded() || !header.is_object()) {
    return absl::DataLossError("the header is not a JSON object");
  }
  if (!duplicate.empty()) {
    return absl::DataLossError(absl::StrCat("the header has '", duplicate, "' twice"));
  }
  return std::make_pair(std::move(header), bytes.substr(kPrefixBytes + header_bytes));
}

}  // namespace

int64_t TensorView::element_count() const {
  int64_t count = 1;
  for (const int64_t dimension : shape) count *= dimension;
  return count;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Parse(std::string_view bytes,
                                                       const std::string& name) {
  auto parse = [&]() -> absl::StatusOr<SafetensorsFile> {
    STARLING_ASSIGN_OR_RETURN(auto header_and_data, SplitHeader(bytes));
    const auto& [header, data] = header_and_data;
    SafetensorsFile file;
    std::vector<Entry> entries;
    if (header.contains(kMetadataKey)) {
      JsonReader reader(header, "header");
      file.metadata_ = reader.Strings(std::string(kMetadataKey));
      STARLING_RETURN_IF_ERROR(reader.status());
    }
    for (const auto& item : header.items()) {
      if (item.key() == kMetadataKey) continue;
      STARLING_ASSIGN_OR_RETURN(Entry entry, ParseEntry(item.key(), item.value()));
      entries.push_back(std::move(entry));
    }
    STARLING_ASSIGN_OR_RETURN(file.tensors_, PlaceEntries(std::move(entries), data));
    for (size_t i = 0; i < file.tensors_.size(); ++i) file.index_[file.tensors_[i].name] = i;
    return file;
  };
  absl::StatusOr<SafetensorsFile> file = parse();
  if (!file.ok()) return Annotate(file.status(), name);
  return file;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  STARLING_ASSIGN_OR_RETURN(const MappedFile mapped, MapFile(path));
  STARLING_ASSIGN_OR_RETURN(SafetensorsFile file, Parse(mapped.bytes, path));
  file.mapping_ = mapped.owner;
  return file;
}

absl::StatusOr<TensorView> SafetensorsFile::Find(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    return absl::NotFoundError(absl::StrCat("no tensor named '", std::string(name), "'"));
  }
  return tensors_[found->second];
}

absl::StatusOr<std::string> SafetensorsHeader(std::span<const TensorView> tensors,
                                              const std::map<std::string, std::string>& metadata) {
  std::vector<TensorLayout> layouts;
  for (const TensorView& tensor : tensors) {
    if (ByteCount(tensor.dtype, tensor.shape) != tensor.data.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", tensor.name, "' has ", tensor.data.size(),
                       " bytes of data, which contradict its shape and element type"));
    }
    layouts.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  return SafetensorsHeader(layouts, metadata);
}

absl::StatusOr<std::string> SafetensorsHeader(std::span<const TensorLayout> tensors,
                                              const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[std::string(kMetadataKey)] = metadata;
  uint64_t offset = 0;
  for (const TensorLayout& tensor : tensors) {
    const std::optional<uint64_t> bytes = ByteCount(tensor.dtype, tensor.shape);
    if (!bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", tensor.name, "' has an impossible shape"));
    }
    if (tensor.name == kMetadataKey || header.contains(tensor.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor name '", tensor.name, "' is reserved or used twice"));
    }
    header[tensor.name] = {{"dtype", std::string(DTypeName(tensor.dtype))},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + *bytes}}};
    offset += *bytes;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception& error) {  // a name that is not UTF-8
    return absl::InvalidArgumentError(absl::StrCat("cannot write the header: ", error.what()));
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string prefix(kPrefixBytes, '\0');
  for (size_t i = 0; i < kPrefixBytes; ++i) {
    prefix[i] = static_cast<char>(uint64_t{text.size()} >> (8 * i));
  }
  return prefix + text;
}

}  // namespace starling::checkpoint
