// starling version.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/verbs.h"
#include "starling/data/token_file.h"

namespace starling::cli {

void AddVersion(CLI::App& app, int* exit_code) {
  CLI::App* verb = app.add_subcommand("version", "Print the version of this program");
  verb->footer("Examples:\n  starling version\n");
  verb->callback([exit_code] {
    std::printf("starling %s\ntoken file format %u\n", STARLING_VERSION, data::kTokenFileVersion);
    *exit_code = 0;
  });
}

}  // namespace starling::cli
