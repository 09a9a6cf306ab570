#include "cli/run_session.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "cli/run_setup.h"
#include "cli/terminal.h"
#include "starling/base/exit_codes.h"
#include "starling/base/fs.h"
#include "starling/base/host.h"
#include "starling/base/log.h"
#include "starling/base/status.h"

namespace starling::cli {
namespace {

constexpr absl::Duration kPlainEvery = absl::Seconds(10);  // between progress lines in a batch log
constexpr absl::Duration kLookAgain = absl::Seconds(1);
constexpr absl::Duration kChildrenMayTake = absl::Seconds(12);  // after the end of the run
constexpr size_t kPaceSteps = 20;
constexpr size_t kSaidLimit = 65536;  // the newest are kept (I12)

constexpr int kInterrupted = static_cast<int>(ExitCode::kInterrupted);
constexpr int kDrained = static_cast<int>(ExitCode::kDrained);

sigset_t OurSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set, signal);
  return set;
}

ProgressOptions RunProgress() {
  ProgressOptions options = StandardErrorProgress();
  options.plain = kPlainEvery;
  return options;
}

// What happened, as one line for people; empty for what is noise on a terminal.
std::string EventLine(const membership::Event& event) {
  if (event.event == "registered" || event.event == "leaving") return "";
  std::string line = event.event;
  if (!event.worker.empty()) absl::StrAppend(&line, " ", event.worker);
  if (event.event == "view") {
    absl::StrAppend(&line, ": generation ", event.generation.value(), ", ", event.members,
                    event.members == 1 ? " worker" : " workers");
    double total = 0;
    for (const auto& [phase, ms] : event.phase_ms) total += ms;
    if (total > 0) absl::StrAppendFormat(&line, ", %.0f ms", total);
  }
  if (!event.reason.empty()) absl::StrAppend(&line, ": ", event.reason);
  return line;
}

}  // namespace

RunSession::RunSession(RunSessionOptions options)
    : options_(std::move(options)),
      started_(absl::Now()),
      progress_(RunProgress()),
      workers_(options_.workers),
      wakeup_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const sigset_t set = OurSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

RunSession::~RunSession() {
  driver_.reset();
  close(signals_);
  close(wakeup_);
}

int RunSession::Run() {
  if (absl::Status status = Start(); !status.ok()) return Fail(status);
  for (;;) {
    Wait(std::min(absl::Now() + kLookAgain, workers_.NextStart()));
    TakeSignals();
    TakeSaid();
    if (killed_) return KillAll();
    if (ended_) return Finish();
    LookAfterWorkers();
    GiveUpIfHopeless();
  }
}

absl::Status RunSession::Start() {
  if (signals_ < 0 || wakeup_ < 0) return ErrnoStatus(errno, "cannot watch signals");
  coordinator::DriverOptions driver = options_.driver;
  driver.on_target_changed = [this](int target) { Say(target); };
  driver.on_step = [this](const coordinator::StepSummary& step) { Say(step); };
  driver.on_evaluation = [this](const membership::WriteEvaluation& sum) { Say(sum); };
  driver.on_event = [this](const membership::Event& event) { Say(event); };
  driver.on_ended = [this](const membership::Ended& ended) { Say(ended); };
  STARLING_ASSIGN_OR_RETURN(driver_, coordinator::Driver::Start(std::move(driver)));
  const std::string& folder = options_.driver.run_folder;
  STARLING_RETURN_IF_ERROR(WriteAtomically(RealFs(), JoinPath(folder, "config.resolved.yaml"),
                                           options_.resolved_config));
  STARLING_RETURN_IF_ERROR(RealFs().MakeDirectories(options_.workers.log_folder));
  const auto status = driver_->GetStatus(absl::Seconds(5));
  TakeSaid();
  if (!status.ok() || over_) return absl::OkStatus();  // there is nothing left to do
  progress_.Print(absl::StrCat("run folder ", folder, ", coordinator ", driver_->endpoint(),
                               driver_->http_address().empty() ? "" : ", status page http://",
                               driver_->http_address()));
  // An earlier resize is in the journal; the command line is newer.
  if (status->status.target_workers != options_.target_workers) {
    membership::UserRequest request;
    request.kind = membership::UserRequest::Kind::kResize;
    request.target_workers = options_.target_workers;
    driver_->Request(std::move(request), [](rpc::RequestReply) {});
  }
  std::vector<std::string> started;
  return workers_.FillTo(options_.target_workers, absl::Now(), &started);
}

// ---- the driver's thread talks, this one listens
// -------------------------------------------------

