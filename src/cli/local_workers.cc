#include "cli/local_workers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/run_setup.h"
#include "starling/base/exit_codes.h"
#include "starling/base/fs.h"
#include "starling/base/status.h"

namespace starling::cli {
namespace {

// A life that was a member for so long is a success: the next failure is a first one again.
constexpr absl::Duration kGoodLife = absl::Seconds(2);
constexpr int kHopelessAfter = 3;

// Trying again does not mend what these mean.
bool IsForGood(int exit_code, bool was_member) {
  switch (static_cast<ExitCode>(exit_code)) {
    case ExitCode::kOk:
    case ExitCode::kUsage:
    case ExitCode::kBadData:
    case ExitCode::kMissingInput:
    case ExitCode::kPermission:
    case ExitCode::kConfig:
      return true;
    case ExitCode::kFenced:
      // A member that was dropped may come back as a new incarnation; a worker that was never let
      // in is not let in the next time either.
      return !was_member;
    default:
      return false;
  }
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::string SignalText(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("killed by signal ", signal)
                         : absl::StrCat("killed by signal ", signal, " (SIG", name, ")");
}

// Spawns in a process group of its own, so that the terminal's Ctrl-C is the launcher's alone, with
// no signal blocked or ignored.
absl::StatusOr<pid_t> Spawn(std::vector<std::string> words, std::vector<std::string> environment,
                            const std::string& output) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                   0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const std::string program = words.front();
  pid_t pid = 0;
  const int error = posix_spawn(&pid, program.c_str(), &actions, &attributes,
                                Pointers(words).data(), Pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return pid;
  return WithExitCode(ErrnoStatus(error, absl::StrCat("cannot start ", program)),
                      ExitCode::kOsError);
}

}  // namespace

std::string SlotName(int slot) { return absl::StrCat("w", slot); }

// ---- starting ----------------------------------------------------------------------------------

absl::Status LocalWorkers::FillTo(int target, absl::Time now, std::vector<std::string>* started) {
  int count = 0;
  for (const auto& [number, slot] : slots_) {
    count += slot.pid != 0 && !slot.drained ? 1 : 0;
    count += slot.restart_at != absl::InfiniteFuture() ? 1 : 0;
  }
  // Whoever would come back now is not needed any more; the highest first.
  for (auto it = slots_.rbegin(); it != slots_.rend() && count > target; ++it) {
    if (it->second.restart_at == absl::InfiniteFuture()) continue;
    it->second.restart_at = absl::InfiniteFuture();
    --count;
  }
  for (int number = 0; count < target; ++number) {
    Slot& slot = slots_[number];
    if (slot.pid != 0 || slot.restart_at != absl::InfiniteFuture()) continue;
    slot.failures = 0;
    STARLING_RETURN_IF_ERROR(Start(SlotName(number), &slot, now));
    started->push_back(SlotName(number));
    ++count;
  }
  return absl::OkStatus();
}

absl::Status LocalWorkers::StartDue(absl::Time now, std::vector<std::string>* started) {
  absl::Status result;
  for (auto& [number, slot] : slots_) {
    if (slot.restart_at > now) continue;
    if (absl::Status status = Start(SlotName(number), &slot, now); !status.ok()) {
      ++slot.failures;
      slot.restart_at = now + RestartDelay(slot);
      result.Update(status);
      continue;
    }
    started->push_back(SlotName(number));
  }
  return result;
}

absl::Status LocalWorkers::Start(const std::string& name, Slot* slot, absl::Time now) {
  const std::string output = OutputPath(name);
  struct stat info {};
  slot->output_begin = stat(output.c_str(), &info) == 0 ? info.st_size : 0;
  std::vector<std::string> words{options_.program};
  words.insert(words.end(), options_.arguments.begin(), options_.arguments.end());
  words.insert(words.end(), {"--name", name});
  STARLING_ASSIGN_OR_RETURN(slot->pid, Spawn(std::move(words), options_.environment, output));
  slot->started = now;
  slot->restart_at = absl::InfiniteFuture();
  slot->member = slot->drained = slot->hopeless = false;
  return absl::OkStatus();
}

absl::Time LocalWorkers::NextStart() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [number, slot] : slots_) next = std::min(next, slot.restart_at);
  return next;
}

// ---- what others say ---------------------------------------------------------------------------

void LocalWorkers::NoteMember(const std::string& name) {
  for (auto& [number, slot] : slots_) {
    if (SlotName(number) == name) slot.member = true;
  }
}

void LocalWorkers::NoteDrained(const std::string& name) {
  for (auto& [number, slot] : slots_) {
    if (SlotName(number) != name) continue;
    slot.drained = true;
    slot.restart_at = absl::InfiniteFuture();
  }
}

