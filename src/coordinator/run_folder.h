// The run folder as the coordinator keeps it: lock, journal, ledger, metrics, events, endpoint. It
// is opened once, by the driver, and used by the driver's thread. Not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "starling/base/fs.h"
#include "starling/membership/journal.h"

namespace starling::coordinator {

// Holds `journal/lock` for the life of the object; the kernel lets it go when the process dies.
class FolderLock {
 public:
  // AlreadyExists, saying who holds it (process and host, as the holder wrote them).
  static absl::StatusOr<std::unique_ptr<FolderLock>> Take(const std::string& path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  const int fd_;
};

class RunFolder {
 public:
  // Creates the folder, takes the lock, reads what is there and repairs torn tails. Errors as
  // Driver::Start.
  static absl::StatusOr<std::unique_ptr<RunFolder>> Open(Fs* fs, const std::string& path);

  const std::string& path() const { return path_; }
  std::string checkpoints() const { return JoinPath(path_, "checkpoints"); }
  // As read at Open: the journal's content with the checkpoints that are really on the disk and the
  // ledger's last line.
  const membership::RestoredState& restored() const { return restored_; }
  // Of the last step in metrics.jsonl: steps up to it were shown by an earlier coordinator.
  const std::optional<Version>& metrics_last() const { return metrics_last_; }

  absl::Status AppendJournal(const membership::JournalRecord& record);
  absl::Status SyncJournal();  // nothing to do when nothing was appended
  absl::Status AppendLedger(std::string_view line);
  absl::Status SyncLedger();
  absl::Status AppendMetrics(std::string_view line) { return metrics_->Append(line); }
  absl::Status AppendEvents(std::string_view line) { return events_->Append(line); }
  absl::Status WriteEndpoint(const std::string& endpoint);
  void RemoveEndpoint();
  absl::Status WriteHttp(const std::string& address);

 private:
  RunFolder(Fs* fs, std::string path) : fs_(fs), path_(std::move(path)) {}
  absl::Status ReadJournal();
  absl::Status FindCheckpoints();
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenLines(const std::string& name,
                                                          bool (*counts)(std::string_view line),
                                                          std::optional<Version>* last);

  Fs* const fs_;
  const std::string path_;
  std::unique_ptr<FolderLock> lock_;
  membership::RestoredState restored_;
  std::optional<Version> metrics_last_;
  std::unique_ptr<WritableFile> journal_, ledger_, metrics_, events_;
  bool journal_dirty_ = false;  // appended and not synced
  bool ledger_dirty_ = false;
};

}  // namespace starling::coordinator
