#include "cli/terminal.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "starling/base/fs.h"
#include "starling/base/status.h"

namespace starling::cli {

int Fail(ExitCode code, std::string_view message) {
  Note(std::string("starling: ") + std::string(message));
  return static_cast<int>(code);
}

int Fail(const absl::Status& status) {
  return Fail(ExitCodeFor(status), std::string(status.message()));
}

void Note(std::string_view message) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(message.size()), message.data());
}

std::string ShortCount(double count) {
  static constexpr const char* kUnits[] = {"", " k", " M", " G", " T"};
  int unit = 0;
  while (count >= 1000 && unit < 4) {
    count /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.*f%s", unit == 0 ? 0 : 1, count, kUnits[unit]);
}

std::string ShortTime(double seconds) {
  if (!(seconds > 0)) return "0s";
  const auto total = static_cast<int64_t>(seconds);
  const int64_t days = total / 86400, hours = total / 3600 % 24, minutes = total / 60 % 60;
  if (days > 0) return absl::StrFormat("%dd%dh", days, hours);
  if (hours > 0) return absl::StrFormat("%dh%dm", hours, minutes);
  if (minutes > 0) return absl::StrFormat("%dm%ds", minutes, total % 60);
  return absl::StrFormat("%ds", total);
}

int CheckFolderWritable(const std::string& key, const std::string& folder) {
  std::string existing = folder;
  while (!RealFs().Exists(existing) && DirectoryOf(existing) != existing) {
    existing = DirectoryOf(existing);
  }
  struct stat info {};
  const bool is_folder = stat(existing.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  if (!is_folder) {
    return Fail(ExitCode::kCannotCreate,
                absl::StrCat(key, ": folder ", folder, " cannot be created: ", existing,
                             " is not a folder"));
  }
  if (access(existing.c_str(), W_OK | X_OK) == 0) return 0;
  return Fail(ErrnoStatus(errno, absl::StrCat(key, ": folder ", existing, " is not writable")));
}

int CheckOutputFile(const std::string& key, const std::string& path,
                    const std::vector<std::string>& inputs) {
  if (path.empty() || path.back() == '/') {
    return Fail(ExitCode::kUsage, absl::StrCat(key, ": \"", path, "\" is no name of a file"));
  }
  const int folder_code = CheckFolderWritable(key, DirectoryOf(path));
  if (folder_code != 0) return folder_code;
  struct stat output {};
  if (stat(path.c_str(), &output) != 0) return 0;
  if (!S_ISREG(output.st_mode)) {
    return Fail(ExitCode::kCannotCreate,
                absl::StrCat(key, ": ", path, S_ISDIR(output.st_mode) ? " is a folder" : "",
                             S_ISDIR(output.st_mode) ? "; name a file in it"
                                                     : " is no ordinary file; name another one"));
  }
  for (const std::string& input : inputs) {
    struct stat info {};
    if (stat(input.c_str(), &info) != 0) continue;
    if (info.st_dev != output.st_dev || info.st_ino != output.st_ino) continue;
    return Fail(ExitCode::kUsage, absl::StrCat(key, ": ", path,
                                               " is one of the files to read, and would be "
                                               "overwritten; name another one"));
  }
  return 0;
}

absl::StatusOr<std::string> SiblingProgram(const std::string& name) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  const std::string folder =
      length > 0 ? DirectoryOf(std::string(self, static_cast<size_t>(length))) : ".";
  std::string program = JoinPath(folder, name);
  if (access(program.c_str(), X_OK) == 0) return program;
  return WithExitCode(
      absl::NotFoundError(absl::StrCat(program, " is not there: build it beside `starling`")),
      ExitCode::kOsError);
}

}  // namespace starling::cli
