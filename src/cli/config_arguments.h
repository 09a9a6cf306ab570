// --config and --set of the verbs that need a config, and the one way from them to a Config: read,
// checked, and completed by the tokenizer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/terminal.h"
#include "starling/config/load.h"
#include "starling/data/tokenizer.h"

namespace CLI {
class App;
}

namespace starling::cli {

struct ConfigArguments {
  std::vector<std::string> files;  // --config, repeatable; later ones win
  std::vector<std::string> sets;   // --set section.key=value, repeatable
};

// Adds both options; `arguments` must live as long as `verb`.
void AddConfigOptions(CLI::App* verb, bool required, ConfigArguments* arguments);

struct ConfigOutcome {
  config::LoadedConfig loaded;
  std::optional<data::Tokenizer> tokenizer;  // data.tokenizer's file, when it was read and is good
  int exit_code = 0;                         // 0 = `loaded` is good
};

// Reads the config with this process's environment, and no other file. Warnings and problems go to
// standard error, all at once. Codes: 78 bad config; 66 missing file.
ConfigOutcome ReadConfig(const ConfigArguments& arguments);

// The same and then, when data.tokenizer is set, the tokenizer, which gives vocabulary and special
// ids. Further codes: 78 a tokenizer that contradicts the config or lacks a special token; 66 a
// missing one; 65 a broken one. With a missing or broken tokenizer `loaded` still holds the config
// as far as it is known.
ConfigOutcome LoadForVerb(const ConfigArguments& arguments);

// Checks that LoadForVerb's config names a tokenizer and token files (78), and that these exist,
// are whole and were made by that tokenizer. Each problem is a line on standard error; returns the
// first one's exit code (66, 65, 78, …) or 0. Reads the files completely: about a second a
// gigabyte.
int CheckTokenFiles(const ConfigOutcome& outcome);

}  // namespace starling::cli
