#include "starling/checkpoint/writer.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "starling/base/crc32c.h"
#include "starling/base/status.h"
#include "starling/checkpoint/safetensors.h"

namespace starling::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are written as they lie");

// A tensor of the file: one or more slices that follow each other.
struct Run {
  TensorRange range;
  std::vector<std::string_view> pieces;
};

absl::StatusOr<std::vector<Run>> JoinSlices(std::span<const TensorSlice> slices) {
  std::vector<const TensorSlice*> sorted;
  for (const TensorSlice& slice : slices) {
    STARLING_RETURN_IF_ERROR(CheckRange(slice.range));
    const auto count = static_cast<uint64_t>(slice.range.end - slice.range.begin);
    if (slice.data.size() != count * SizeOf(slice.range.dtype)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor '", StoredName(slice.range), "' has ", slice.data.size(), " bytes for ", count,
          " elements of type ", std::string(DTypeName(slice.range.dtype))));
    }
    sorted.push_back(&slice);
  }
  std::sort(sorted.begin(), sorted.end(), [](const TensorSlice* a, const TensorSlice* b) {
    return std::tie(a->range.kind, a->range.name, a->range.begin, a->range.end) <
           std::tie(b->range.kind, b->range.name, b->range.begin, b->range.end);
  });
  std::vector<Run> runs;
  for (const TensorSlice* slice : sorted) {
    const TensorRange& range = slice->range;
    const bool same = !runs.empty() && runs.back().range.name == range.name &&
                      runs.back().range.kind == range.kind;
    if (same && (range.begin < runs.back().range.end || range.begin == range.end)) {
      return absl::InvalidArgumentError(
          absl::StrCat("slices of tensor '", range.name, "' overlap at element ", range.begin));
    }
    if (same &&
        (runs.back().range.dtype != range.dtype || runs.back().range.shape != range.shape)) {
      return absl::InvalidArgumentError(absl::StrCat("slices of tensor '", range.name,
                                                     "' have different shapes or element types"));
    }
    if (!same || range.begin != runs.back().range.end) runs.push_back({range, {}});
    runs.back().range.end = range.end;
    runs.back().pieces.push_back(slice->data);
  }
  return runs;
}

absl::StatusOr<std::string> HeaderFor(const std::vector<Run>& runs, const PartSpec& spec) {
  std::vector<TensorLayout> layouts;
  for (const Run& run : runs) {
    layouts.push_back({StoredName(run.range), run.range.dtype, StoredShape(run.range)});
  }
  return SafetensorsHeader(layouts, PartMetadata(spec));
}

// Appends everything, keeping the size and checksum of the file in `part`.
absl::Status AppendAll(WritableFile& file, const std::string& header, const std::vector<Run>& runs,
                       Part* part) {
  auto append = [&](std::string_view bytes) {
    part->bytes += bytes.size();
    part->crc32c = Crc32c(bytes, part->crc32c);
    return file.Append(bytes);
  };
  STARLING_RETURN_IF_ERROR(append(header));
  for (const Run& run : runs) {
    for (const std::string_view piece : run.pieces) STARLING_RETURN_IF_ERROR(append(piece));
  }
  return absl::OkStatus();
}

absl::Status WriteFile(Fs& fs, const std::string& temporary, const std::string& path,
                       const std::string& header, const std::vector<Run>& runs, Part* part) {
  STARLING_ASSIGN_OR_RETURN(const auto file, fs.Create(temporary));
  STARLING_RETURN_IF_ERROR(AppendAll(*file, header, runs, part));
  STARLING_RETURN_IF_ERROR(file->Sync());
  STARLING_RETURN_IF_ERROR(file->Close());
  return fs.Rename(temporary, path);
}

}  // namespace

std::map<std::string, std::string> PartMetadata(const PartSpec& spec) {
  return {{"format", "pt"},  // what Python's loaders expect of tensors in row-major order
          {"starling.run_id", spec.run_id},
          {"starling.timeline", absl::StrCat(spec.version.timeline.value())},
          {"starling.step", absl::StrCat(spec.version.step.value())},
          {"starling.generation", absl::StrCat(spec.generation.value())},
          {"starling.incarnation", ToHex(spec.incarnation)},
          {"starling.rank", absl::StrCat(spec.rank.value())}};
}

std::string PartFileName(const PartSpec& spec) {
  return absl::StrCat("part-t", spec.version.timeline.value(), "-g", spec.generation.value(), "-r",
                      spec.rank.value(), "-", ToHex(spec.incarnation), ".", spec.sequence,
                      ".safetensors");
}

absl::StatusOr<Part> WritePart(Fs& fs, const std::string& folder, const PartSpec& spec,
                               std::span<const TensorSlice> slices) {
  STARLING_ASSIGN_OR_RETURN(const std::vector<Run> runs, JoinSlices(slices));
  if (runs.empty()) return absl::InvalidArgumentError("a part without tensors");
  STARLING_ASSIGN_OR_RETURN(const std::string header, HeaderFor(runs, spec));
  Part part;
  part.file = PartFileName(spec);
  for (const Run& run : runs) part.tensors.push_back(run.range);

  STARLING_RETURN_IF_ERROR(fs.MakeDirectories(folder));
  if (fs.Exists(JoinPath(folder, kManifestFile))) {
    return absl::FailedPreconditionError(
        absl::StrCat(folder, " is already complete; refusing to write ", part.file, " into it"));
  }
  const std::string path = JoinPath(folder, part.file);
  const std::string temporary = path + ".tmp";
  if (absl::Status status = WriteFile(fs, temporary, path, header, runs, &part); !status.ok()) {
    if (fs.Exists(temporary)) fs.Remove(temporary).IgnoreError();
    return status;
  }
  STARLING_RETURN_IF_ERROR(fs.SyncDirectory(folder));
  STARLING_RETURN_IF_ERROR(fs.SyncDirectory(DirectoryOf(folder)));
  return part;
}

}  // namespace starling::checkpoint
