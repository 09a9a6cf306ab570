// Runs a program by posix_spawn and collects what it says. One thread.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "support/temp_dir.h"

namespace starling::testing {

struct ProgramResult {
  int exit_code = -1;  // 128 + N when signal N ended it
  std::string out;
  std::string err;
};

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Starts a program; `words` begin with its path. Standard input is empty, the others are appended
// to two files; the environment is only PATH and `environment`.
inline pid_t StartProgram(std::vector<std::string> words, std::vector<std::string> environment,
                          const std::string& out, const std::string& err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  environment.push_back("PATH=/usr/bin:/bin");
  std::vector<char*> argv, envp;
  for (std::string& word : words) argv.push_back(word.data());
  for (std::string& variable : environment) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  REQUIRE(error == 0);
  return pid;
}

// Runs it to its end.
inline ProgramResult RunProgram(std::vector<std::string> words,
                                std::vector<std::string> environment = {}) {
  TempDir dir;
  const std::string out = dir / "out", err = dir / "err";
  const pid_t pid = StartProgram(std::move(words), std::move(environment), out, err);
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  ProgramResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = ReadFile(out);
  result.err = ReadFile(err);
  return result;
}

}  // namespace starling::testing
