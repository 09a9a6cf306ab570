// The file system as an interface, so that tests can make it fail at any call. Paths are plain
// strings. Thread-safe. Errors name the path; codes as ErrnoStatus.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace starling {

// A file open for appending. Not thread-safe. Closing happens in the destructor; whoever needs the
// bytes on the disk calls Sync first.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual absl::Status Append(std::string_view data) = 0;  // all of it, or an error
  virtual absl::Status Sync() = 0;                         // fsync
  virtual absl::Status Close() = 0;                        // idempotent
};

class Fs {
 public:
  virtual ~Fs() = default;

  // Creates or truncates.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  // Replaces what is there by a file that only its owner may read and write (mode 0600).
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> CreatePrivate(const std::string& path) = 0;
  // Creates or continues at the end.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path) = 0;
  virtual absl::StatusOr<std::string> Read(const std::string& path) = 0;
  virtual absl::StatusOr<uint64_t> Size(const std::string& path) = 0;
  virtual bool Exists(const std::string& path) = 0;
  // Names (not paths) in byte order, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& directory) = 0;
  virtual absl::Status MakeDirectories(const std::string& path) = 0;  // as mkdir -p
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Remove(const std::string& path) = 0;      // file; missing is an error
  virtual absl::Status RemoveTree(const std::string& path) = 0;  // missing is fine
  virtual absl::Status Truncate(const std::string& path, uint64_t bytes) = 0;
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
};

// The operating system's. Never destroyed.
Fs& RealFs();

// Writes `data` under a temporary name in the same folder, syncs it, renames it over `path` and
// syncs the folder: after a crash the old content or the new one is there, whole. On failure the
// old file is untouched and the temporary one removed.
absl::Status WriteAtomically(Fs& fs, const std::string& path, std::string_view data);
// As WriteAtomically; the file and the temporary one are private to their owner.
absl::Status WritePrivately(Fs& fs, const std::string& path, std::string_view data);

// Folder part of a path ("." when it has none), and `a`/`b` joined by one slash.
std::string DirectoryOf(const std::string& path);
std::string JoinPath(std::string_view a, std::string_view b);

}  // namespace starling
