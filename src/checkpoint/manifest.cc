#include "starling/checkpoint/manifest.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/json_reader.h"
#include "starling/base/crc32c.h"
#include "starling/base/status.h"

namespace starling::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "starling-checkpoint";

bool IsWhole(const TensorRange& range) {
  return range.begin == 0 && range.end == ElementCount(range.shape);
}

Json RangeToJson(const TensorRange& range) {
  return {{"name", range.name},
          {"kind", std::string(KindName(range.kind))},
          {"dtype", std::string(DTypeName(range.dtype))},
          {"shape", range.shape},
          {"range", {range.begin, range.end}}};
}

Json PartToJson(const Part& part) {
  Json tensors = Json::array();
  for (const TensorRange& range : part.tensors) tensors.push_back(RangeToJson(range));
  return {{"file", part.file},
          {"bytes", part.bytes},
          {"crc32c", absl::StrFormat("%08x", part.crc32c)},
          {"tensors", std::move(tensors)}};
}

// A name that stays in its folder and cannot hide: no slash, no leading dot, the right ending.
bool IsPartFileName(std::string_view file) {
  return !file.empty() && file.front() != '.' && file.ends_with(".safetensors") &&
         std::all_of(file.begin(), file.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

absl::StatusOr<TensorRange> RangeFromJson(JsonReader reader) {
  TensorRange range;
  range.name = reader.String("name");
  const std::string kind = reader.String("kind");
  const std::string dtype = reader.String("dtype");
  range.shape = reader.Integers("shape");
  const std::vector<int64_t> ends = reader.Integers("range");
  STARLING_RETURN_IF_ERROR(reader.Finish());
  const auto parsed_kind = ParseKind(kind);
  if (!parsed_kind) return reader.Error("kind", absl::StrCat("'", kind, "' is not known"));
  const auto parsed_dtype = ParseDType(dtype);
  if (!parsed_dtype) return reader.Error("dtype", absl::StrCat("'", dtype, "' is not known"));
  if (ends.size() != 2) return reader.Error("range", "is not a pair");
  range.kind = *parsed_kind;
  range.dtype = *parsed_dtype;
  range.begin = ends[0];
  range.end = ends[1];
  if (const absl::Status status = CheckRange(range); !status.ok()) {
    return absl::DataLossError(std::string(status.message()));
  }
  return range;
}

absl::StatusOr<Part> PartFromJson(JsonReader reader) {
  Part part;
  part.file = reader.String("file");
  part.bytes = reader.Unsigned("bytes");
  const std::string crc = reader.String("crc32c");
  std::vector<JsonReader> tensors = reader.Objects("tensors");
  STARLING_RETURN_IF_ERROR(reader.Finish());
  if (!IsPartFileName(part.file)) {
    return reader.Error("file", absl::StrCat("'", part.file, "' is not the name of a part"));
  }
  const auto [rest, error] =
      std::from_chars(crc.data(), crc.data() + crc.size(), part.crc32c, /*base=*/16);
  if (error != std::errc() || rest != crc.data() + crc.size() || crc.size() != 8) {
    return reader.Error("crc32c", absl::StrCat("'", crc, "' is not 8 hexadecimal digits"));
  }
  for (JsonReader& tensor : tensors) {
    STARLING_ASSIGN_OR_RETURN(part.tensors.emplace_back(), RangeFromJson(std::move(tensor)));
  }
  return part;
}

// The end of every manifest. All bytes before it are what the checksum is of.
std::string ChecksumTail(std::string_view body) {
  return absl::StrFormat(",\n \"crc32c\": \"%08x\"\n}\n", Crc32c(body));
}

struct Totals {
  uint64_t tensors = 0;   // ranges
  uint64_t elements = 0;  // of all kinds
  uint64_t bytes = 0;     // of the part files
};

Totals TotalsOf(const std::vector<Part>& parts) {
  Totals totals;
  for (const Part& part : parts) {
    totals.bytes += part.bytes;
    totals.tensors += part.tensors.size();
    for (const TensorRange& range : part.tensors) {
      totals.elements += static_cast<uint64_t>(range.end - range.begin);
    }
  }
  return totals;
}

std::string Describe(const TensorRange& range) {
  return absl::StrCat("tensor '", range.name, "' (", std::string(KindName(range.kind)), ")");
}

// The ranges of one tensor, in order, must follow each other from 0 to the tensor's end.
absl::Status CheckTiling(const std::vector<const TensorRange*>& ranges) {
  int64_t covered = 0;
  const TensorRange& first = *ranges.front();
  auto lost = [&](int64_t begin, int64_t end, std::string_view what) {
    return absl::DataLossError(absl::StrCat("elements [", begin, ", ", end, ") of ",
                                            Describe(first), " are ", std::string(what)));
  };
  for (size_t i = 0; i < ranges.size(); ++i) {
    const TensorRange& range = *ranges[i];
    if (range.shape != first.shape || range.dtype != first.dtype) {
      return absl::DataLossError(
          absl::StrCat(Describe(first), " has different shapes or element types in its parts"));
    }
    if (range.begin > covered) return lost(covered, range.begin, "in no part");
    // An empty tensor has one range, [0, 0): a second one is a repetition like any other.
    if (range.begin < covered || (i > 0 && range.begin == range.end)) {
      return lost(range.begin, std::min(covered, range.end), "in two parts");
    }
    covered = range.end;
  }
  const int64_t count = ElementCount(first.shape).value_or(-1);
  if (covered != count) return lost(covered, count, "in no part");
  return absl::OkStatus();
}

}  // namespace

std::string_view KindName(TensorKind kind) {
  switch (kind) {
    case TensorKind::kParameter:
      return "parameter";
    case TensorKind::kFirstMoment:
      return "m";
    case TensorKind::kSecondMoment:
      return "v";
  }
  return "";
}

std::optional<TensorKind> ParseKind(std::string_view name) {
  for (const auto kind :
       {TensorKind::kParameter, TensorKind::kFirstMoment, TensorKind::kSecondMoment}) {
    if (KindName(kind) == name) return kind;
  }
  return std::nullopt;
}

std::optional<int64_t> ElementCount(const std::vector<int64_t>& shape) {
  if (std::any_of(shape.begin(), shape.end(), [](int64_t d) { return d < 0; })) return std::nullopt;
  if (std::count(shape.begin(), shape.end(), 0) > 0) return 0;
  int64_t count = 1;
  for (const int64_t dimension : shape) {
    if (__builtin_mul_overflow(count, dimension, &count)) return std::nullopt;
  }
  return count;
}

absl::Status CheckRange(const TensorRange& range) {
  if (range.name.empty() || range.name.starts_with("m.") || range.name.starts_with("v.")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", range.name, "' cannot name a parameter: empty, or begins like a moment's name"));
  }
  const std::optional<int64_t> count = ElementCount(range.shape);
  if (!count || range.begin < 0 || range.end > *count || range.begin > range.end ||
      (range.begin == range.end && *count != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "[", range.begin, ", ", range.end, ") is no range of ", Describe(range), " with ",
        count ? absl::StrCat(*count) : "an impossible number of", " elements"));
  }
  return absl::OkStatus();
}

