// Real processes: one of three ranks gets SIGKILL, inside a collective, between two, or by an
// injected fault, and every survivor learns it at once. Prints how long it took.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/fd.h"

extern char** environ;

namespace starling::comm {
namespace {

constexpr int kUnavailable = 14;  // absl::StatusCode, as rank_process prints it
constexpr int kPatienceMs = 60000;

// A rank_process; killed and reaped with the object.
class Child {
 public:
  Child(int rank, const std::string& path, const std::string& mode, const std::string& fault) {
    int in[2];
    int out[2];
    REQUIRE(pipe2(in, O_CLOEXEC) == 0);
    REQUIRE(pipe2(out, O_CLOEXEC) == 0);
    in_ = UniqueFd(in[1]);
    out_ = UniqueFd(out[0]);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    std::vector<std::string> words = {RANK_PROCESS, absl::StrCat(rank), path, "65536", mode};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::string variable = "STARLING_FAULT=" + fault;
    std::vector<char*> environment;
    for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
    environment.push_back(variable.data());
    environment.push_back(nullptr);
    const int rc =
        posix_spawn(&pid_, RANK_PROCESS, &actions, nullptr, argv.data(), environment.data());
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    REQUIRE(rc == 0);
  }
  ~Child() {
    Kill();
    if (!reaped_) waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;

  void Kill() {
    if (!reaped_) kill(pid_, SIGKILL);
  }
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    reaped_ = true;
    return status;
  }
  void Say(const std::string& text) {
    REQUIRE(write(in_.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  }
  // The next line; fails the test when it does not come or the process is gone.
  std::string Line() {
    size_t end = 0;
    while ((end = buffer_.find('\n')) == std::string::npos) {
      pollfd readable = {out_.get(), POLLIN, 0};
      REQUIRE(poll(&readable, 1, kPatienceMs) == 1);
      char bytes[256];
      const ssize_t n = read(out_.get(), bytes, sizeof(bytes));
      REQUIRE(n > 0);
      buffer_.append(bytes, static_cast<size_t>(n));
    }
    const std::string line = buffer_.substr(0, end);
    buffer_.erase(0, end + 1);
    return line;
  }

 private:
  pid_t pid_ = -1;
  bool reaped_ = false;
  UniqueFd in_;
  UniqueFd out_;
  std::string buffer_;
};

using Children = std::vector<std::unique_ptr<Child>>;

Children StartGroup(const std::string& path, const std::vector<std::string>& modes,
                    const std::string& fault) {
  Children children;
  for (size_t rank = 0; rank < modes.size(); ++rank) {
    children.push_back(std::make_unique<Child>(static_cast<int>(rank), path, modes[rank], fault));
  }
  std::string group = absl::StrCat(children.size(), "\n");
  for (auto& child : children) absl::StrAppend(&group, child->Line(), "\n");
  for (auto& child : children) child->Say(group);
  return children;
}

int64_t MonotonicNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

struct End {
  int code = 0;
  int64_t at_ns = 0;
  std::vector<int> suspects;
};

End EndOf(Child& child) {
  std::istringstream line(child.Line());
  std::string word;
  End end;
  line >> word >> end.code >> end.at_ns;
  REQUIRE(word == "end");
  for (int suspect = 0; line >> suspect;) end.suspects.push_back(suspect);
  return end;
}

void CheckSurvivor(Child& child, int victim, int64_t killed_ns) {
  const End end = EndOf(child);
  CHECK(end.code == kUnavailable);
  CHECK(end.suspects == std::vector<int>{victim});
  CHECK(end.at_ns - killed_ns < 1000000000);
  std::cout << "survivor noticed after " << static_cast<double>(end.at_ns - killed_ns) / 1e6
            << " ms\n";
}

TEST_CASE("SIGKILL: of a rank in the middle of small calls, survivors are Unavailable within 1 s",
          "[comm]") {
  const std::string path = GENERATE("tcp", "shared");
  const size_t victim = GENERATE(0, 1, 2);
  CAPTURE(path, victim);
  Children children = StartGroup(path, {"loop", "loop", "loop"}, "");
  for (auto& child : children) REQUIRE(child->Line() == "ready");
  const int64_t killed_ns = MonotonicNs();
  children[victim]->Kill();
  for (size_t rank = 0; rank < 3; ++rank) {
    if (rank != victim) CheckSurvivor(*children[rank], static_cast<int>(victim), killed_ns);
  }
}

TEST_CASE("SIGKILL: of a rank outside the call in which the others are blocked", "[comm]") {
  const std::string path = GENERATE("tcp", "shared");
  const size_t victim = GENERATE(0, 2);
  CAPTURE(path, victim);
  std::vector<std::string> modes(3, "block");
  modes[victim] = "idle";
  Children children = StartGroup(path, modes, "");
  for (auto& child : children) REQUIRE(child->Line() == "ready");
  const int64_t killed_ns = MonotonicNs();
  children[victim]->Kill();
  for (size_t rank = 0; rank < 3; ++rank) {
    if (rank != victim) CheckSurvivor(*children[rank], static_cast<int>(victim), killed_ns);
  }
}

TEST_CASE("SIGKILL: by an injected fault right before the fifth call", "[comm]") {
  const std::string path = GENERATE("tcp", "shared");
  CAPTURE(path);
  Children children = StartGroup(path, {"block", "block", "block"}, "kill@gen=1,rank=1,call=5");
  for (auto& child : children) REQUIRE(child->Line() == "ready");
  const int status = children[1]->Wait();
  const int64_t killed_ns = MonotonicNs();
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGKILL);
  CheckSurvivor(*children[0], 1, killed_ns);
  CheckSurvivor(*children[2], 1, killed_ns);
}

}  // namespace
}  // namespace starling::comm