// ---- ends --------------------------------------------------------------------------------------

std::vector<WorkerEnd> LocalWorkers::Reap(absl::Time now, bool over) {
  std::vector<WorkerEnd> ends;
  for (auto& [number, slot] : slots_) {
    int status = 0;
    if (slot.pid == 0 || waitpid(slot.pid, &status, WNOHANG) != slot.pid) continue;
    ends.push_back(Ended(SlotName(number), &slot, status, now, over));
  }
  return ends;
}

WorkerEnd LocalWorkers::Ended(const std::string& name, Slot* slot, int status, absl::Time now,
                              bool over) {
  WorkerEnd end;
  end.name = name;
  end.pid = slot->pid;
  end.log = NewestLog(name);
  end.reason = LastWords(name, *slot);
  if (WIFSIGNALED(status)) {
    end.exit_code = 128 + WTERMSIG(status);
    end.reason =
        absl::StrCat(SignalText(WTERMSIG(status)), end.reason.empty() ? "" : ": ", end.reason);
  } else {
    end.exit_code = WEXITSTATUS(status);
    if (end.reason.empty()) end.reason = absl::StrCat("exit code ", end.exit_code);
  }
  slot->pid = 0;
  const bool drained = end.exit_code == static_cast<int>(ExitCode::kDrained);
  end.wanted = end.exit_code == 0 || slot->drained || (drained && over);
  slot->hopeless = IsForGood(end.exit_code, slot->member);
  if (slot->member && now - slot->started >= kGoodLife) slot->failures = 0;
  if (end.wanted) return end;
  slot->failures += drained ? 0 : 1;
  if (over || slot->hopeless || !options_.restart_delay) return end;
  end.restart_in = RestartDelay(*slot);
  slot->restart_at = now + *end.restart_in;
  return end;
}

absl::Duration LocalWorkers::RestartDelay(const Slot& slot) const {
  const int doublings = std::clamp(slot.failures - 1, 0, 20);
  return std::min(options_.restart_delay_limit, *options_.restart_delay * (1 << doublings));
}

bool LocalWorkers::AllGone() const { return alive() == 0 && NextStart() == absl::InfiniteFuture(); }

bool LocalWorkers::AllHopeless() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const auto& entry) {
    const Slot& slot = entry.second;
    return slot.hopeless || (slot.failures >= kHopelessAfter && !slot.member);
  });
}

int LocalWorkers::alive() const {
  return static_cast<int>(std::count_if(slots_.begin(), slots_.end(),
                                        [](const auto& entry) { return entry.second.pid != 0; }));
}

void LocalWorkers::Signal(int signal) {
  for (const auto& [number, slot] : slots_) {
    if (slot.pid != 0) kill(slot.pid, signal);
  }
}

// ---- what they left ----------------------------------------------------------------------------

std::string LocalWorkers::OutputPath(const std::string& name) const {
  return JoinPath(options_.log_folder, absl::StrCat(FileNameOf(name), ".out"));
}

// By time, because names of logs carry random numbers.
std::string LocalWorkers::NewestLog(const std::string& name) const {
  std::string newest = OutputPath(name);
  int64_t newest_ns = -1;
  const auto files = RealFs().List(options_.log_folder);
  if (!files.ok()) return newest;
  for (const std::string& file : *files) {
    if (!absl::StartsWith(file, FileNameOf(name) + ".") || !absl::EndsWith(file, ".log")) continue;
    const std::string path = JoinPath(options_.log_folder, file);
    struct stat info {};
    if (stat(path.c_str(), &info) != 0) continue;
    const int64_t ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
    if (ns > newest_ns) {
      newest_ns = ns;
      newest = path;
    }
  }
  return newest;
}

// The last line that this life wrote on its standard output or error; "" when that is a mere
// warning, which ended nothing.
std::string LocalWorkers::LastWords(const std::string& name, const Slot& slot) const {
  const auto content = RealFs().Read(OutputPath(name));
  if (!content.ok() || static_cast<int64_t>(content->size()) <= slot.output_begin) return "";
  const std::string words = content->substr(static_cast<size_t>(slot.output_begin));
  const std::vector<std::string> lines = absl::StrSplit(words, '\n', absl::SkipWhitespace());
  if (lines.empty()) return "";
  std::string last = lines.back();
  if (absl::StartsWith(last, "warning: ")) return "";
  for (const std::string& prefix :
       {std::string("starling-worker: "), std::string("starling: "), absl::StrCat(name, ": ")}) {
    if (absl::StartsWith(last, prefix)) last = last.substr(prefix.size());
  }
  return last;
}

}  // namespace starling::cli
