// starling coordinator: the coordinator alone; workers are started wherever there is a machine.
#include <signal.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/config_arguments.h"
#include "cli/driver_setup.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "starling/base/exit_codes.h"
#include "starling/base/fs.h"
#include "starling/base/status.h"
#include "starling/coordinator/driver.h"

namespace starling::cli {
namespace {

struct CoordinatorArguments {
  ConfigArguments config;
  std::string run_folder;  // --run-dir; empty = run.directory
  std::string bind;        // --bind; empty = coordinator.bind
  int workers = 0;         // --workers; 0 = elastic.min_workers
  bool adopt = false;
  bool accept_config_change = false;
};

coordinator::DriverOptions OptionsOf(const config::Config& config,
                                     const CoordinatorArguments& arguments) {
  const int workers =
      arguments.workers > 0 ? arguments.workers : static_cast<int>(config.elastic.min_workers);
  coordinator::DriverOptions options =
      DriverOptionsOf(config, workers, arguments.accept_config_change);
  options.adopt = arguments.adopt;
  return options;
}

// Waits for the end, or for signals: SIGINT stops the run in order, a second one leaves at once;
// SIGTERM takes only the coordinator away, as a node that is drained does, and training goes on.
membership::Ended WaitForEnd(coordinator::Driver& driver, const sigset_t& signals) {
  bool stopping = false;
  while (!driver.WaitFor(absl::ZeroDuration())) {
    const timespec pause = {0, 100'000'000};
    const int signal = sigtimedwait(&signals, nullptr, &pause);
    if (signal == SIGTERM) {
      Note("the coordinator leaves; workers go on and wait for another one");
      driver.Abandon(static_cast<int>(ExitCode::kDrained), "SIGTERM");
    } else if (signal == SIGINT && stopping) {
      driver.Abandon(static_cast<int>(ExitCode::kInterrupted), "interrupted twice");
    } else if (signal == SIGINT) {
      stopping = true;
      Note(
          "stopping the run: checkpoint, then exit (Ctrl-C again: the coordinator leaves at once)");
      membership::UserRequest stop{.kind = membership::UserRequest::Kind::kStop};
      stop.reason = "interrupted by the user";
      driver.Request(std::move(stop), [](rpc::RequestReply) {});
    }
  }
  membership::Ended ended = driver.Wait();
  if (stopping && ended.exit_code != 0) ended.exit_code = static_cast<int>(ExitCode::kInterrupted);
  return ended;
}

int Coordinate(CoordinatorArguments arguments) {
  if (!arguments.bind.empty()) {
    arguments.config.sets.push_back(absl::StrCat("coordinator.bind=\"", arguments.bind, "\""));
  }
  ConfigOutcome outcome = LoadForVerb(arguments.config);
  if (!outcome.loaded.problems.empty() || outcome.exit_code != 0) return outcome.exit_code;
  config::Config& config = outcome.loaded.config;
  // Not as a --set: a path may hold what YAML would take for its own.
  if (!arguments.run_folder.empty()) config.run.directory = arguments.run_folder;
  if (arguments.workers != 0 && (arguments.workers < config.elastic.min_workers ||
                                 arguments.workers > config.elastic.max_workers)) {
    return Fail(ExitCode::kUsage,
                absl::StrCat("--workers ", arguments.workers, " is outside elastic.min_workers ",
                             config.elastic.min_workers, " … elastic.max_workers ",
                             config.elastic.max_workers));
  }
  if (const int code = CheckFolderWritable("run.directory", config.run.directory); code != 0) {
    return code;
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before any thread starts: all inherit it
  if (absl::Status opened = OpenCoordinatorLog(config.run.directory); !opened.ok())
    return Fail(opened);
  coordinator::DriverOptions options = OptionsOf(config, arguments);
  if (const char* text = std::getenv("STARLING_FAULT"); text != nullptr) {
    absl::StatusOr<std::vector<comm::Fault>> faults = comm::ParseFaults(text);
    if (!faults.ok()) return Fail(Annotate(faults.status(), "STARLING_FAULT"));
    options.faults = *std::move(faults);
  }
  auto driver = coordinator::Driver::Start(std::move(options));
  if (!driver.ok()) return Fail(driver.status());
  const absl::Status written = WriteAtomically(
      RealFs(), JoinPath(config.run.directory, "config.resolved.yaml"), config::ToYaml(config));
  if (!written.ok()) return Fail(written);
  Note(absl::StrCat("coordinator of ", config.run.directory, " at ", (*driver)->endpoint()));
  if (!(*driver)->http_address().empty()) {
    Note(absl::StrCat("status page http://", (*driver)->http_address(), "/"));
  }
  const membership::Ended ended = WaitForEnd(**driver, signals);
  Note(ended.reason);
  return ended.exit_code;
}

}  // namespace

void AddCoordinator(CLI::App& app, int* exit_code) {
  CLI::App* verb = app.add_subcommand("coordinator", "Run the coordinator alone");
  auto arguments = std::make_shared<CoordinatorArguments>();
  AddConfigOptions(verb, true, &arguments->config);
  verb->add_option("--run-dir", arguments->run_folder, "Run folder, instead of run.directory")
      ->type_name("DIR");
  verb->add_option("--bind", arguments->bind, "Address to listen on, instead of coordinator.bind")
      ->type_name("HOST:PORT");
  verb->add_option("-n,--workers", arguments->workers,
                   "Workers that the first view waits for (default: elastic.min_workers)")
      ->type_name("N");
  verb->add_flag("--adopt", arguments->adopt,
                 "Go on from the members that report, although the journal is lost and fewer than "
                 "half of their last view are here");
  verb->add_flag("--accept-config-change", arguments->accept_config_change,
                 "Go on with an existing run folder although the config changes what a step means");
  verb->footer(
      "Start `starling-worker train --config DIR/config.resolved.yaml --name NAME` wherever there\n"
      "is a machine that sees the run folder DIR; elsewhere give it a copy of the config,\n"
      "--run and a folder for its files, --endpoint HOST:PORT, and the content of DIR/token in\n"
      "STARLING_TOKEN.\n"
      "When the coordinator is killed, training goes on; started again, it takes up its journal.\n"
      "Ctrl-C checkpoints and stops the run; SIGTERM takes the coordinator alone away.\n\n"
      "Exit codes: 0 training is complete; 75 SIGTERM, start it again; 130 interrupted; 71 the\n"
      "port is in use; 73 another coordinator holds the run folder; 74 the journal cannot be\n"
      "written; 78 the config is wrong or not the run's.\n\n"
      "Examples:\n"
      "  starling coordinator --config configs/tiny.yaml --workers 8\n"
      "  starling coordinator -c c.yaml --bind 0.0.0.0:7070 --run-dir /data/runs/a\n"
      "  starling coordinator -c c.yaml --adopt\n");
  verb->callback([arguments, exit_code] { *exit_code = Coordinate(*arguments); });
}

}  // namespace starling::cli