void RunSession::Say(Said said) {
  {
    absl::MutexLock lock(&mutex_);
    said_.push_back(std::move(said));
    if (said_.size() > kSaidLimit) said_.pop_front();
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wakeup_, &one, sizeof(one));
}

void RunSession::Wait(absl::Time until) {
  pollfd fds[] = {{signals_, POLLIN, 0}, {wakeup_, POLLIN, 0}};
  const int64_t ms = absl::ToInt64Milliseconds(until - absl::Now()) + 1;
  poll(fds, 2, static_cast<int>(std::clamp<int64_t>(ms, 0, 1000)));
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = read(wakeup_, &count, sizeof(count));
}

void RunSession::TakeSignals() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    if (info.ssi_signo == SIGCHLD) continue;  // looked after each turn
    const bool interrupt = info.ssi_signo == SIGINT;
    // The second Ctrl-C ends at once, whatever asked the run to stop before the first one.
    if (interrupt && std::exchange(interrupted_, true)) {
      killed_ = true;
      return;
    }
    if (interrupt) {
      progress_.Print("stopping: checkpoint, then exit (Ctrl-C again: at once)");
      Stop(kInterrupted, "interrupted by the user");
    } else {
      progress_.Print("stopping: SIGTERM");
      Stop(kDrained, "SIGTERM");
    }
  }
}

void RunSession::TakeSaid() {
  std::deque<Said> said;
  {
    absl::MutexLock lock(&mutex_);
    said.swap(said_);
  }
  for (const Said& one : said) {
    std::visit([this](const auto& value) { Hear(value); }, one);
  }
}

void RunSession::Hear(int target) {
  if (over_) return;
  options_.target_workers = target;
  std::vector<std::string> started;
  if (absl::Status status = workers_.FillTo(target, absl::Now(), &started); !status.ok()) {
    progress_.Print(absl::StrCat("warning: ", std::string(status.message())));
  }
}

void RunSession::Hear(const coordinator::StepSummary& step) {
  trained_ = true;
  last_step_ = step;
  if (!pace_.empty() && pace_.back().second >= step.step) pace_.clear();  // a new timeline
  pace_.emplace_back(absl::Now(), step.step);
  if (pace_.size() > kPaceSteps) pace_.pop_front();
  progress_.Show(ProgressLine(step));
}

void RunSession::Hear(const membership::WriteEvaluation& evaluation) {
  const membership::EvaluationPart& sum = evaluation.sum;
  if (sum.masked == 0) return;
  const auto masked = static_cast<double>(sum.masked);
  progress_.Print(
      absl::StrFormat("evaluation at step %d: loss %.3f, masked tokens predicted right %.1f %%",
                      evaluation.version.step.value(), sum.mlm_loss / masked,
                      100 * static_cast<double>(sum.masked_correct) / masked));
}

void RunSession::Hear(const membership::Event& event) {
  // Released workers end before the coordinator says that it has.
  if (event.event == "done" || event.event == "ended" || event.event == "stopping") over_ = true;
  if (event.event == "joined") workers_.NoteMember(event.worker);
  if (event.event == "draining" && event.reason.rfind(kOwnNotice, 0) != 0) {
    workers_.NoteDrained(event.worker);
  }
  if (event.event == "checkpoint") {
    checkpoint_ = std::string(absl::StripPrefix(event.reason, "complete: "));
  }
  if (const std::string line = EventLine(event); !line.empty()) progress_.Print(line);
}

void RunSession::Hear(const membership::Ended& ended) { ended_ = ended; }

// ---- workers -----------------------------------------------------------------------------------

void RunSession::LookAfterWorkers() {
  const absl::Time now = absl::Now();
  for (const WorkerEnd& end : workers_.Reap(now, over_)) {
    driver_->ReportDead(HostId(), end.pid, end.reason);
    Show(end);
  }
  if (over_) return;
  std::vector<std::string> started;
  if (absl::Status status = workers_.StartDue(now, &started); !status.ok()) {
    progress_.Print(absl::StrCat("warning: ", std::string(status.message())));
  }
}

void RunSession::Show(const WorkerEnd& end) {
  STARLING_LOG(Info) << "event=worker_ended worker=" << end.name << " pid=" << end.pid
                     << " code=" << end.exit_code << " reason=\"" << end.reason << "\"";
  if (end.wanted) return;
  last_end_ = end;
  std::string line = absl::StrCat("worker ", end.name, " (pid ", end.pid, ") ended: ", end.reason,
                                  "; log ", end.log);
  if (end.restart_in) {
    absl::StrAppend(&line, "; starts again in ", absl::FormatDuration(*end.restart_in));
  }
  progress_.Print(line);
}

