// The main of `starling`.
#include <CLI/CLI.hpp>

#include "cli/program.h"
#include "cli/verbs.h"

namespace starling::cli {
namespace {

void AddVerbs(CLI::App& app, int* exit_code) {
  AddTokenizer(app, exit_code);
  AddPrepare(app, exit_code);
  AddValidate(app, exit_code);
  AddRun(app, exit_code);
  AddCoordinator(app, exit_code);
  AddStatus(app, exit_code);
  AddEvents(app, exit_code);
  AddDrain(app, exit_code);
  AddResize(app, exit_code);
  AddCheckpoint(app, exit_code);
  AddChaos(app, exit_code);
  AddSimulate(app, exit_code);
  AddVersion(app, exit_code);
}

}  // namespace
}  // namespace starling::cli

int main(int argc, char** argv) {
  return starling::cli::RunProgram(
      {.name = "starling",
       .description = "Elastic pretraining of LeanALBERT on machines that come and go",
       .footer = "`starling VERB --help` shows a verb's options and examples.",
       .add_verbs = starling::cli::AddVerbs},
      argc, argv);
}
