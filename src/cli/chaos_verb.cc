// starling chaos: disturbs a running local job and reports what it cost.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "cli/chaos_report.h"
#include "cli/run_finder.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "starling/base/fs.h"
#include "starling/base/host.h"
#include "starling/base/status.h"
#include "starling/config/load.h"
#include "starling/rpc/client.h"

namespace starling::cli {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(10);       // between looks at the ledger
constexpr absl::Duration kSample = absl::Milliseconds(500);    // between looks at the workers
constexpr absl::Duration kCoordinatorGone = absl::Seconds(1);  // before it is started again
constexpr absl::Duration kSilent = absl::Seconds(30);  // no coordinator for so long: it is over
constexpr absl::Duration kAsk = absl::Seconds(2);

struct ChaosArguments {
  RunArguments run;
  std::string every = "10s", duration = "1m", kinds = "kill,stop,drain,join";
  uint64_t seed = 1;
};

struct Process {
  int64_t pid = 0;
  std::vector<std::string> words, environment;
  std::string folder;
};

// The words of a /proc file that ends each with a zero byte.
std::vector<std::string> ZeroEnded(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

// Who holds the run folder, if it is a `starling coordinator` of this host: as the lock says.
absl::StatusOr<Process> FindCoordinator(const std::string& run) {
  std::ifstream lock(JoinPath(run, "journal/lock"));
  std::string word, host;
  Process process;
  lock >> word >> process.pid >> word >> word >> host;
  if (process.pid <= 0 || host != HostId() || ProcessIsGone(process.pid)) {
    return absl::UnavailableError(
        absl::StrCat("no coordinator of this host holds ", run, ", as its journal/lock says"));
  }
  const std::string proc = absl::StrCat("/proc/", process.pid, "/");
  process.words = ZeroEnded(proc + "cmdline");
  process.environment = ZeroEnded(proc + "environ");
  char folder[4096];
  const ssize_t length = readlink((proc + "cwd").c_str(), folder, sizeof(folder));
  if (length > 0) process.folder.assign(folder, static_cast<size_t>(length));
  const bool alone =
      std::find(process.words.begin(), process.words.end(), "coordinator") != process.words.end();
  if (alone && length > 0) return process;
  return absl::InvalidArgumentError(
      "--kinds coordinator: the coordinator is part of `starling run`, and its death would end the "
      "run; start `starling coordinator` and `starling-worker`s, or leave this kind out");
}

absl::Status StartAgain(const Process& process) {
  std::vector<std::string> words = process.words, environment = process.environment;
  std::vector<char*> argv, envp;
  for (std::string& word : words) argv.push_back(word.data());
  for (std::string& variable : environment) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);  // it outlives this program
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, process.folder.c_str());
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], &actions, &attributes, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return error == 0 ? absl::OkStatus() : ErrnoStatus(error, "cannot start the coordinator again");
}

class Chaos {
 public:
  Chaos(const std::string& run, rpc::Target target, std::vector<std::string> kinds, uint64_t seed,
        absl::Duration detection, const rpc::StatusReport& first)
      : run_(run),
        client_(std::move(target)),
        kinds_(std::move(kinds)),
        random_(seed),
        pause_(1.5 * detection + absl::Milliseconds(500)),
        most_(first.status.target_workers + 1),
        total_steps_(first.total_steps),
        report_(run, first.micro_batches) {}
  ~Chaos() { WakeAll(); }

  // Returns the exit code.
  int Go(absl::Duration every, absl::Duration duration) {
    const absl::Time end = absl::Now() + duration;
    absl::Time next = absl::Now() + every, sample = absl::Now();
    heard_ = absl::Now();
    report_.Observe(absl::Now());
    while (absl::Now() < end && report_.last_step() < total_steps_ && !Over()) {
      if (absl::Now() >= next) {
        Act();
        next += every;
      }
      if (absl::Now() >= sample) {
        Sample();
        sample += kSample;
      }
      DoDue();
      report_.Observe(absl::Now());
      absl::SleepFor(kLook);
    }
    WakeAll();
    if (restart_) StartCoordinator();
    std::printf("%s", report_.Text().c_str());
    return report_.violations().empty() ? 0 : static_cast<int>(ExitCode::kInternal);
  }

 private:
  bool Over() const { return absl::Now() - heard_ > kSilent; }

  std::optional<rpc::StatusReport> Status() {
    absl::StatusOr<rpc::StatusReport> report = client_.Status(kAsk);
    if (!report.ok()) return std::nullopt;
    heard_ = absl::Now();
    return *std::move(report);
  }

  void Sample() {
    if (restart_) return;
    const std::optional<rpc::StatusReport> status = Status();
    if (!status) return;
    int workers = 0;
    double speed = 0;
    for (const auto& worker : status->status.workers) {
      if (!worker.rank) continue;
      ++workers;
      speed += worker.micro_batches_per_second;
    }
    report_.Sample(workers, workers > 0 ? speed / workers : 0, absl::Now());
  }

