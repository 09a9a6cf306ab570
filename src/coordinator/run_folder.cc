#include "coordinator/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "coordinator/records.h"
#include "starling/base/host.h"
#include "starling/base/log.h"
#include "starling/base/status.h"
#include "starling/checkpoint/reader.h"

namespace starling::coordinator {
namespace {

using membership::CheckpointRecord;

std::string ReadFd(int fd) {
  char text[512];
  const ssize_t got = pread(fd, text, sizeof(text), 0);
  return got <= 0 ? ""
                  : std::string(absl::StripAsciiWhitespace(
                        absl::string_view(text, static_cast<size_t>(got))));
}

// The end of a file of lines: the last whole line that counts, and how many bytes the file has up
// to the end of the last whole one.
struct Tail {
  std::string last_line;
  uint64_t whole_bytes = 0;
};

bool AnyLine(std::string_view) { return true; }
// An evaluation is written when it is done, behind the lines of steps that came after its version.
bool NoEvaluation(std::string_view line) { return !IsEvaluation(line); }

Tail ReadTail(const std::string& path, uint64_t bytes, bool (*counts)(std::string_view line)) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  // Grows backwards until it holds a whole line that counts, or everything.
  for (uint64_t window = 64 << 10;; window *= 4) {
    const uint64_t begin = bytes > window ? bytes - window : 0;
    text.resize(bytes - begin);
    file.clear();
    file.seekg(static_cast<std::streamoff>(begin));
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(file.gcount()));
    const size_t last = text.rfind('\n');
    for (size_t end = last; end != std::string::npos;) {
      const size_t before = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
      if (before == std::string::npos && begin > 0) break;  // its beginning is not in the window
      const size_t start = before == std::string::npos ? 0 : before + 1;
      std::string line = text.substr(start, end - start);
      if (counts(line)) return Tail{std::move(line), begin + last + 1};
      end = before;
    }
    if (begin == 0) return Tail{"", last == std::string::npos ? 0 : last + 1};
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<FolderLock>> FolderLock::Take(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot create ", path));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    const std::string holder = ReadFd(fd);
    close(fd);
    if (error != EWOULDBLOCK) return ErrnoStatus(error, absl::StrCat("cannot lock ", path));
    return absl::AlreadyExistsError(
        absl::StrCat("another coordinator holds this run (", path,
                     "): ", holder.empty() ? "it has not said who it is" : holder));
  }
  const std::string holder = absl::StrCat("pid ", getpid(), " on host ", HostId(), "\n");
  if (ftruncate(fd, 0) != 0 ||
      pwrite(fd, holder.data(), holder.size(), 0) != static_cast<ssize_t>(holder.size())) {
    const int error = errno;
    close(fd);
    return ErrnoStatus(error, absl::StrCat("cannot write ", path));
  }
  return std::unique_ptr<FolderLock>(new FolderLock(fd));
}

FolderLock::~FolderLock() { close(fd_); }

absl::StatusOr<std::unique_ptr<RunFolder>> RunFolder::Open(Fs* fs, const std::string& path) {
  std::unique_ptr<RunFolder> folder(new RunFolder(fs, path));
  STARLING_RETURN_IF_ERROR(fs->MakeDirectories(JoinPath(path, "journal")));
  STARLING_RETURN_IF_ERROR(fs->MakeDirectories(folder->checkpoints()));
  STARLING_ASSIGN_OR_RETURN(folder->lock_, FolderLock::Take(JoinPath(path, "journal/lock")));
  STARLING_RETURN_IF_ERROR(folder->ReadJournal());
  STARLING_RETURN_IF_ERROR(folder->FindCheckpoints());
  STARLING_ASSIGN_OR_RETURN(
      folder->ledger_, folder->OpenLines("ledger.jsonl", &AnyLine, &folder->restored_.ledger_last));
  STARLING_ASSIGN_OR_RETURN(
      folder->metrics_, folder->OpenLines("metrics.jsonl", &NoEvaluation, &folder->metrics_last_));
  STARLING_ASSIGN_OR_RETURN(folder->events_, folder->OpenLines("events.jsonl", &AnyLine, nullptr));
  return folder;
}

absl::Status RunFolder::ReadJournal() {
  const std::string path = JoinPath(path_, "journal/journal.bin");
  if (fs_->Exists(path)) {
    STARLING_ASSIGN_OR_RETURN(const std::string bytes, fs_->Read(path));
    absl::StatusOr<membership::JournalContent> content = membership::DecodeJournal(bytes);
    if (!content.ok()) return Annotate(content.status(), path);
    restored_ = std::move(content->state);
    if (content->valid_bytes < bytes.size()) {
      STARLING_LOG(Warning) << "cut a torn record off " << path << " at byte "
                            << content->valid_bytes;
      STARLING_RETURN_IF_ERROR(fs_->Truncate(path, content->valid_bytes));
    }
  }
  STARLING_ASSIGN_OR_RETURN(journal_, fs_->OpenAppend(path));
  return fs_->SyncDirectory(JoinPath(path_, "journal"));
}

// The disk knows better than the journal which checkpoints are there: retention deletes old ones,
// and a journal may be lost.
absl::Status RunFolder::FindCheckpoints() {
  STARLING_ASSIGN_OR_RETURN(const std::vector<Version> found,
                            checkpoint::ListCheckpoints(*fs_, checkpoints()));
  std::vector<CheckpointRecord> present;
  for (const Version version : found) {
    const std::string name = checkpoint::FolderName(version);
    const std::string folder = JoinPath(checkpoints(), name);
    if (!fs_->Exists(JoinPath(folder, checkpoint::kManifestFile))) continue;
    if (restored_.bad_checkpoints.contains(name)) continue;
    present.push_back({name, version, true});
  }
  std::reverse(present.begin(), present.end());  // oldest first
  restored_.checkpoints = std::move(present);
  return absl::OkStatus();
}

// Opens a file of JSON lines, cut to its last whole line; the version of the last one that counts
// goes to *last.
absl::StatusOr<std::unique_ptr<WritableFile>> RunFolder::OpenLines(
    const std::string& name, bool (*counts)(std::string_view line), std::optional<Version>* last) {
  const std::string path = JoinPath(path_, name);
  uint64_t bytes = 0;
  if (fs_->Exists(path)) {
    STARLING_ASSIGN_OR_RETURN(bytes, fs_->Size(path));
  }
  if (bytes > 0) {
    const Tail tail = ReadTail(path, bytes, counts);
    if (tail.whole_bytes < bytes) {
      STARLING_LOG(Warning) << "cut a torn line off " << path << " at byte " << tail.whole_bytes;
      STARLING_RETURN_IF_ERROR(fs_->Truncate(path, tail.whole_bytes));
    }
    if (last != nullptr && !tail.last_line.empty()) {
      *last = VersionOfLine(tail.last_line);
      if (!*last) {
        return absl::DataLossError(absl::StrCat(
            path, ": the last line names no timeline and step: ", tail.last_line.substr(0, 100)));
      }
    }
  }
  return fs_->OpenAppend(path);
}

absl::Status RunFolder::AppendJournal(const membership::JournalRecord& record) {
  journal_dirty_ = true;
  return journal_->Append(membership::EncodeRecord(record));
}

absl::Status RunFolder::SyncJournal() {
  if (!journal_dirty_) return absl::OkStatus();
  STARLING_RETURN_IF_ERROR(journal_->Sync());
  journal_dirty_ = false;
  return absl::OkStatus();
}

absl::Status RunFolder::AppendLedger(std::string_view line) {
  ledger_dirty_ = true;
  return ledger_->Append(line);
}

absl::Status RunFolder::SyncLedger() {
  if (!ledger_dirty_) return absl::OkStatus();
  STARLING_RETURN_IF_ERROR(ledger_->Sync());
  ledger_dirty_ = false;
  return absl::OkStatus();
}

absl::Status RunFolder::WriteEndpoint(const std::string& endpoint) {
  return WriteAtomically(*fs_, JoinPath(path_, "endpoint"), endpoint + "\n");
}

void RunFolder::RemoveEndpoint() {
  // A client that finds the old address is told that nobody answers: no harm in a failure here.
  (void)fs_->Remove(JoinPath(path_, "endpoint"));
}

absl::Status RunFolder::WriteHttp(const std::string& address) {
  return WriteAtomically(*fs_, JoinPath(path_, "http"), address + "\n");
}

}  // namespace starling::coordinator