// Nobody of ours lives or will: unless workers from elsewhere take part, waiting helps nobody.
void RunSession::GiveUpIfHopeless() {
  if (over_) return;
  const bool hopeless = workers_.AllGone() || (!trained_ && workers_.AllHopeless());
  if (!hopeless) return;
  const auto status = driver_->GetStatus(absl::Seconds(5));
  if (status.ok()) {
    for (const membership::WorkerStatus& worker : status->status.workers) {
      if (worker.state != "lost") return;
    }
  }
  const int code = last_end_ && last_end_->exit_code < 128 ? last_end_->exit_code
                                                           : static_cast<int>(ExitCode::kFailure);
  if (!last_end_) {
    progress_.Print("all workers have left");
    return Stop(kDrained, "all workers have left");
  }
  progress_.Print(absl::StrCat("starling: no worker is left and none will be started again; ",
                               last_end_->name, " said: ", last_end_->reason));
  Stop(code, "no worker is left");
}

// ---- the end -----------------------------------------------------------------------------------

void RunSession::Stop(int exit_code, const std::string& reason) {
  if (stop_asked_) return;
  stop_asked_ = over_ = true;
  exit_code_ = exit_code;
  membership::UserRequest request;
  request.kind = membership::UserRequest::Kind::kStop;
  request.reason = reason;
  driver_->Request(std::move(request), [](rpc::RequestReply) {});
}

int RunSession::KillAll() {
  workers_.Signal(SIGKILL);
  progress_.Finish("");
  progress_.Print("stopped at once; the newest checkpoint is where the next start goes on");
  driver_->Abandon(kInterrupted, "interrupted twice");
  return kInterrupted;
}

// The coordinator is done: children have their release and write what they still write.
int RunSession::Finish() {
  const absl::Time deadline = absl::Now() + kChildrenMayTake;
  workers_.Signal(SIGTERM);  // for those that the coordinator never knew
  while (workers_.alive() > 0 && absl::Now() < deadline && !killed_) {
    for (const WorkerEnd& end : workers_.Reap(absl::Now(), true)) Show(end);
    if (workers_.alive() == 0) break;
    Wait(std::min(deadline, absl::Now() + absl::Milliseconds(100)));
    TakeSignals();
  }
  workers_.Signal(SIGKILL);
  driver_->Wait();
  TakeSaid();
  progress_.Finish(last_step_ ? ProgressLine(*last_step_) : "");
  // A signal that came too late to stop anything changes nothing: what is complete is complete.
  const int exit_code = ended_->exit_code == 0 ? 0 : exit_code_.value_or(ended_->exit_code);
  progress_.Print(Summary(exit_code));
  return exit_code;
}

std::string RunSession::ProgressLine(const coordinator::StepSummary& step) {
  std::string line = absl::StrFormat(
      "%s step %d/%d  loss %.3f  %s tokens/s  %d %s  gen %d",
      ProgressBar(static_cast<double>(step.step) / static_cast<double>(options_.total_steps)),
      step.step, options_.total_steps, step.loss, ShortCount(step.tokens_per_second), step.workers,
      step.workers == 1 ? "worker" : "workers", step.generation);
  if (pace_.size() < 2) return line;
  const double seconds = absl::ToDoubleSeconds(pace_.back().first - pace_.front().first);
  const double steps = static_cast<double>(pace_.back().second - pace_.front().second);
  const double left = static_cast<double>(options_.total_steps - step.step);
  if (steps > 0 && left > 0) absl::StrAppend(&line, "  ETA ", ShortTime(seconds / steps * left));
  return line;
}

std::string RunSession::Summary(int exit_code) const {
  const std::string time = ShortTime(absl::ToDoubleSeconds(absl::Now() - started_));
  std::string text;
  if (exit_code == 0) {
    text = last_step_ ? "done" : "done: " + ended_->reason;
  } else {
    text = absl::StrCat("stopped: ", ended_->reason);
  }
  if (last_step_) {
    absl::StrAppendFormat(&text, "; step %d of %d, loss %.3f", last_step_->step,
                          options_.total_steps, last_step_->loss);
  }
  absl::StrAppend(&text, ", ", time);
  if (!checkpoint_.empty()) {
    absl::StrAppend(&text, ", checkpoint ",
                    JoinPath(JoinPath(options_.driver.run_folder, "checkpoints"), checkpoint_));
  }
  if (exit_code == kInterrupted || exit_code == kDrained) {
    absl::StrAppend(&text, "; the same command goes on from there");
  }
  return text;
}

}  // namespace starling::cli