  // Two draws an act, whatever comes of it: the same seed chooses the same acts.
  void Act() {
    const std::string kind = kinds_[random_() % kinds_.size()];
    const uint64_t choice = random_();
    if (kind == "coordinator") return KillCoordinator();
    const std::optional<rpc::StatusReport> status = Status();
    if (!status) return Skip(kind, "the coordinator does not answer");
    if (kind == "join") return Join(*status);
    std::map<std::string, int64_t> able;  // to be chosen: active, here, not stopped already
    for (const auto& worker : status->status.workers) {
      if (worker.state == "active" && worker.member.host == HostId() &&
          !stopped_.contains(worker.member.pid) && !ProcessIsGone(worker.member.pid)) {
        able[worker.member.name] = worker.member.pid;
      }
    }
    if (able.size() < 2) return Skip(kind, "only one worker would be left to choose");
    const auto& [name, pid] = *std::next(able.begin(), static_cast<int64_t>(choice % able.size()));
    if (kind == "drain") return Drain(name);
    kill(static_cast<pid_t>(pid), kind == "kill" ? SIGKILL : SIGSTOP);
    if (kind == "stop") stopped_[pid] = absl::Now() + pause_;
    Did(kind, name, absl::StrCat(kind == "kill" ? "SIGKILL" : "SIGSTOP", " to pid ", pid));
  }

  void Drain(const std::string& name) {
    membership::UserRequest request;
    request.kind = membership::UserRequest::Kind::kDrain;
    request.worker = name;
    request.reason = "asked for by `starling chaos`";
    Ask("drain", name, request);
  }

  void Join(const rpc::StatusReport& status) {
    const auto active = std::count_if(status.status.workers.begin(), status.status.workers.end(),
                                      [](const auto& worker) { return worker.rank.has_value(); });
    membership::UserRequest request;
    request.kind = membership::UserRequest::Kind::kResize;
    request.target_workers = std::max(static_cast<int>(active) + 1, status.status.target_workers);
    if (request.target_workers > most_) return Skip("join", "there are enough");
    Ask("join", "", request);
  }

  void Ask(const std::string& kind, const std::string& worker,
           const membership::UserRequest& request) {
    const absl::StatusOr<rpc::RequestReply> reply = client_.Ask(request, kAsk);
    if (!reply.ok()) return Skip(kind, std::string(reply.status().message()));
    if (!reply->ok) return Skip(kind, reply->text);
    Did(kind, worker, reply->text);
  }

  void KillCoordinator() {
    absl::StatusOr<Process> process = FindCoordinator(run_);
    if (restart_ || !process.ok()) {
      return Skip("coordinator", restart_ ? "it is dead" : std::string(process.status().message()));
    }
    kill(static_cast<pid_t>(process->pid), SIGKILL);
    Did("coordinator", "", absl::StrCat("SIGKILL to pid ", process->pid));
    restart_ = *std::move(process);
    restart_at_ = absl::Now() + kCoordinatorGone;
  }

  void StartCoordinator() {
    const absl::Status status = StartAgain(*restart_);
    if (!status.ok()) Note(std::string(status.message()));
    restart_.reset();
  }

  void DoDue() {
    const absl::Time now = absl::Now();
    for (auto it = stopped_.begin(); it != stopped_.end();) {
      if (it->second > now) {
        ++it;
        continue;
      }
      kill(static_cast<pid_t>(it->first), SIGCONT);
      it = stopped_.erase(it);
    }
    if (restart_ && now >= restart_at_) StartCoordinator();
  }

  void WakeAll() {
    for (const auto& [pid, until] : stopped_) kill(static_cast<pid_t>(pid), SIGCONT);
    stopped_.clear();
  }

  void Skip(const std::string& kind, const std::string& why) {
    Note(absl::StrCat("chaos: ", kind, " left out: ", why));
  }

