// The verbs of `starling`, one function and one file a group. Each adds its subcommands to `app`;
// when one of them is chosen, its callback does the work and stores the process's exit code in
// *exit_code. A new group is a file, a declaration here and a call in starling_main.cc.
#pragma once

namespace CLI {
class App;
}

namespace starling::cli {

void AddPrepare(CLI::App& app, int* exit_code);    // prepare
void AddTokenizer(CLI::App& app, int* exit_code);  // tokenizer train
void AddValidate(CLI::App& app, int* exit_code);   // validate
void AddVersion(CLI::App& app, int* exit_code);    // version

}  // namespace starling::cli
