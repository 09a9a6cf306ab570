#include "starling/coordinator/driver.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/http_page.h"
#include "coordinator/manifest_writer.h"
#include "coordinator/metrics.h"
#include "coordinator/recorder.h"
#include "coordinator/run_folder.h"
#include "starling/base/bounded_queue.h"
#include "starling/base/exit_codes.h"
#include "starling/base/host.h"
#include "starling/base/host_port.h"
#include "starling/base/log.h"
#include "starling/base/secret.h"
#include "starling/base/status.h"
#include "starling/rpc/server.h"
#include "starling/rpc/target.h"

namespace starling::coordinator {
namespace {

using namespace membership;  // NOLINT: the driver speaks in the core's words

constexpr size_t kInputs = 65536;         // waiting inputs; streams wait when it is full
constexpr size_t kPendingRequests = 256;  // people's requests that wait for the core
constexpr absl::Duration kGrace = absl::Milliseconds(500);  // for last messages at the end

// What the thread takes from its queue.
struct Question {  // of a person
  UserRequest request;
  std::function<void(rpc::RequestReply)> reply;
};
struct StatusQuestion {
  std::function<void(absl::StatusOr<rpc::StatusReport>)> reply;
};
struct AbandonOrder {
  Ended end;
};
using Item = std::variant<CoordinatorInput, Question, StatusQuestion, AbandonOrder>;

absl::Status GoneStatus() { return absl::UnavailableError("the coordinator has ended"); }

std::string AdvertisedHost(const DriverOptions& options, const std::string& bound) {
  if (!options.advertise_host.empty()) return options.advertise_host;
  if (bound != "0.0.0.0" && bound != "::") return bound;
  char name[256] = "localhost";
  gethostname(name, sizeof(name) - 1);
  return name;
}

class DriverImpl final : public Driver, public rpc::ServerHandler {
 public:
  explicit DriverImpl(DriverOptions options) : options_(std::move(options)) {}
  ~DriverImpl() override {
    if (thread_.joinable()) {
      Abandon(static_cast<int>(ExitCode::kFailure), "the driver was destroyed");
      thread_.join();
    } else {
      RefuseQueued();  // Begin failed after the server had begun
    }
  }

  absl::Status Begin();

  const std::string& endpoint() const override { return endpoint_; }
  const std::string& http_address() const override { return http_address_; }
  void Request(UserRequest request, std::function<void(rpc::RequestReply)> reply) override {
    OnRequest(std::move(request), std::move(reply));
  }
  void ReportDead(const std::string& host, int64_t pid, const std::string& reason) override {
    inputs_.Push(CoordinatorInput(ProcessDied{host, pid, reason}));
  }
  absl::StatusOr<rpc::StatusReport> GetStatus(absl::Duration timeout) override;
  void Abandon(int exit_code, const std::string& reason) override {
    inputs_.Push(AbandonOrder{{exit_code, reason}});
  }
  Ended Wait() override {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&over_));
    return *end_;
  }
  bool WaitFor(absl::Duration timeout) override {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&over_), timeout);
  }

  // Of the server; on gRPC's threads.
  void OnMessage(Registration registration, WorkerMessage message) override {
    inputs_.Push(CoordinatorInput(FromWorker{registration, std::move(message)}));
  }
  void OnClosed(Registration registration, const std::string& reason) override {
    inputs_.Push(CoordinatorInput(StreamClosed{registration, reason}));
  }
  void OnRequest(UserRequest request, std::function<void(rpc::RequestReply)> reply) override {
    if (!inputs_.Push(Question{std::move(request), reply})) {
      reply({false, std::string(GoneStatus().message())});
    }
  }
  void OnStatus(std::function<void(absl::StatusOr<rpc::StatusReport>)> reply) override {
    if (!inputs_.Push(StatusQuestion{reply})) reply(GoneStatus());
  }

 private:
  absl::Status Listen();
  void Run();
  void Take(Item item);
  void Answer(const StatusQuestion& question);
  void Receive(const CoordinatorInput& input);
  void NoteProcess(const CoordinatorInput& input);
  void CheckJournalledProcesses();
  absl::Status Perform(CoordinatorOutput& output);
  absl::Status Do(Persist& output);
  absl::Status Do(SendToWorker& output);
  absl::Status Do(CloseStream& output);
  absl::Status Do(WriteLedger& output);
  absl::Status Do(WriteMetrics& output);
  absl::Status Do(WriteEvaluation& output);
  absl::Status Do(Event& output);
  absl::Status Do(WriteManifest& output);
  absl::Status Do(Reply& output);
  absl::Status Do(TargetChanged& output);
  absl::Status Do(Ended& output);
  void RefuseQueued();
  void TidyUp();

  const DriverOptions options_;
  BoundedQueue<Item> inputs_{kInputs};
  Metrics metrics_;
  std::unique_ptr<RunFolder> folder_;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<CoordinatorCore> core_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<ManifestWriter> manifests_;
  std::unique_ptr<HttpPage> page_;
  std::string endpoint_, http_address_;

  // Of the driver's thread.
  CoordinatorOutputs outputs_;
  std::map<Registration, int64_t> local_pids_;  // of connected workers on this host
  std::map<uint64_t, std::function<void(rpc::RequestReply)>> questions_;  // by request id
  uint64_t last_question_ = 0;
  std::optional<Ended> ending_;  // set by Ended, Abandon or a failed file: the loop leaves

  absl::Mutex mutex_;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;  // the thread has tidied up
  std::optional<Ended> end_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: it uses all of the above
};