std::string StoredName(const TensorRange& range) {
  std::string stored;
  if (range.kind != TensorKind::kParameter) {
    stored = absl::StrCat(std::string(KindName(range.kind)), ".");
  }
  absl::StrAppend(&stored, range.name);
  if (!IsWhole(range)) absl::StrAppend(&stored, ".", range.begin, "-", range.end);
  return stored;
}

std::vector<int64_t> StoredShape(const TensorRange& range) {
  return IsWhole(range) ? range.shape : std::vector<int64_t>{range.end - range.begin};
}

std::string EncodePart(const Part& part) {
  return PartToJson(part).dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<Part> DecodePart(std::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  return PartFromJson(JsonReader(json, "part"));
}

absl::Status CheckComplete(const Manifest& manifest) {
  std::map<std::pair<std::string, TensorKind>, std::vector<const TensorRange*>> tensors;
  for (const Part& part : manifest.parts) {
    for (const TensorRange& range : part.tensors) {
      tensors[{range.name, range.kind}].push_back(&range);
    }
  }
  if (tensors.empty()) return absl::DataLossError("the checkpoint holds no tensor");
  std::set<TensorKind> kinds;
  for (auto& [key, ranges] : tensors) {
    kinds.insert(key.second);
    std::sort(ranges.begin(), ranges.end(), [](const TensorRange* a, const TensorRange* b) {
      return std::tie(a->begin, a->end) < std::tie(b->begin, b->end);
    });
    STARLING_RETURN_IF_ERROR(CheckTiling(ranges));
  }
  for (const auto& [key, ranges] : tensors) {
    for (const TensorKind kind : kinds) {
      const auto other = tensors.find({key.first, kind});
      if (other == tensors.end() || other->second.front()->shape != ranges.front()->shape) {
        return absl::DataLossError(absl::StrCat("tensor '", key.first, "' has no ",
                                                std::string(KindName(kind)), " of its shape"));
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> EncodeManifest(const Manifest& manifest) {
  const Totals totals = TotalsOf(manifest.parts);
  Json parts = Json::array();
  for (const Part& part : manifest.parts) parts.push_back(PartToJson(part));
  const Json json = {
      {"format", std::string(kFormat)},
      {"format_version", kManifestVersion},
      {"run_id", manifest.run_id},
      {"timeline", manifest.version.timeline.value()},
      {"step", manifest.version.step.value()},
      {"generation", manifest.generation.value()},
      {"optimizer_steps", manifest.optimizer_steps},
      {"samples_consumed", manifest.samples_consumed},
      {"config_hash", manifest.config_hash},
      {"model_hash", manifest.model_hash},
      {"data_hash", manifest.data_hash},
      {"seed", manifest.seed},
      {"created", absl::FormatTime(absl::RFC3339_full, manifest.created, absl::UTCTimeZone())},
      {"extra", manifest.extra},
      {"parts", std::move(parts)},
      {"totals",
       {{"tensors", totals.tensors}, {"elements", totals.elements}, {"bytes", totals.bytes}}}};
  std::string body;
  try {
    body = json.dump(/*indent=*/1);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write the manifest: ", error.what()));
  }
  body.resize(body.size() - 2);  // "\n}": the checksum comes last inside the object
  return body + ChecksumTail(body);
}

absl::StatusOr<Manifest> ParseManifest(std::string_view text) {
  const size_t tail = ChecksumTail("").size();
  if (text.size() < tail) return absl::DataLossError("the manifest is cut off");
  const std::string_view body = text.substr(0, text.size() - tail);
  if (text.substr(body.size()) != ChecksumTail(body)) {
    return absl::DataLossError("the manifest's checksum is wrong: it is damaged or cut off");
  }
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  JsonReader reader(json, "manifest");
  if (reader.String("format") != kFormat) {
    STARLING_RETURN_IF_ERROR(reader.status());
    return reader.Error("format", absl::StrCat("is not '", std::string(kFormat), "'"));
  }
  const uint64_t format_version = reader.Unsigned("format_version");
  if (format_version > kManifestVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the manifest has format version ",
                                                      format_version, ", this program reads up to ",
                                                      kManifestVersion, ": use the newer program"));
  }
  Manifest manifest;
  manifest.run_id = reader.String("run_id");
  manifest.version.timeline = Timeline(reader.Unsigned("timeline"));
  manifest.version.step = Step(reader.Integer("step"));
  manifest.generation = Generation(reader.Unsigned("generation"));
  manifest.optimizer_steps = reader.Integer("optimizer_steps");
  manifest.samples_consumed = reader.Integer("samples_consumed");
  manifest.config_hash = reader.String("config_hash");
  manifest.model_hash = reader.String("model_hash");
  manifest.data_hash = reader.String("data_hash");
  manifest.seed = reader.Unsigned("seed");
  const std::string created = reader.String("created");
  manifest.extra = reader.Strings("extra");
  std::vector<JsonReader> parts = reader.Objects("parts");
  JsonReader totals_reader = reader.Object("totals");
  reader.String("crc32c");
  STARLING_RETURN_IF_ERROR(reader.Finish());
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, created, &manifest.created, &error)) {
    return reader.Error("created", absl::StrCat("is no time: ", error));
  }
  for (JsonReader& part : parts) {
    STARLING_ASSIGN_OR_RETURN(manifest.parts.emplace_back(), PartFromJson(std::move(part)));
  }
  const Totals totals = TotalsOf(manifest.parts);
  const bool agrees = totals_reader.Unsigned("tensors") == totals.tensors &&
                      totals_reader.Unsigned("elements") == totals.elements &&
                      totals_reader.Unsigned("bytes") == totals.bytes;
  STARLING_RETURN_IF_ERROR(totals_reader.Finish());
  if (!agrees) return reader.Error("totals", "contradict the parts");
  return manifest;
}

std::string FolderName(Version version) {
  return absl::StrCat("step-", version.step.value(), ".t", version.timeline.value());
}

std::optional<Version> ParseFolderName(std::string_view name) {
  constexpr std::string_view kPrefix = "step-";
  const size_t dot = name.find(".t");
  if (!name.starts_with(kPrefix) || dot == std::string_view::npos) return std::nullopt;
  const std::string_view step_text = name.substr(kPrefix.size(), dot - kPrefix.size());
  const std::string_view timeline_text = name.substr(dot + 2);
  int64_t step = 0;
  uint64_t timeline = 0;
  std::from_chars(step_text.data(), step_text.data() + step_text.size(), step);
  std::from_chars(timeline_text.data(), timeline_text.data() + timeline_text.size(), timeline);
  const Version version{Timeline(timeline), Step(step)};
  // Only the canonical spelling is ours: no padding, no sign, nothing behind the number.
  if (step < 0 || FolderName(version) != name) return std::nullopt;
  return version;
}

}  // namespace starling::checkpoint
