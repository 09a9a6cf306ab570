// Reading checkpoints. Nothing is handed out before the manifest's checksum, the completeness of
// its ranges, and every part's size, checksum, header and identity have been checked: a damaged or
// half-written checkpoint is never loaded. Functions and an immutable object; thread-safe. They
// block on the disk: opening reads every byte once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "starling/base/fs.h"
#include "starling/base/ids.h"
#include "starling/checkpoint/manifest.h"

namespace starling::checkpoint {

// A checked checkpoint with its parts mapped. Cheap to move.
class Checkpoint {
 public:
  const Manifest& manifest() const { return manifest_; }

  // Shape of the parameter `name`; NotFound when the checkpoint has none of that name.
  absl::StatusOr<std::vector<int64_t>> Shape(std::string_view name) const;

  // Copies elements [begin, end) of the flattened tensor into `out`, which has room for them.
  // NotFound without that tensor; InvalidArgument for a range outside it or a type other than F32.
  absl::Status ReadInto(std::string_view name, TensorKind kind, int64_t begin, int64_t end,
                        float* out) const;

 private:
  friend absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& folder);

  struct Piece {
    TensorRange range;
    std::string_view data;
  };
  using Key = std::pair<std::string, TensorKind>;

  const std::vector<Piece>* FindPieces(std::string_view name, TensorKind kind) const;

  Manifest manifest_;
  std::map<Key, std::vector<Piece>> pieces_;         // by begin, without holes
  std::vector<std::shared_ptr<const void>> owners_;  // the mappings behind the pieces
};

// Opens and checks the checkpoint in `folder` (`…/step-<N>.t<timeline>`, or a copy of one under any
// other name). NotFound without a manifest (it was never completed); DataLoss, naming file and
// reason, for damage; FailedPrecondition for a manifest of a newer version.
absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& folder);

// The status of OpenCheckpoint: OK when everything can be loaded, or what is wrong.
absl::Status Verify(const std::string& folder);

// The versions whose folders stand below `checkpoints`, newest first: by timeline, then by step, as
// numbers. Says nothing about their content; without a manifest a folder is no checkpoint. Empty
// when `checkpoints` does not exist.
absl::StatusOr<std::vector<Version>> ListCheckpoints(Fs& fs, const std::string& checkpoints);

}  // namespace starling::checkpoint
