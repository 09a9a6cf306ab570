#include "starling/checkpoint/reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/mapped_file.h"
#include "starling/base/crc32c.h"
#include "starling/base/fs.h"
#include "starling/base/status.h"
#include "starling/checkpoint/safetensors.h"

namespace starling::checkpoint {
namespace {

// The folder's last name, also when the path ends in slashes.
std::string BaseName(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

absl::StatusOr<Manifest> ReadManifest(const std::string& folder) {
  const std::string path = JoinPath(folder, kManifestFile);
  auto read = [&]() -> absl::StatusOr<Manifest> {
    const auto mapped = MapFile(path);
    if (absl::IsNotFound(mapped.status())) {
      return absl::NotFoundError("there is none: the checkpoint was never completed");
    }
    STARLING_RETURN_IF_ERROR(mapped.status());
    STARLING_ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(mapped->bytes));
    STARLING_RETURN_IF_ERROR(CheckComplete(manifest));
    const std::optional<Version> named = ParseFolderName(BaseName(folder));
    if (named && *named != manifest.version) {
      return absl::DataLossError(
          absl::StrCat("it belongs to ", FolderName(manifest.version), ", not to this folder"));
    }
    return manifest;
  };
  auto manifest = read();
  if (!manifest.ok()) return Annotate(manifest.status(), path);
  return manifest;
}

// A part of another run, history or step under the right name and with the right checksum can only
// come from a manifest put together wrongly; it is refused all the same.
absl::Status CheckIdentity(const SafetensorsFile& file, const Manifest& manifest) {
  const std::pair<const char*, std::string> expected[] = {
      {"starling.run_id", manifest.run_id},
      {"starling.timeline", absl::StrCat(manifest.version.timeline.value())},
      {"starling.step", absl::StrCat(manifest.version.step.value())},
      {"starling.generation", absl::StrCat(manifest.generation.value())}};
  for (const auto& [key, value] : expected) {
    const auto found = file.metadata().find(key);
    if (found == file.metadata().end() || found->second != value) {
      return absl::DataLossError(absl::StrCat(
          key, " is '", found == file.metadata().end() ? "" : found->second,
          "', the manifest's is '", value, "': the part belongs to another checkpoint"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBytes(std::string_view bytes, const Part& part) {
  if (bytes.size() != part.bytes) {
    return absl::DataLossError(
        absl::StrCat("it has ", bytes.size(), " bytes, the manifest says ", part.bytes));
  }
  if (Crc32c(bytes) != part.crc32c) {
    return absl::DataLossError("its checksum is wrong: its content has changed");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> FindData(const SafetensorsFile& file, const TensorRange& range) {
  STARLING_ASSIGN_OR_RETURN(const TensorView view, file.Find(StoredName(range)));
  if (view.dtype != range.dtype || view.shape != StoredShape(range)) {
    return absl::DataLossError(
        absl::StrCat("tensor '", view.name, "' has another shape or type than the manifest says"));
  }
  return view.data;
}

}  // namespace

absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& folder) {
  Checkpoint checkpoint;
  STARLING_ASSIGN_OR_RETURN(checkpoint.manifest_, ReadManifest(folder));
  for (const Part& part : checkpoint.manifest_.parts) {
    const std::string path = JoinPath(folder, part.file);
    auto open = [&]() -> absl::Status {
      auto mapped = MapFile(path);
      if (absl::IsNotFound(mapped.status())) return absl::DataLossError("the part is missing");
      STARLING_RETURN_IF_ERROR(mapped.status());
      STARLING_RETURN_IF_ERROR(CheckBytes(mapped->bytes, part));
      STARLING_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Parse(mapped->bytes, "header"));
      STARLING_RETURN_IF_ERROR(CheckIdentity(file, checkpoint.manifest_));
      for (const TensorRange& range : part.tensors) {
        const auto data = FindData(file, range);
        if (!data.ok()) return absl::DataLossError(std::string(data.status().message()));
        checkpoint.pieces_[{range.name, range.kind}].push_back({range, *data});
      }
      checkpoint.owners_.push_back(std::move(mapped->owner));
      return absl::OkStatus();
    };
    STARLING_RETURN_IF_ERROR(Annotate(open(), path));
  }
  for (auto& [key, pieces] : checkpoint.pieces_) {
    std::sort(pieces.begin(), pieces.end(),
              [](const auto& a, const auto& b) { return a.range.begin < b.range.begin; });
  }
  return checkpoint;
}

absl::Status Verify(const std::string& folder) { return OpenCheckpoint(folder).status(); }

const std::vector<Checkpoint::Piece>* Checkpoint::FindPieces(std::string_view name,
                                                             TensorKind kind) const {
  const auto found = pieces_.find({std::string(name), kind});
  return found == pieces_.end() ? nullptr : &found->second;
}

absl::StatusOr<std::vector<int64_t>> Checkpoint::Shape(std::string_view name) const {
  const auto* pieces = FindPieces(name, TensorKind::kParameter);
  if (pieces == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("the checkpoint has no parameter '", std::string(name), "'"));
  }
  return pieces->front().range.shape;
}

absl::Status Checkpoint::ReadInto(std::string_view name, TensorKind kind, int64_t begin,
                                  int64_t end, float* out) const {
  const std::string label =
      absl::StrCat("'", std::string(name), "' (", std::string(KindName(kind)), ")");
  const auto* pieces = FindPieces(name, kind);
  if (pieces == nullptr) {
    return absl::NotFoundError(absl::StrCat("the checkpoint has no tensor ", label));
  }
  if (begin < 0 || end < begin || end > pieces->back().range.end) {
    return absl::InvalidArgumentError(absl::StrCat("[", begin, ", ", end, ") leaves tensor ", label,
                                                   " of ", pieces->back().range.end, " elements"));
  }
  if (pieces->front().range.dtype != DType::kFloat32) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", label, " has type ",
                     std::string(DTypeName(pieces->front().range.dtype)), ", not F32"));
  }
  // The first piece that ends behind `begin`; the pieces have no holes between them.
  auto piece = std::upper_bound(
      pieces->begin(), pieces->end(), begin,
      [](int64_t element, const Piece& candidate) { return element < candidate.range.end; });
  for (; piece != pieces->end() && begin < end; ++piece) {
    const int64_t stop = std::min(end, piece->range.end);
    const auto offset = static_cast<size_t>(begin - piece->range.begin) * sizeof(float);
    const auto bytes = static_cast<size_t>(stop - begin) * sizeof(float);
    std::memcpy(out, piece->data.data() + offset, bytes);
    out += stop - begin;
    begin = stop;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Version>> ListCheckpoints(Fs& fs, const std::string& checkpoints) {
  const auto names = fs.List(checkpoints);
  if (absl::IsNotFound(names.status())) return std::vector<Version>();
  STARLING_RETURN_IF_ERROR(names.status());
  std::vector<Version> versions;
  for (const std::string& name : *names) {
    if (const auto version = ParseFolderName(name)) versions.push_back(*version);
  }
  std::sort(versions.rbegin(), versions.rend());
  return versions;
}

}  // namespace starling::checkpoint
