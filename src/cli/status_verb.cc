// starling status: what the coordinator knows of the run.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/run_finder.h"
#include "cli/status_report.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "starling/rpc/client.h"

namespace starling::cli {
namespace {

struct StatusArguments {
  RunArguments run;
  std::string output = "table";
  bool watch = false;
};

constexpr absl::Duration kWatchEvery = absl::Seconds(1);

int Status(const StatusArguments& arguments) {
  const absl::StatusOr<absl::Duration> timeout = ParseTimeout("--timeout", arguments.run.timeout);
  if (!timeout.ok()) return Fail(timeout.status());
  const absl::StatusOr<rpc::Target> target = FindRun(arguments.run);
  if (!target.ok()) return Fail(target.status());
  const rpc::RequestClient client(*target);
  const bool json = arguments.output == "json";
  const bool redraw = arguments.watch && !json && isatty(STDOUT_FILENO) != 0;
  for (;;) {
    const absl::StatusOr<rpc::StatusReport> report = client.Status(*timeout);
    if (!report.ok()) return Fail(report.status());
    if (redraw) std::fputs("\x1b[H\x1b[2J", stdout);
    std::fputs(
        json ? absl::StrCat(StatusJson(*report), "\n").c_str() : StatusTable(*report).c_str(),
        stdout);
    std::fflush(stdout);
    if (!arguments.watch) return 0;
    std::this_thread::sleep_for(absl::ToChronoMilliseconds(kWatchEvery));
  }
}

}  // namespace

void AddStatus(CLI::App& app, int* exit_code) {
  CLI::App* verb = app.add_subcommand("status", "Show a run: phase, step, workers");
  auto arguments = std::make_shared<StatusArguments>();
  AddRunOptions(verb, &arguments->run);
  verb->add_option("-o,--output", arguments->output, "table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->type_name("FORMAT")
      ->capture_default_str();
  verb->add_flag("-w,--watch", arguments->watch, "Again every second, until Ctrl-C");
  verb->footer(
      "JSON is one object on one line, described in docs/formats.md. With --endpoint the content\n"
      "of the run folder's file `token` is needed in STARLING_TOKEN.\n\n"
      "Examples:\n"
      "  starling status\n"
      "  starling status --run runs/ru-tiny -w\n"
      "  starling status --endpoint 10.0.0.1:7171 -o json\n");
  verb->callback([arguments, exit_code] { *exit_code = Status(*arguments); });
}

}  // namespace starling::cli
