// Waiting for what a program writes, without looking at a clock: the kernel says when a file in its
// folders changes and when it ends. One thread.
#pragma once

#include <poll.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace starling::testing {

class Watch {
 public:
  // A child of this process that was not waited for yet. The first folder exists and is watched
  // for the others to appear in it.
  Watch(pid_t program, std::vector<std::string> folders)
      : folders_(std::move(folders)),
        files_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)),
        program_(static_cast<int>(syscall(SYS_pidfd_open, program, 0))) {
    REQUIRE(files_ >= 0);
    REQUIRE(program_ >= 0);
  }
  ~Watch() {
    close(files_);
    close(program_);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Blocks until `condition`, about the folders' files or the program, holds; looks at each change
  // and once more when the program has ended. Returns whether it held within a minute.
  bool Await(const std::function<bool()>& condition) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    for (;;) {
      // In this order: what changes after the look wakes the next wait.
      const bool ended = Ready(program_);
      TakeChanges();
      for (const std::string& folder : folders_) {
        inotify_add_watch(files_, folder.c_str(), IN_CREATE | IN_MODIFY | IN_MOVED_TO | IN_DELETE);
      }
      if (condition()) return true;
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      if (ended || left.count() <= 0) return false;
      pollfd fds[] = {{files_, POLLIN, 0}, {program_, POLLIN, 0}};
      poll(fds, 2, static_cast<int>(left.count()));
    }
  }

 private:
  static bool Ready(int fd) {
    pollfd one = {fd, POLLIN, 0};
    return poll(&one, 1, 0) == 1;
  }

  void TakeChanges() const {
    alignas(inotify_event) char events[4096];
    while (read(files_, events, sizeof(events)) > 0) {
    }
  }

  const std::vector<std::string> folders_;
  const int files_;    // inotify
  const int program_;  // pidfd
};

}  // namespace starling::testing
