#include "starling/base/host.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "starling/base/fs.h"

namespace starling {
namespace {

// Bit of /proc/<pid>/stat's flags: the process has begun to exit (PF_EXITING).
constexpr unsigned kExiting = 0x4;

std::string MakeHostId() {
  char name[256] = "localhost";
  gethostname(name, sizeof(name) - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return boot.empty() ? name : std::string(name) + "-" + boot.substr(0, 8);
}

}  // namespace

const std::string& HostId() {
  static const std::string& id = *new std::string(MakeHostId());
  return id;
}

bool ProcessIsGone(int64_t pid) {
  if (pid <= 0) return true;
  if (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return true;
  // Opening and reading may each find it gone: it dies at any moment.
  const absl::StatusOr<std::string> text = RealFs().Read(absl::StrCat("/proc/", pid, "/stat"));
  if (!text.ok()) return kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
  const size_t name_end = text->rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return false;
  std::istringstream fields(text->substr(name_end + 1));
  char state = 0;
  int64_t parent, group, session, terminal, terminal_group;
  unsigned flags = 0;
  fields >> state >> parent >> group >> session >> terminal >> terminal_group >> flags;
  return fields && (state == 'Z' || state == 'X' || (flags & kExiting) != 0);
}

}  // namespace starling
