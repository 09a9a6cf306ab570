// Writing checkpoints: parts by workers, the manifest by the coordinator. Nothing that exists is
// ever written to: files appear under their final name whole and synced, so a crash at any moment
// leaves earlier checkpoints as they were. Functions; thread-safe for different files. They block
// on the disk: workers call WritePart through AsyncWriter.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "starling/base/ancestry.h"
#include "starling/base/fs.h"
#include "starling/base/ids.h"
#include "starling/checkpoint/manifest.h"

namespace starling::checkpoint {

// Who writes a part, and of what. All of it goes into the file's name or header, so that parts of
// different views, lives and histories never meet under one name and a mixed set is refused.
struct PartSpec {
  std::string run_id;
  Version version;
  Generation generation;    // of the view in which the snapshot was taken
  Incarnation incarnation;  // of the writer
  Rank rank;                // of the writer in that view
  int sequence = 0;         // tells apart several parts of one writer for one snapshot
};

// `part-t<timeline>-g<generation>-r<rank>-<incarnation>.<sequence>.safetensors`.
std::string PartFileName(const PartSpec& spec);
// The part's "__metadata__": the fields of `spec` under names that begin with "starling.".
std::map<std::string, std::string> PartMetadata(const PartSpec& spec);

// Elements of one tensor to be written. `data` is little-endian, (end - begin) × element size
// bytes, owned by the caller until the write has returned.
struct TensorSlice {
  TensorRange range;
  std::string_view data;
};

// Writes `slices` as one safetensors file into `folder` (created when absent, as is its parent):
// temporary name, sync, rename, sync of both folders. When it returns, the part is durable. Slices
// of one tensor that follow each other are joined, so a tensor that is here whole has its plain
// name and true shape. InvalidArgument for wrong ranges or sizes and slices that overlap;
// FailedPrecondition when the folder already has a manifest (the checkpoint is complete and belongs
// to nobody any more); else the file system's error. After a failure no file of that name is there
// and the temporary one is removed, when the disk still allows it.
absl::StatusOr<Part> WritePart(Fs& fs, const std::string& folder, const PartSpec& spec,
                               std::span<const TensorSlice> slices);

struct CommitOptions {
  int keep = 3;                      // complete checkpoints to keep, this one included; 0 = all
  std::optional<Ancestry> ancestry;  // without it every timeline of this run counts
};

struct CommitReport {
  std::vector<std::string> deleted;   // folder names
  std::vector<std::string> warnings;  // sentences: `latest` not replaced, an old one not deleted
};

// Completes the checkpoint manifest.version: checks that the manifest is complete and that every
// part is there with its size, writes `manifest.json` atomically, syncs the folders, replaces
// `<checkpoints>/latest` (text: the folder's name) and deletes older checkpoints of the same run
// beyond `keep`, those of abandoned timelines, and older folders that never got a manifest. Other
// folders and files are left alone.
// OK means: the checkpoint is durable; what failed after that is in `warnings`. After an error the
// older checkpoints and `latest` are as before, and the call can be repeated.
absl::StatusOr<CommitReport> CommitManifest(Fs& fs, const std::string& checkpoints,
                                            const Manifest& manifest, const CommitOptions& options);

}  // namespace starling::checkpoint
