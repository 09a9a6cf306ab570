#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "starling/base/status.h"
#include "starling/checkpoint/reader.h"
#include "starling/checkpoint/writer.h"

namespace starling::checkpoint {
namespace {

absl::Status CheckParts(Fs& fs, const std::string& folder, const Manifest& manifest) {
  for (const Part& part : manifest.parts) {
    const std::string path = JoinPath(folder, part.file);
    STARLING_ASSIGN_OR_RETURN(const uint64_t bytes, fs.Size(path));
    if (bytes != part.bytes) {
      return absl::DataLossError(
          absl::StrCat(path, " has ", bytes, " bytes; its writer reported ", part.bytes));
    }
  }
  return absl::OkStatus();
}

// Whether every file in the folder is one that an unfinished attempt leaves behind.
bool HoldsOnlyAttemptFiles(Fs& fs, const std::string& folder) {
  const auto names = fs.List(folder);
  return names.ok() && std::all_of(names->begin(), names->end(), [](std::string_view name) {
           return name.starts_with("part-t") || name.starts_with("manifest.json.tmp");
         });
}

enum class Found { kForeign, kUnfinished, kComplete };

// What an older folder is. Only what is surely this run's may be deleted; a folder that cannot be
// judged is left alone with a warning.
Found Classify(Fs& fs, const std::string& folder, const std::string& run_id, CommitReport* report) {
  const std::string path = JoinPath(folder, kManifestFile);
  if (!fs.Exists(path)) {
    return HoldsOnlyAttemptFiles(fs, folder) ? Found::kUnfinished : Found::kForeign;
  }
  const auto text = fs.Read(path);
  const auto manifest = text.ok() ? ParseManifest(*text) : text.status();
  if (!manifest.ok()) {
    report->warnings.push_back(absl::StrCat(
        folder, " is kept, but cannot be read: ", std::string(manifest.status().message())));
    return Found::kForeign;
  }
  return manifest->run_id == run_id ? Found::kComplete : Found::kForeign;
}

// The manifest goes first: a deletion that is cut short leaves an unfinished folder, not a damaged
// checkpoint.
absl::Status DeleteCheckpoint(Fs& fs, const std::string& folder) {
  const std::string manifest = JoinPath(folder, kManifestFile);
  if (fs.Exists(manifest)) {
    STARLING_RETURN_IF_ERROR(fs.Remove(manifest));
    STARLING_RETURN_IF_ERROR(fs.SyncDirectory(folder));
  }
  return fs.RemoveTree(folder);
}

void DeleteOld(Fs& fs, const std::string& checkpoints, const Manifest& newest,
               const CommitOptions& options, CommitReport* report) {
  const auto versions = ListCheckpoints(fs, checkpoints);
  if (!versions.ok()) {
    report->warnings.push_back(std::string(versions.status().message()));
    return;
  }
  int kept = 1;  // the one just completed
  for (const Version version : *versions) {
    if (version >= newest.version) continue;
    const std::string name = FolderName(version);
    const std::string folder = JoinPath(checkpoints, name);
    const Found found = Classify(fs, folder, newest.run_id, report);
    if (found == Found::kForeign) continue;
    const bool counts = !options.ancestry || OnAncestry(*options.ancestry, version);
    if (found == Found::kComplete && counts && kept < options.keep) {
      ++kept;
      continue;
    }
    // A younger unfinished folder may still be in the hands of a slow writer.
    if (found == Found::kUnfinished && kept < options.keep) continue;
    if (absl::Status status = DeleteCheckpoint(fs, folder); !status.ok()) {
      report->warnings.push_back(absl::StrCat(
          "checkpoint ", name, " could not be deleted: ", std::string(status.message())));
      continue;
    }
    report->deleted.push_back(name);
  }
}

}  // namespace

absl::StatusOr<CommitReport> CommitManifest(Fs& fs, const std::string& checkpoints,
                                            const Manifest& manifest,
                                            const CommitOptions& options) {
  if (options.keep < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot keep ", options.keep, " checkpoints; 0 keeps all"));
  }
  const std::string name = FolderName(manifest.version);
  const std::string folder = JoinPath(checkpoints, name);
  if (options.ancestry && !OnAncestry(*options.ancestry, manifest.version)) {
    return absl::InvalidArgumentError(
        absl::StrCat("checkpoint ", name, " is not on the ancestry it is committed under"));
  }
  auto make_durable = [&]() -> absl::Status {
    STARLING_RETURN_IF_ERROR(CheckComplete(manifest));
    STARLING_RETURN_IF_ERROR(CheckParts(fs, folder, manifest));
    STARLING_ASSIGN_OR_RETURN(const std::string text, EncodeManifest(manifest));
    STARLING_RETURN_IF_ERROR(fs.SyncDirectory(folder));
    STARLING_RETURN_IF_ERROR(WriteAtomically(fs, JoinPath(folder, kManifestFile), text));
    STARLING_RETURN_IF_ERROR(fs.SyncDirectory(checkpoints));
    return fs.SyncDirectory(DirectoryOf(checkpoints));
  };
  STARLING_RETURN_IF_ERROR(
      Annotate(make_durable(), absl::StrCat("checkpoint ", name, " is not complete")));
  CommitReport report;
  if (absl::Status status = WriteAtomically(fs, JoinPath(checkpoints, "latest"), name + "\n");
      !status.ok()) {
    report.warnings.push_back(std::string(status.message()));
  }
  if (options.keep > 0) DeleteOld(fs, checkpoints, manifest, options, &report);
  return report;
}

}  // namespace starling::checkpoint
