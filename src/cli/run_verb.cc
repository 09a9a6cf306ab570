// starling run: coordinator and workers on this machine, in one command.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/config_arguments.h"
#include "cli/driver_setup.h"
#include "cli/run_finder.h"
#include "cli/run_session.h"
#include "cli/run_setup.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "starling/base/exit_codes.h"
#include "starling/base/fs.h"
#include "starling/base/status.h"

namespace starling::cli {
namespace {

struct RunVerbArguments {
  ConfigArguments config;
  int workers = 0;
  std::string restart_delay = "1s";
  bool accept_config_change = false;
};

// The children get everything from config.resolved.yaml.
std::vector<std::string> ChildEnvironment(const config::Config& config) {
  std::vector<std::string> environment;
  for (const std::string& variable : config::ProcessEnvironment()) {
    if (absl::StartsWith(variable, "STARLING__") || absl::StartsWith(variable, "OMP_NUM_THREADS="))
      continue;
    environment.push_back(variable);
  }
  environment.push_back(absl::StrCat("OMP_NUM_THREADS=", config.training.threads));
  return environment;
}

int CheckWorkers(int workers, const config::Elastic& elastic) {
  if (workers >= elastic.min_workers && workers <= elastic.max_workers) return 0;
  return Fail(ExitCode::kUsage,
              absl::StrCat("--workers ", workers, " is outside elastic.min_workers ",
                           elastic.min_workers, " … elastic.max_workers ", elastic.max_workers));
}

int RunVerb(const RunVerbArguments& arguments) {
  const ConfigOutcome outcome = LoadForVerb(arguments.config);
  if (!outcome.loaded.problems.empty()) return outcome.exit_code;
  const config::Config& config = outcome.loaded.config;
  // Everything that is wrong is said before anything starts; the first problem gives the code.
  const int data_code = CheckTokenFiles(outcome);
  const int folder_code = CheckFolderWritable("run.directory", config.run.directory);
  const int workers_code = CheckWorkers(arguments.workers, config.elastic);
  for (int code : {outcome.exit_code, data_code, folder_code, workers_code}) {
    if (code != 0) return code;
  }
  LocalWorkersOptions workers;
  if (arguments.restart_delay == "never") {
    workers.restart_delay.reset();
  } else {
    const auto delay = ParseTimeout("--restart-delay", arguments.restart_delay);
    if (!delay.ok()) return Fail(delay.status());
    workers.restart_delay = *delay;
  }
  const absl::StatusOr<std::string> program = SiblingProgram("starling-worker");
  if (!program.ok()) return Fail(program.status());
  if (absl::Status opened = OpenCoordinatorLog(config.run.directory); !opened.ok())
    return Fail(opened);
  workers.program = *program;
  workers.arguments = {"train",
                       "--config",
                       JoinPath(config.run.directory, "config.resolved.yaml"),
                       "--run",
                       config.run.directory,
                       "--parent",
                       absl::StrCat(getpid())};
  workers.environment = ChildEnvironment(config);
  workers.log_folder = JoinPath(config.run.directory, kWorkersFolder);
  RunSessionOptions options;
  options.driver = DriverOptionsOf(config, arguments.workers, arguments.accept_config_change);
  options.workers = std::move(workers);
  options.target_workers = arguments.workers;
  options.total_steps = config.training.steps;
  options.resolved_config = config::ToYaml(config);
  RunSession session(std::move(options));
  return session.Run();
}

}  // namespace

void AddRun(CLI::App& app, int* exit_code) {
  CLI::App* verb = app.add_subcommand("run", "Train with workers on this machine");
  auto arguments = std::make_shared<RunVerbArguments>();
  AddConfigOptions(verb, true, &arguments->config);
  verb->add_option("-n,--workers", arguments->workers, "Worker processes to keep running")
      ->required()
      ->type_name("N");
  verb->add_option("--restart-delay", arguments->restart_delay,
                   "Wait before a dead worker is started again; doubles, up to a minute, while it "
                   "keeps failing. `never` leaves the dead dead")
      ->type_name("DURATION")
      ->capture_default_str();
  verb->add_flag("--accept-config-change", arguments->accept_config_change,
                 "Go on with an existing run folder although the config changes what a step means");
  verb->footer(
      "Checks everything, then starts the coordinator and N workers. Ctrl-C checkpoints and "
      "stops;\n"
      "a second one stops at once. The same command again goes on from the newest checkpoint, "
      "with\n"
      "any number of workers. Meanwhile `starling status`, `events`, `resize`, `drain` and\n"
      "`checkpoint` work from another terminal.\n\n"
      "Exit codes: 0 training is complete, 130 interrupted, 75 stopped by SIGTERM, others as in\n"
      "docs/operations.md.\n\n"
      "Examples:\n"
      "  starling run --config configs/quickstart.yaml --workers 3\n"
      "  starling run -c configs/tiny.yaml -c mine.yaml -n 8 --set training.steps=500\n"
      "  starling run -c c.yaml -n 3 --restart-delay never\n");
  verb->callback([arguments, exit_code] { *exit_code = RunVerb(*arguments); });
}

}  // namespace starling::cli