// ---- start -------------------------------------------------------------------------------------

absl::Status DriverImpl::Begin() {
  const std::vector<std::string> problems = options_.membership.Validate();
  if (!problems.empty()) {
    return WithExitCode(absl::InvalidArgumentError(absl::StrJoin(problems, "; ")),
                        ExitCode::kConfig);
  }
  STARLING_ASSIGN_OR_RETURN(folder_, RunFolder::Open(options_.fs, options_.run_folder));
  const RestoredState& journal = folder_->restored();
  STARLING_RETURN_IF_ERROR(
      Annotate(CheckIdentity(options_.membership, journal), options_.run_folder));
  recorder_ = std::make_unique<Recorder>(&options_, folder_.get(), &metrics_);
  core_ = std::make_unique<CoordinatorCore>(options_.membership, journal, options_.clock->Now(),
                                            [](Generation) { return RandomHex(32); });
  manifests_ = std::make_unique<ManifestWriter>(
      options_.fs, folder_->checkpoints(), options_.faults,
      [this](ManifestWritten written) { inputs_.Push(CoordinatorInput(std::move(written))); });
  STARLING_RETURN_IF_ERROR(Listen());
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

absl::Status DriverImpl::Listen() {
  rpc::ServerOptions server;
  server.bind = options_.bind;
  STARLING_ASSIGN_OR_RETURN(server.token, rpc::LoadOrMakeToken(options_.run_folder));
  STARLING_ASSIGN_OR_RETURN(const HostPort bound, ParseHostPort(options_.bind));
  STARLING_ASSIGN_OR_RETURN(server_, rpc::Server::Start(server, this));
  endpoint_ = JoinHostPort(AdvertisedHost(options_, bound.host), server_->port());
  if (!options_.http.empty()) {
    STARLING_ASSIGN_OR_RETURN(
        page_, HttpPage::Start(
                   options_.http, [this] { return GetStatus(absl::Seconds(2)); }, &metrics_));
    http_address_ = page_->address();
    STARLING_RETURN_IF_ERROR(folder_->WriteHttp(http_address_));
  }
  return folder_->WriteEndpoint(endpoint_);
}

// ---- the thread --------------------------------------------------------------------------------

void DriverImpl::Run() {
  STARLING_LOG(Info) << "coordinator of " << options_.run_folder << " at " << endpoint_
                     << (http_address_.empty() ? "" : ", status page http://") << http_address_;
  Receive(Wake{});
  CheckJournalledProcesses();
  if (options_.adopt) Receive(UserRequest{.kind = UserRequest::Kind::kAdopt});
  while (!ending_) {
    // The queue waits by the wall clock, the core by the driver's.
    const absl::Duration wait =
        std::max(absl::ZeroDuration(), core_->NextWake() - options_.clock->Now());
    std::optional<Item> item = inputs_.PopUntil(absl::Now() + wait);
    if (item) {
      Take(*std::move(item));
    } else {
      Receive(Wake{});
    }
  }
  TidyUp();
}

void DriverImpl::Take(Item item) {
  if (auto* input = std::get_if<CoordinatorInput>(&item)) {
    NoteProcess(*input);
    Receive(*input);
  } else if (auto* question = std::get_if<Question>(&item)) {
    if (questions_.size() >= kPendingRequests) {
      question->reply({false, "too many requests wait for an answer: try again later"});
      return;
    }
    question->request.id = ++last_question_;
    questions_[last_question_] = std::move(question->reply);
    Receive(std::move(question->request));
  } else if (const auto* status = std::get_if<StatusQuestion>(&item)) {
    Answer(*status);
  } else {
    ending_ = std::get<AbandonOrder>(item).end;
  }
}

void DriverImpl::Answer(const StatusQuestion& question) {
  const absl::Time now = options_.clock->Now();
  rpc::StatusReport report;
  report.run = options_.membership.run_id;
  report.status = core_->GetStatus(now);
  recorder_->goodput().Observe(core_->phase() == CoordinatorCore::Phase::kRunning, now);
  report.goodput = recorder_->goodput().ratio();
  report.total_steps = options_.membership.total_steps;
  report.micro_batches = options_.membership.micro_batches;
  report.http_address = http_address_;
  question.reply(std::move(report));
}

// Gives the core one input and carries out the answers, in order. A failed file ends it there and
// then: nothing that depends on the lost record may leave.
void DriverImpl::Receive(const CoordinatorInput& input) {
  if (ending_) return;
  const absl::Time now = options_.clock->Now();
  outputs_.clear();
  core_->Receive(input, now, &outputs_);
  recorder_->goodput().Observe(core_->phase() == CoordinatorCore::Phase::kRunning, now);
  absl::Status status;
  for (CoordinatorOutput& output : outputs_) {
    status = Perform(output);
    if (!status.ok()) break;
  }
  if (status.ok()) status = folder_->SyncJournal();
  if (status.ok()) return;
  STARLING_LOG(Error) << "the coordinator stops, workers go on without it: "
                      << std::string(status.message());
  ending_ = Ended{static_cast<int>(ExitCode::kIoError), std::string(status.message())};
}

// A stream that ends because its process on this host died needs no grace to come back.
void DriverImpl::NoteProcess(const CoordinatorInput& input) {
  if (const auto* from = std::get_if<FromWorker>(&input)) {
    const auto* message = std::get_if<Register>(&from->message);
    if (message != nullptr && message->member.host == HostId()) {
      local_pids_[from->registration] = message->member.pid;
    }
  } else if (const auto* closed = std::get_if<StreamClosed>(&input)) {
    const auto it = local_pids_.find(closed->registration);
    if (it == local_pids_.end()) return;
    const int64_t pid = it->second;
    local_pids_.erase(it);
    if (ProcessIsGone(pid)) {
      Receive(ProcessDied{HostId(), pid, absl::StrCat("its process ", pid, " died")});
    }
  }
}

void DriverImpl::CheckJournalledProcesses() {
  if (!core_->view()) return;
  for (const Member& member : core_->view()->members) {
    if (member.host == HostId() && ProcessIsGone(member.pid)) {
      Receive(ProcessDied{member.host, member.pid,
                          absl::StrCat("its process ", member.pid, " is gone")});
    }
  }
}

// ---- outputs -----------------------------------------------------------------------------------

absl::Status DriverImpl::Perform(CoordinatorOutput& output) {
  return std::visit([this](auto& value) { return Do(value); }, output);
}

absl::Status DriverImpl::Do(Persist& output) {
  if (const auto* term = std::get_if<TermRecord>(&output.record)) recorder_->set_term(term->term);
  return folder_->AppendJournal(output.record);
}

absl::Status DriverImpl::Do(SendToWorker& output) {
  STARLING_RETURN_IF_ERROR(folder_->SyncJournal());
  if (std::holds_alternative<Settled>(*output.message)) {
    STARLING_RETURN_IF_ERROR(folder_->SyncLedger());
  }
  server_->Send(output.registration, output.message);
  return absl::OkStatus();
}

absl::Status DriverImpl::Do(CloseStream& output) {
  server_->Close(output.registration);
  return absl::OkStatus();
}

absl::Status DriverImpl::Do(WriteLedger& output) { return recorder_->Ledger(output.line); }

absl::Status DriverImpl::Do(WriteMetrics& output) {
  recorder_->Step(output, options_.clock->Now());
  return absl::OkStatus();
}

absl::Status DriverImpl::Do(WriteEvaluation& output) {
  recorder_->Evaluation(output);
  return absl::OkStatus();
}

absl::Status DriverImpl::Do(Event& output) {
  recorder_->Happened(output);
  return absl::OkStatus();
}

absl::Status DriverImpl::Do(WriteManifest& output) {
  STARLING_RETURN_IF_ERROR(folder_->SyncJournal());
  STARLING_RETURN_IF_ERROR(folder_->SyncLedger());
  ManifestJob job;
  checkpoint::Manifest& manifest = job.manifest;
  manifest.run_id = options_.membership.run_id;
  manifest.version = output.version;
  manifest.generation = output.generation;
  manifest.optimizer_steps = output.updates;
  manifest.samples_consumed = output.version.step.value() * options_.global_batch;
  manifest.config_hash = ToHex(options_.membership.config_hash);
  manifest.model_hash = ToHex(options_.membership.model_hash);
  manifest.data_hash = ToHex(output.data_hash);
  manifest.seed = options_.seed;
  job.options.keep = options_.keep_checkpoints;
  job.options.ancestry = std::move(output.ancestry);
  const Version version = output.version;
  job.order = std::move(output);
  if (!manifests_->Submit(std::move(job))) {
    inputs_.TryPush(
        CoordinatorInput(ManifestWritten{checkpoint::FolderName(version), version, false,
                                         "earlier checkpoints are still being completed"}));
  }
  return absl::OkStatus();
}

absl::Status DriverImpl::Do(Reply& output) {
  STARLING_RETURN_IF_ERROR(folder_->SyncJournal());
  const auto it = questions_.find(output.id);
  if (it == questions_.end()) return absl::OkStatus();  // our own --adopt
  const auto reply = std::move(it->second);
  questions_.erase(it);
  reply({output.ok, std::move(output.text)});
  return absl::OkStatus();
}

absl::Status DriverImpl::Do(TargetChanged& output) {
  STARLING_RETURN_IF_ERROR(folder_->SyncJournal());
  if (options_.on_target_changed) options_.on_target_changed(output.target_workers);
  return absl::OkStatus();
}

absl::Status DriverImpl::Do(Ended& output) {
  ending_ = output;
  return absl::OkStatus();
}

// ---- the end -----------------------------------------------------------------------------------

// From here on nothing comes in, and nobody who asked is left waiting.
void DriverImpl::RefuseQueued() {
  inputs_.Close();
  while (std::optional<Item> item = inputs_.TryPop()) {
    if (auto* question = std::get_if<Question>(&*item)) {
      question->reply({false, std::string(GoneStatus().message())});
    } else if (auto* status = std::get_if<StatusQuestion>(&*item)) {
      status->reply(GoneStatus());
    }
  }
}

void DriverImpl::TidyUp() {
  RefuseQueued();
  for (auto& [id, reply] : questions_) reply({false, ending_->reason});
  questions_.clear();
  folder_->RemoveEndpoint();
  server_->Shutdown(kGrace);
  page_.reset();
  manifests_.reset();
  folder_.reset();
  STARLING_LOG(Info) << "coordinator ended code=" << ending_->exit_code << " " << ending_->reason;
  if (options_.on_ended) options_.on_ended(*ending_);
  absl::MutexLock lock(&mutex_);
  end_ = *ending_;
  over_ = true;
}

absl::StatusOr<rpc::StatusReport> DriverImpl::GetStatus(absl::Duration timeout) {
  struct Slot {
    absl::Mutex mutex;
    std::optional<absl::StatusOr<rpc::StatusReport>> answer ABSL_GUARDED_BY(mutex);
    bool filled() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return answer.has_value(); }
  };
  auto slot = std::make_shared<Slot>();
  OnStatus([slot](absl::StatusOr<rpc::StatusReport> report) {
    absl::MutexLock lock(&slot->mutex);
    slot->answer = std::move(report);
  });
  absl::MutexLock lock(&slot->mutex);
  if (!slot->mutex.AwaitWithTimeout(absl::Condition(slot.get(), &Slot::filled), timeout)) {
    return absl::DeadlineExceededError("the coordinator's thread does not answer");
  }
  return *slot->answer;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Driver>> Driver::Start(DriverOptions options) {
  auto driver = std::make_unique<DriverImpl>(std::move(options));
  STARLING_RETURN_IF_ERROR(driver->Begin());
  return driver;
}

}  // namespace starling::coordinator
