// The main of `starling-worker`: one training process, one life of a worker. Signals become leave
// notices, the control stream and the elastic loop are tied together, and the process ends without
// libtorch's slow teardown.
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "cli/config_arguments.h"
#include "cli/program.h"
#include "cli/run_setup.h"
#include "cli/terminal.h"
#include "cli/worker_setup.h"
#include "starling/base/exit_codes.h"
#include "starling/base/fs.h"
#include "starling/base/log.h"
#include "starling/base/status.h"
#include "starling/rpc/client.h"
#include "starling/worker/elastic_loop.h"

namespace starling::cli {
namespace {

struct TrainArguments {
  ConfigArguments config;
  std::string run_directory;  // empty = the config's
  std::string name;
  std::string endpoint;    // empty = the run folder's
  int64_t parent_pid = 0;  // of a launcher; 0 = none
};

// Turns SIGTERM and SIGUSR1 into leave notices, from a thread of its own: the first one counts, and
// a second one never means "quit now". SIGINT is one too, except under a launcher, which owns
// Ctrl-C. Before there is a loop nothing can be lost, and the process ends at once.
class Notices {
 public:
  // Call before any thread starts: they inherit the blocked signals.
  explicit Notices(pid_t launcher) : parent_(launcher) {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGUSR1);
    sigaddset(&signals_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    if (parent_ != 0) {
      // The launcher's death arrives as SIGTERM, unless it died before this line.
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent_) std::_Exit(static_cast<int>(ExitCode::kUnreachable));
    }
    std::thread([this] { Watch(); }).detach();
  }

  void SetLoop(worker::ElasticLoop* loop, absl::Duration within) {
    absl::MutexLock lock(&mutex_);
    loop_ = loop;
    within_ = within;
  }

 private:
  [[noreturn]] void Watch() {
    for (;;) {
      int signal = 0;
      sigwait(&signals_, &signal);
      const bool orphaned = parent_ != 0 && getppid() != parent_;
      if (orphaned) std::_Exit(static_cast<int>(ExitCode::kUnreachable));
      if (signal == SIGINT && parent_ != 0) continue;
      Leave(absl::StrCat(std::string(kOwnNotice), "SIG", sigabbrev_np(signal)));
    }
  }

  void Leave(const std::string& reason) {
    absl::MutexLock lock(&mutex_);
    if (loop_ == nullptr) std::_Exit(static_cast<int>(ExitCode::kDrained));
    loop_->Post(membership::LeaveNotice{absl::ToInt64Milliseconds(within_), reason});
  }

