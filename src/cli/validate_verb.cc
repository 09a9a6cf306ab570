// starling validate: what a config says and means, without starting anything.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/config_arguments.h"
#include "cli/verbs.h"
#include "starling/config/summary.h"

namespace starling::cli {
namespace {

// YAML that can be used as a config file; what it means stands in comments below.
void PrintConfig(const config::LoadedConfig& loaded) {
  std::string out = config::ToYaml(loaded.config, &loaded.sources);
  absl::StrAppend(&out, "\n");
  for (const auto line : absl::StrSplit(config::Explain(loaded.config), '\n')) {
    if (!line.empty()) absl::StrAppend(&out, "# ", line, "\n");
  }
  std::fputs(out.c_str(), stdout);
}

int Validate(const ConfigArguments& arguments) {
  const ConfigOutcome outcome = LoadForVerb(arguments);
  if (!outcome.loaded.problems.empty()) return outcome.exit_code;
  PrintConfig(outcome.loaded);
  if (arguments.files.empty()) return outcome.exit_code;  // the defaults name no data
  const config::Config& config = outcome.loaded.config;
  const int data_code = CheckTokenFiles(outcome);
  const int folder_code = CheckFolderWritable("run.directory", config.run.directory);
  if (outcome.exit_code != 0) return outcome.exit_code;
  return data_code != 0 ? data_code : folder_code;
}

}  // namespace

void AddValidate(CLI::App& app, int* exit_code) {
  CLI::App* verb = app.add_subcommand("validate", "Check a config and print what it means");
  auto arguments = std::make_shared<ConfigArguments>();
  AddConfigOptions(verb, false, arguments.get());
  verb->footer(
      "Prints every setting with its origin, the model's size, memory and traffic of a worker for\n"
      "each number of workers, and the derived waiting times; then checks the data files. Without\n"
      "--config it prints the defaults. The output is a config file itself.\n\n"
      "Examples:\n"
      "  starling validate --config configs/tiny.yaml\n"
      "  starling validate --config base.yaml --config mine.yaml --set training.steps=500\n"
      "  STARLING__OPTIMIZER__LEARNING_RATE=1e-3 starling validate -c configs/small.yaml\n");
  verb->callback([arguments, exit_code] { *exit_code = Validate(*arguments); });
}

}  // namespace starling::cli
