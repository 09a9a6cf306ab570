// The frame of a program with verbs: parses the command line and turns what CLI11 throws into
// messages and exit codes. Standard output is for data, so errors and unasked-for help go to
// standard error.
#include "cli/program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/terminal.h"
#include "starling/config/nearest.h"

namespace starling::cli {
namespace {

std::vector<std::string> VerbNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
  }
  return names;
}

// The longest chain of verbs that the arguments begin with, "" in `unknown` when they all exist,
// else the first word that is no verb where one is needed.
const CLI::App* FindVerb(const CLI::App& app, const std::vector<std::string>& arguments,
                         std::string* unknown) {
  const CLI::App* current = &app;
  for (const std::string& argument : arguments) {
    const std::vector<std::string> names = VerbNames(*current);
    if (names.empty() || argument.empty() || argument[0] == '-') break;
    if (std::find(names.begin(), names.end(), argument) == names.end()) {
      *unknown = argument;
      break;
    }
    current = current->get_subcommand(argument);
  }
  return current;
}

// The full name of a verb, "starling tokenizer train".
std::string FullName(const CLI::App* verb) {
  if (verb->get_parent() == nullptr) return verb->get_name();
  return absl::StrCat(FullName(verb->get_parent()), " ", verb->get_name());
}

int UnknownVerb(const CLI::App& at, const std::string& word) {
  const std::string nearest = config::Nearest(word, VerbNames(at));
  std::string message = absl::StrCat("unknown verb \"", word, "\"");
  if (!nearest.empty()) absl::StrAppend(&message, "; did you mean \"", nearest, "\"?");
  absl::StrAppend(&message, nearest.empty() ? ";" : "", " `", FullName(&at),
                  " --help` lists them all");
  return Fail(ExitCode::kUsage, message);
}

// What is wrong with a command line. CLI11 looks for missing options before unknown ones, but one
// that is misspelt is both, and its name helps more.
std::string Explain(const CLI::ParseError& error, const CLI::App& verb,
                    const std::vector<std::string>& arguments) {
  std::vector<std::string> known;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back(absl::StrCat("--", name));
  }
  const auto code = static_cast<CLI::ExitCodes>(error.get_exit_code());
  const bool names_matter =
      code == CLI::ExitCodes::ExtrasError || code == CLI::ExitCodes::RequiredError;
  for (const std::string& argument : arguments) {
    if (!names_matter || argument == "--") break;
    const std::string name = argument.substr(0, argument.find('='));
    if (name.rfind("--", 0) != 0) continue;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string nearest = config::Nearest(name, known);
    return absl::StrCat("unknown option ", name,
                        nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"));
  }
  return error.what();
}

int Parse(CLI::App& app, int argc, char** argv, const int& exit_code) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  std::string unknown;
  const CLI::App* verb = FindVerb(app, arguments, &unknown);
  if (!unknown.empty()) return UnknownVerb(*verb, unknown);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    return Fail(ExitCode::kUsage, absl::StrCat(Explain(error, *verb, arguments), "\n`",
                                               FullName(verb), " --help` shows how it is used"));
  }
  return exit_code;
}

// Results that did not get to where they were sent (a full disk) are a failure, however well the
// verb did its work. A verb that failed has said why already.
int FlushOutput(int exit_code) {
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (written || exit_code != 0) return exit_code;
  return Fail(ExitCode::kIoError, "cannot write to standard output: is the disk full?");
}

}  // namespace

int RunProgram(const ProgramOptions& options, int argc, char** argv) {
  try {
    CLI::App app(options.description, options.name);
    app.require_subcommand(1);
    app.footer(options.footer);
    int exit_code = 0;
    options.add_verbs(app, &exit_code);
    return FlushOutput(Parse(app, argc, argv, exit_code));
  } catch (const std::exception& error) {
    return Fail(ExitCode::kInternal, std::string("internal error: ") + error.what());
  }
}

}  // namespace starling::cli
