// The verbs of `starling`, one function and one file a group. Each adds its subcommands to `app`;
// when one of them is chosen, its callback does the work and stores the process's exit code in
// *exit_code. A new group is a file, a declaration here and a call in starling_main.cc.
#pragma once

namespace CLI {
class App;
}

namespace starling::cli {

void AddChaos(CLI::App& app, int* exit_code);        // chaos
void AddCheckpoint(CLI::App& app, int* exit_code);   // checkpoint
void AddCoordinator(CLI::App& app, int* exit_code);  // coordinator
void AddDrain(CLI::App& app, int* exit_code);        // drain
void AddEvents(CLI::App& app, int* exit_code);       // events
void AddPrepare(CLI::App& app, int* exit_code);      // prepare
void AddResize(CLI::App& app, int* exit_code);       // resize
void AddRun(CLI::App& app, int* exit_code);          // run
void AddSimulate(CLI::App& app, int* exit_code);     // simulate
void AddStatus(CLI::App& app, int* exit_code);       // status
void AddTokenizer(CLI::App& app, int* exit_code);    // tokenizer train
void AddValidate(CLI::App& app, int* exit_code);     // validate
void AddVersion(CLI::App& app, int* exit_code);      // version

}  // namespace starling::cli
