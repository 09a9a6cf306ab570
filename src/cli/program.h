// The frame of a program with verbs, the same for every main.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace starling::cli {

struct ProgramOptions {
  std::string name;         // as in usage lines
  std::string description;  // one sentence
  std::string footer;       // below the help
  // Adds the verbs; each stores the process's exit code when it is chosen.
  std::function<void(CLI::App&, int*)> add_verbs;
};

// Parses, runs the chosen verb and returns the process's exit code; 64 for a wrong command line.
int RunProgram(const ProgramOptions& options, int argc, char** argv);

}  // namespace starling::cli
