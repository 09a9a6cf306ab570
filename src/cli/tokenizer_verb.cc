// starling tokenizer …: hands over to the program starling-tokenizer (see tokenizer_main.cc).
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "starling/base/status.h"

namespace starling::cli {
namespace {

// Returns only when it fails.
int Execute(std::vector<std::string> arguments) {
  const absl::StatusOr<std::string> program = SiblingProgram("starling-tokenizer");
  if (!program.ok()) return Fail(program.status());
  std::string name = "starling-tokenizer";
  std::vector<char*> argv{name.data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(program->c_str(), argv.data());
  return Fail(ErrnoStatus(errno, absl::StrCat("cannot execute ", *program)));
}

}  // namespace

void AddTokenizer(CLI::App& app, int* exit_code) {
  CLI::App* tokenizer = app.add_subcommand("tokenizer", "Make tokenizers: tokenizer train");
  tokenizer->prefix_command();  // everything after it is the other program's
  tokenizer->set_help_flag();
  tokenizer->callback([tokenizer, exit_code] { *exit_code = Execute(tokenizer->remaining()); });
}

}  // namespace starling::cli