  // One line appended at once, also while the coordinator is dead.
  void Did(const std::string& kind, const std::string& worker, const std::string& reason) {
    report_.Acted(kind, absl::Now());
    Note(absl::StrCat("chaos: ", kind, worker.empty() ? "" : " ", worker, ": ", reason));
    timespec now = {};
    clock_gettime(CLOCK_MONOTONIC, &now);
    nlohmann::ordered_json line;
    line["time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone());
    line["mono_ns"] = absl::ToInt64Nanoseconds(absl::DurationFromTimespec(now));
    line["event"] = "chaos";
    line["worker"] = worker;
    line["reason"] = absl::StrCat(kind, ": ", reason);
    const std::string text = line.dump() + "\n";
    absl::StatusOr<std::unique_ptr<WritableFile>> file =
        RealFs().OpenAppend(JoinPath(run_, "events.jsonl"));
    const absl::Status status = file.ok() ? (*file)->Append(text) : file.status();
    if (!status.ok()) Note(std::string(status.message()));
  }

  const std::string run_;
  const rpc::RequestClient client_;
  const std::vector<std::string> kinds_;
  std::mt19937_64 random_;
  const absl::Duration pause_;  // of a stopped worker
  const int most_;              // workers that join may lead to
  const int64_t total_steps_;
  ChaosReport report_;
  std::map<int64_t, absl::Time> stopped_;  // pid → when it is woken
  std::optional<Process> restart_;
  absl::Time restart_at_, heard_;
};

absl::StatusOr<std::vector<std::string>> ParseKinds(const std::string& text) {
  static const char* const kKnown[] = {"kill", "stop", "drain", "join", "coordinator"};
  std::vector<std::string> kinds = absl::StrSplit(text, ',', absl::SkipEmpty());
  for (const std::string& kind : kinds) {
    if (kind == "partition") {
      return absl::InvalidArgumentError(
          "--kinds partition: workers of a local job share one network; it needs root and workers "
          "in network namespaces of their own, whose link is then cut with `ip link set down`");
    }
    if (std::find(std::begin(kKnown), std::end(kKnown), kind) == std::end(kKnown)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--kinds: \"", kind, "\" is none of kill, stop, drain, join, coordinator, partition"));
    }
  }
  if (kinds.empty()) return absl::InvalidArgumentError("--kinds is empty");
  return kinds;
}

absl::StatusOr<int> Run(const ChaosArguments& arguments) {
  STARLING_ASSIGN_OR_RETURN(std::vector<std::string> kinds, ParseKinds(arguments.kinds));
  STARLING_ASSIGN_OR_RETURN(const auto every, ParseTimeout("--kill-every", arguments.every));
  STARLING_ASSIGN_OR_RETURN(const auto duration, ParseTimeout("--duration", arguments.duration));
  RunArguments where = arguments.run;
  if (where.run.empty()) {
    STARLING_ASSIGN_OR_RETURN(where.run, NewestRun("endpoint"));
  }
  STARLING_ASSIGN_OR_RETURN(const rpc::Target target, FindRun(where));
  STARLING_ASSIGN_OR_RETURN(const rpc::StatusReport first,
                            rpc::RequestClient(target).Status(absl::Seconds(5)));
  if (std::find(kinds.begin(), kinds.end(), "coordinator") != kinds.end()) {
    STARLING_RETURN_IF_ERROR(FindCoordinator(where.run).status());
  }
  const std::string config = JoinPath(where.run, "config.resolved.yaml");
  const config::LoadedConfig loaded = config::LoadConfig({{config}, {}, {}});
  if (!loaded.problems.empty()) {
    return absl::InvalidArgumentError(loaded.problems.front().ToString());
  }
  Chaos chaos(where.run, target, std::move(kinds), arguments.seed, loaded.config.elastic.detection,
              first);
  return chaos.Go(every, duration);
}

}  // namespace

void AddChaos(CLI::App& app, int* exit_code) {
  CLI::App* verb = app.add_subcommand("chaos", "Disturb a running local job and see what it costs");
  auto arguments = std::make_shared<ChaosArguments>();
  AddRunOption(verb, &arguments->run);
  verb->add_option("--kill-every", arguments->every, "Time between two acts")
      ->type_name("TIME")
      ->capture_default_str();
  verb->add_option("--kinds", arguments->kinds,
                   "Of kill, stop, drain, join, coordinator, partition; parted by commas")
      ->type_name("LIST")
      ->capture_default_str();
  verb->add_option("--seed", arguments->seed, "The same seed chooses the same acts")
      ->type_name("S")
      ->capture_default_str();
  verb->add_option("--duration", arguments->duration, "How long")
      ->type_name("TIME")
      ->capture_default_str();
  verb->footer(
      "kill         SIGKILL to a worker, never to the last active one\n"
      "stop         SIGSTOP to a worker for longer than elastic.detection, then SIGCONT\n"
      "drain, join  a worker is asked to leave; one more is asked for\n"
      "coordinator  SIGKILL to a `starling coordinator`, which is started again after 1 s with "
      "its\n"
      "             own command line; refused when it is part of `starling run`\n"
      "partition    needs root and workers in network namespaces of their own: refused for a\n"
      "             local job\n\n"
      "Each act is an event `chaos` in events.jsonl. At the end comes a report: steps committed,\n"
      "micro-batches recomputed, goodput (share of worker-seconds that went into committed\n"
      "micro-batches), recovery times by kind (from the act to the next line of the ledger, less\n"
      "one usual step), violations.\n\n"
      "Exit codes: 0 every step holds every micro-batch once; 70 a violation, please report; 64\n"
      "the command line; 69 no coordinator answers.\n\n"
      "Examples:\n"
      "  starling chaos --run runs/ru-tiny --kill-every 10s --duration 5m\n"
      "  starling chaos --kinds kill,coordinator --seed 7 --kill-every 3s --duration 1m\n");
  verb->callback([arguments, exit_code] {
    const absl::StatusOr<int> code = Run(*arguments);
    *exit_code = code.ok() ? *code : Fail(code.status());
  });
}

}  // namespace starling::cli
