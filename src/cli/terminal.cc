#include "cli/terminal.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"

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

}  // namespace starling::cli
