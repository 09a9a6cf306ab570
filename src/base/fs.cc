#include "starling/base/fs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "starling/base/status.h"

namespace starling {
namespace {

absl::Status Failed(std::string_view action, const std::string& path, int error = errno) {
  return ErrnoStatus(error, absl::StrCat("cannot ", std::string(action), " ", path));
}

class RealFile final : public WritableFile {
 public:
  RealFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~RealFile() override {
    if (fd_ >= 0) close(fd_);
  }

  absl::Status Append(std::string_view data) override {
    while (!data.empty()) {
      const ssize_t written = write(fd_, data.data(), data.size());
      if (written < 0) {
        if (errno == EINTR) continue;
        return Failed("write", path_);
      }
      data.remove_prefix(static_cast<size_t>(written));
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    return fsync(fd_) == 0 ? absl::OkStatus() : Failed("sync", path_);
  }

  absl::Status Close() override {
    if (fd_ < 0) return absl::OkStatus();
    const int result = close(fd_);
    fd_ = -1;
    return result == 0 ? absl::OkStatus() : Failed("close", path_);
  }

 private:
  int fd_;
  std::string path_;
};

class OperatingSystemFs final : public Fs {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    return Open(path, O_TRUNC);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> CreatePrivate(const std::string& path) override {
    unlink(path.c_str());  // it may have another mode, or be open somewhere
    return Open(path, O_EXCL, 0600);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenAppend(const std::string& path) override {
    return Open(path, O_APPEND);
  }

  absl::StatusOr<std::string> Read(const std::string& path) override {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return Failed("open", path);
    std::string data;
    struct stat info;
    if (fstat(fd, &info) == 0 && info.st_size > 0) data.reserve(static_cast<size_t>(info.st_size));
    char buffer[1 << 16];
    for (;;) {
      const ssize_t got = read(fd, buffer, sizeof(buffer));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        const int error = errno;
        close(fd);
        return Failed("read", path, error);
      }
      if (got == 0) break;
      data.append(buffer, static_cast<size_t>(got));
    }
    close(fd);
    return data;
  }

  absl::StatusOr<uint64_t> Size(const std::string& path) override {
    struct stat info;
    if (stat(path.c_str(), &info) != 0) return Failed("stat", path);
    return static_cast<uint64_t>(info.st_size);
  }

  bool Exists(const std::string& path) override { return access(path.c_str(), F_OK) == 0; }

  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override {
    std::error_code error;
    std::vector<std::string> names;
    for (std::filesystem::directory_iterator it(directory, error), end; !error && it != end;
         it.increment(error)) {
      names.push_back(it->path().filename().string());
    }
    if (error) return Failed("list", directory, error.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::Status MakeDirectories(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    return error ? Failed("create folder", path, error.value()) : absl::OkStatus();
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return rename(from.c_str(), to.c_str()) == 0 ? absl::OkStatus()
                                                 : Failed("rename", absl::StrCat(from, " to ", to));
  }
  absl::Status Remove(const std::string& path) override {
    return unlink(path.c_str()) == 0 ? absl::OkStatus() : Failed("remove", path);
  }
  absl::Status RemoveTree(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    return error ? Failed("remove", path, error.value()) : absl::OkStatus();
  }
  absl::Status Truncate(const std::string& path, uint64_t bytes) override {
    return truncate(path.c_str(), static_cast<off_t>(bytes)) == 0 ? absl::OkStatus()
                                                                  : Failed("truncate", path);
  }

  absl::Status SyncDirectory(const std::string& path) override {
    const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return Failed("open folder", path);
    const int result = fsync(fd);
    const int error = errno;
    close(fd);
    return result == 0 ? absl::OkStatus() : Failed("sync folder", path, error);
  }

 private:
  absl::StatusOr<std::unique_ptr<WritableFile>> Open(const std::string& path, int flags,
                                                     mode_t mode = 0644) {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, mode);
    if (fd < 0) return Failed("open for writing", path);
    return std::make_unique<RealFile>(fd, path);
  }
};

using File = absl::StatusOr<std::unique_ptr<WritableFile>>;

absl::Status Replace(Fs& fs, File (Fs::*create)(const std::string&), const std::string& path,
                     std::string_view data) {
  const std::string temporary = absl::StrCat(path, ".tmp.", getpid());
  auto write_and_rename = [&]() -> absl::Status {
    STARLING_ASSIGN_OR_RETURN(auto file, (fs.*create)(temporary));
    STARLING_RETURN_IF_ERROR(file->Append(data));
    STARLING_RETURN_IF_ERROR(file->Sync());
    STARLING_RETURN_IF_ERROR(file->Close());
    return fs.Rename(temporary, path);
  };
  if (absl::Status status = write_and_rename(); !status.ok()) {
    if (fs.Exists(temporary)) fs.Remove(temporary).IgnoreError();
    return status;
  }
  return fs.SyncDirectory(DirectoryOf(path));
}

}  // namespace

Fs& RealFs() {
  static Fs& fs = *new OperatingSystemFs;
  return fs;
}

absl::Status WriteAtomically(Fs& fs, const std::string& path, std::string_view data) {
  return Replace(fs, &Fs::Create, path, data);
}

absl::Status WritePrivately(Fs& fs, const std::string& path, std::string_view data) {
  return Replace(fs, &Fs::CreatePrivate, path, data);
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string JoinPath(std::string_view a, std::string_view b) {
  if (a.empty()) return std::string(b);
  std::string joined(a);
  if (joined.back() != '/') joined += '/';
  return joined.append(b);
}

}  // namespace starling
