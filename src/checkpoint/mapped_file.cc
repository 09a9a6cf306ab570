#include "checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "starling/base/status.h"

namespace starling::checkpoint {

absl::StatusOr<MappedFile> MapFile(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe put in the place of a file would wait for ever.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", path));
  struct stat info;
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const size_t bytes = regular ? static_cast<size_t>(info.st_size) : 0;
  void* memory = bytes > 0 ? mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0) : nullptr;
  const int error = errno;
  close(fd);
  if (!regular) return absl::DataLossError(absl::StrCat(path, " is not a regular file"));
  if (memory == MAP_FAILED) return ErrnoStatus(error, absl::StrCat("cannot map ", path));
  if (memory == nullptr) return MappedFile{};
  std::shared_ptr<const void> owner(
      memory, [bytes](const void* address) { munmap(const_cast<void*>(address), bytes); });
  return MappedFile{std::move(owner), {static_cast<const char*>(memory), bytes}};
}

}  // namespace starling::checkpoint