  const pid_t parent_;
  sigset_t signals_;
  absl::Mutex mutex_;
  worker::ElasticLoop* loop_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::Duration within_ ABSL_GUARDED_BY(mutex_);
};

// What is wrong with a worker's name, which stands in logs, tables and file names; empty if
// nothing.
std::string NameProblem(const std::string& name) {
  constexpr size_t kMaxBytes = 200;
  if (name.empty()) return "must not be empty";
  if (name.size() > kMaxBytes) {
    return absl::StrCat("has ", name.size(), " bytes; at most ", kMaxBytes, " are allowed");
  }
  const bool control = std::any_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
  return control ? "must not hold control characters such as line breaks" : "";
}

// Thread pools read these when they start. Trainer::Create says the same to libtorch itself, but
// not to the libraries below it.
void SetThreads(int64_t threads) {
  const std::string text = absl::StrCat(threads);
  setenv("OMP_NUM_THREADS", text.c_str(), 1);
  setenv("MKL_NUM_THREADS", text.c_str(), 1);
}

absl::Status OpenLog(const TrainArguments& arguments, Incarnation incarnation) {
  const std::string folder = JoinPath(arguments.run_directory, kWorkersFolder);
  STARLING_RETURN_IF_ERROR(RealFs().MakeDirectories(folder));
  LogOptions options;
  options.file =
      JoinPath(folder, absl::StrCat(FileNameOf(arguments.name), ".", ToHex(incarnation), ".log"));
  options.component = "worker";
  InitLogging(options);
  SetLogContext(absl::StrCat("worker=", arguments.name));
  STARLING_LOG(Info) << "event=start incarnation=" << ToHex(incarnation) << " pid=" << getpid();
  return absl::OkStatus();
}

std::unique_ptr<rpc::ControlClient> Connect(const TrainArguments& arguments,
                                            absl::Duration heartbeat, worker::ElasticLoop* loop) {
  rpc::ControlOptions options;
  options.target = {
      .endpoint = arguments.endpoint, .run_folder = arguments.run_directory, .token = {}};
  options.heartbeat_interval = heartbeat;
  options.heartbeat = [loop] { return loop->CurrentHeartbeat(); };
  options.callbacks.on_opened = [loop] { loop->Post(membership::StreamOpened{}); };
  options.callbacks.on_message = [loop](membership::CoordinatorMessage message) {
    loop->Post(membership::FromCoordinator{std::move(message)});
  };
  options.callbacks.on_lost = [loop](const absl::Status& status) {
    STARLING_LOG(Warning) << "event=stream_lost reason=\"" << status.message() << "\"";
    loop->Post(membership::StreamLost{});
  };
  options.callbacks.on_refused = [loop](const absl::Status& status) {
    loop->Post(membership::FromCoordinator{
        membership::Refused{static_cast<int>(ExitCodeFor(status)), std::string(status.message())}});
  };
  options.callbacks.on_retry = [](const absl::Status& status) {
    STARLING_LOG(Info) << "event=retry reason=\"" << status.message() << "\"";
  };
  return rpc::ControlClient::Start(std::move(options));
}

// Executor, loop and client refer to each other and live until the process ends, here.
[[noreturn]] void RunLoop(const TrainArguments& arguments, absl::Duration heartbeat,
                          WorkerSetup setup, Notices* notices) {
  worker::ElasticLoop* loop = nullptr;
  worker::Executor executor(
      std::move(setup.executor), std::move(setup.parts),
      [&loop](membership::PartWritten part) { loop->Post(membership::PartDone{std::move(part)}); });
  std::unique_ptr<rpc::ControlClient> client;
  worker::ElasticLoopOptions options;
  options.membership = setup.protocol;
  options.identity = std::move(setup.identity);
  const absl::Duration leave_within = options.leave_within;
  worker::ElasticLoop the_loop(
      std::move(options), &executor,
      [&client](membership::WorkerMessage message) { client->Send(std::move(message)); });
  loop = &the_loop;
  client = Connect(arguments, heartbeat, loop);
  notices->SetLoop(loop, leave_within);
  const worker::ElasticEnd end = loop->Run();
  client->Stop(absl::Seconds(1));
  STARLING_LOG(Info) << "event=end code=" << end.exit_code;
  if (end.exit_code != 0) Note(absl::StrCat("starling-worker: ", arguments.name, ": ", end.reason));
  std::fflush(nullptr);
  // No teardown: threads of libraries may still look at what would be destroyed.
  std::_Exit(end.exit_code);
}

int Train(TrainArguments arguments, Notices* notices) {
  if (const std::string problem = NameProblem(arguments.name); !problem.empty()) {
    return Fail(ExitCode::kUsage, absl::StrCat("--name ", problem));
  }
  WorkerArguments worker{.name = arguments.name, .run_directory = {}, .faults = {}};
  if (const char* text = std::getenv("STARLING_FAULT"); text != nullptr) {
    absl::StatusOr<std::vector<comm::Fault>> faults = comm::ParseFaults(text);
    if (!faults.ok()) return Fail(Annotate(faults.status(), "STARLING_FAULT"));
    worker.faults = *std::move(faults);
  }
  const ConfigOutcome outcome = LoadForVerb(arguments.config);
  if (outcome.exit_code != 0) return outcome.exit_code;
  const config::Config& config = outcome.loaded.config;
  if (!outcome.tokenizer) return Fail(ExitCode::kConfig, "data.tokenizer: names no tokenizer");
  if (arguments.run_directory.empty()) arguments.run_directory = config.run.directory;
  worker.run_directory = arguments.run_directory;
  SetThreads(config.training.threads);
  const Incarnation incarnation = NewIncarnation();
  if (absl::Status opened = OpenLog(arguments, incarnation); !opened.ok()) return Fail(opened);
  absl::StatusOr<WorkerSetup> setup = SetUpWorker(config, *outcome.tokenizer, worker, incarnation);
  if (!setup.ok()) {
    STARLING_LOG(Error) << "event=setup_failed reason=\"" << setup.status().message() << "\"";
    return Fail(setup.status());
  }
  STARLING_LOG(Info) << "event=ready address=" << setup->identity.member.data_address;
  RunLoop(arguments, config.elastic.heartbeat_interval(), *std::move(setup), notices);
}

void AddTrain(CLI::App& app, int* exit_code) {
  CLI::App* verb = app.add_subcommand("train", "Take part in a training run until it ends");
  auto arguments = std::make_shared<TrainArguments>();
  AddConfigOptions(verb, true, &arguments->config);
  verb->add_option("--run", arguments->run_directory,
                   "Run folder: checkpoints, logs, the coordinator's endpoint and token "
                   "(default: the config's run.directory)")
      ->type_name("DIR");
  verb->add_option("--name", arguments->name, "Name of this worker, unique in the run")
      ->required()
      ->type_name("NAME");
  verb->add_option("--endpoint", arguments->endpoint,
                   "Coordinator's address (default: the run folder's endpoint file)")
      ->type_name("HOST:PORT");
  verb->add_option("--parent", arguments->parent_pid,
                   "Process that starts this one: end (69) when it dies; Ctrl-C is its business")
      ->type_name("PID");
  verb->footer(
      "SIGTERM and SIGUSR1 make the worker leave in order; it exits 75, which means: start me\n"
      "again. STARLING_FAULT injects faults, see docs/failures.md.\n\n"
      "Examples:\n"
      "  starling-worker train --config runs/x/config.resolved.yaml --name $(hostname)/0\n"
      "  STARLING_TOKEN=… starling-worker train -c c.yaml --name b/0 --endpoint 10.0.0.1:7171\n");
  verb->callback([arguments, exit_code] {
    static Notices& notices = *new Notices(static_cast<pid_t>(arguments->parent_pid));
    *exit_code = Train(*arguments, &notices);
  });
}

}  // namespace
}  // namespace starling::cli

int main(int argc, char** argv) {
  const int exit_code = starling::cli::RunProgram(
      {.name = "starling-worker",
       .description = "A training worker of Starling; `starling run` starts them by itself",
       .footer = "`starling-worker train --help` shows its options and examples.",
       .add_verbs = starling::cli::AddTrain},
      argc, argv);
  std::fflush(nullptr);
  std::_Exit(exit_code);
}
