// starling drain, resize and checkpoint: what a person asks of a running coordinator.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/run_finder.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "starling/rpc/client.h"

namespace starling::cli {
namespace {

using membership::UserRequest;

// All names are checked before the first worker is asked to go: a command with a wrong name in it
// does nothing.
int CheckWorkers(const rpc::RequestClient& client, absl::Duration timeout,
                 const std::vector<UserRequest>& requests) {
  const absl::StatusOr<rpc::StatusReport> report = client.Status(timeout);
  if (!report.ok()) return Fail(report.status());
  const std::vector<membership::WorkerStatus>& workers = report->status.workers;
  int exit_code = 0;
  for (const UserRequest& request : requests) {
    const bool known = std::any_of(workers.begin(), workers.end(), [&](const auto& worker) {
      return worker.member.name == request.worker;
    });
    if (known) continue;
    exit_code = Fail(ExitCode::kUsage, absl::StrCat("no worker is named '", request.worker,
                                                    "'; `starling status` lists them"));
  }
  return exit_code;
}

// Asks and prints the answer. A refusal is 64: the request was outside the limits.
int Ask(const RunArguments& arguments, const std::vector<UserRequest>& requests) {
  const absl::StatusOr<absl::Duration> timeout = ParseTimeout("--timeout", arguments.timeout);
  if (!timeout.ok()) return Fail(timeout.status());
  const absl::StatusOr<rpc::Target> target = FindRun(arguments);
  if (!target.ok()) return Fail(target.status());
  const rpc::RequestClient client(*target);
  int exit_code = 0;
  if (requests.front().kind == UserRequest::Kind::kDrain) {
    exit_code = CheckWorkers(client, *timeout, requests);
    if (exit_code != 0) return exit_code;
  }
  for (const UserRequest& request : requests) {
    const absl::StatusOr<rpc::RequestReply> reply = client.Ask(request, *timeout);
    if (!reply.ok()) return Fail(reply.status());
    if (reply->ok) {
      std::printf("%s\n", reply->text.c_str());
    } else {
      exit_code = Fail(ExitCode::kUsage, reply->text);
    }
  }
  return exit_code;
}

// A coordinator that answers questions but does not answer this one in time is waited for in vain:
// that is 124, not 69.
int Checkpoint(const RunArguments& arguments) {
  const absl::StatusOr<absl::Duration> timeout = ParseTimeout("--timeout", arguments.timeout);
  if (!timeout.ok()) return Fail(timeout.status());
  const absl::StatusOr<rpc::Target> target = FindRun(arguments);
  if (!target.ok()) return Fail(target.status());
  const rpc::RequestClient client(*target);
  const auto reachable = client.Status(absl::Seconds(5));
  if (!reachable.ok()) return Fail(reachable.status());
  UserRequest request;
  request.kind = UserRequest::Kind::kCheckpoint;
  const absl::StatusOr<rpc::RequestReply> reply = client.Ask(request, *timeout);
  if (!reply.ok() && client.Status(absl::Seconds(5)).ok()) {
    return Fail(ExitCode::kWaitTimeout, absl::StrCat("no checkpoint within ", arguments.timeout,
                                                     "; `starling events` shows what goes on"));
  }
  if (!reply.ok()) return Fail(reply.status());
  if (!reply->ok) return Fail(ExitCode::kUsage, reply->text);
  std::printf("%s\n", reply->text.c_str());
  return 0;
}

}  // namespace

void AddDrain(CLI::App& app, int* exit_code) {
  CLI::App* verb = app.add_subcommand("drain", "Let workers leave a run in order");
  struct Arguments {
    RunArguments run;
    std::vector<std::string> workers;
    std::string reason = "asked for by `starling drain`";
  };
  auto arguments = std::make_shared<Arguments>();
  AddRunOptions(verb, &arguments->run);
  verb->add_option("WORKER", arguments->workers, "Names, as `starling status` shows them")
      ->required()
      ->type_name("NAME");
  verb->add_option("--reason", arguments->reason, "Why; shown in events")->type_name("TEXT");
  verb->footer(
      "Nothing that a worker has computed is lost to the others' knowledge: what is missing is\n"
      "computed again by those who stay. The worker exits 75, and `starling run` does not start\n"
      "it again until `starling resize` asks for more.\n\n"
      "Examples:\n"
      "  starling drain w1\n"
      "  starling drain --run runs/ru-tiny node7/0 node7/1 --reason \"node7 needs a new fan\"\n");
  verb->callback([arguments, exit_code] {
    std::vector<UserRequest> requests;
    const std::set<std::string> workers(arguments->workers.begin(), arguments->workers.end());
    for (const std::string& worker : workers) {
      UserRequest request;
      request.kind = UserRequest::Kind::kDrain;
      request.worker = worker;
      request.reason = arguments->reason;
      requests.push_back(request);
    }
    *exit_code = Ask(arguments->run, requests);
  });
}

void AddResize(CLI::App& app, int* exit_code) {
  CLI::App* verb = app.add_subcommand("resize", "Change how many workers a run should have");
  struct Arguments {
    RunArguments run;
    int target = 0;
  };
  auto arguments = std::make_shared<Arguments>();
  AddRunOptions(verb, &arguments->run);
  verb->add_option("N", arguments->target, "Workers, from elastic.min_workers to max_workers")
      ->required()
      ->type_name("N");
  verb->footer(
      "Under `starling run` missing workers are started, also with --restart-delay never, and\n"
      "those that are too many drained, the newest first.\n\n"
      "Examples:\n"
      "  starling resize 5\n"
      "  starling resize 2 --run runs/ru-tiny\n");
  verb->callback([arguments, exit_code] {
    UserRequest request;
    request.kind = UserRequest::Kind::kResize;
    request.target_workers = arguments->target;
    *exit_code = Ask(arguments->run, {request});
  });
}

void AddCheckpoint(CLI::App& app, int* exit_code) {
  CLI::App* verb = app.add_subcommand("checkpoint", "Write a checkpoint now, and wait for it");
  auto arguments = std::make_shared<RunArguments>();
  arguments->timeout = "5m";
  AddRunOptions(verb, arguments.get());
  verb->footer(
      "Prints the checkpoint's name when it is durable. Exits 124 when it is not in time.\n\n"
      "Examples:\n"
      "  starling checkpoint\n"
      "  starling checkpoint --run runs/ru-tiny --timeout 30s\n");
  verb->callback([arguments, exit_code] { *exit_code = Checkpoint(*arguments); });
}

}  // namespace starling::cli
