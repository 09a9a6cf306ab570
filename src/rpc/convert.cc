#include "rpc/convert.h"

#include <cmath>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "starling/base/status.h"

namespace starling::rpc {
namespace {

using namespace membership;  // NOLINT: both sides of each function bear the same names

template <typename List>
void AddIncarnations(const std::vector<Incarnation>& from, List* to) {
  for (Incarnation incarnation : from) to->Add(incarnation.value());
}

void AddLines(const std::vector<LedgerLine>& from,
              google::protobuf::RepeatedPtrField<pb::LedgerLine>* to) {
  for (const LedgerLine& line : from) ToProto(line, to->Add());
}

void AddSets(const std::vector<plan::IntervalSet>& from,
             google::protobuf::RepeatedPtrField<pb::IntervalSet>* to) {
  to->Reserve(static_cast<int>(from.size()));
  for (const plan::IntervalSet& set : from) ToProto(set, to->Add());
}

// ---- one function a message, out ---------------------------------------------------------------

void Fill(const Register& from, pb::WorkerMessage* message) {
  pb::Register* to = message->mutable_register_();
  ToProto(from.member, to->mutable_member());
  to->set_run_id(from.run_id);
  to->set_protocol_version(from.protocol_version);
  to->set_numerics_version(from.numerics_version);
  to->set_config_hash(from.config_hash);
  to->set_model_hash(from.model_hash);
  to->set_data_hash(from.data_hash);
  to->set_highest_term(from.highest_term.value());
  if (from.view) ToProto(*from.view, to->mutable_view());
  to->set_active(from.active);
  ToProto(from.state, to->mutable_state());
  AddLines(from.unsettled, to->mutable_unsettled());
}
void Fill(const Heartbeat& from, pb::WorkerMessage* message) {
  pb::Heartbeat* to = message->mutable_heartbeat();
  to->set_progress(from.progress);
  to->set_waiting(from.waiting);
  to->set_micro_batches_per_second(from.micro_batches_per_second);
}
void Fill(const SurveyAnswer& from, pb::WorkerMessage* message) {
  pb::SurveyAnswer* to = message->mutable_survey_answer();
  to->set_generation(from.generation.value());
  ToProto(from.state, to->mutable_state());
  AddLines(from.unsettled, to->mutable_unsettled());
}
void Fill(const Report& from, pb::WorkerMessage* message) {
  pb::Report* to = message->mutable_report();
  ToProto(from.result, to->mutable_result());
  if (from.line) ToProto(*from.line, to->mutable_line());
}
void Fill(const CommFailed& from, pb::WorkerMessage* message) {
  pb::CommFailed* to = message->mutable_comm_failed();
  to->set_generation(from.generation.value());
  to->set_reason(CutText(from.reason));
  AddIncarnations(from.suspects, to->mutable_suspects());
}
void Fill(const Ready& from, pb::WorkerMessage* message) {
  pb::Ready* to = message->mutable_ready();
  to->set_generation(from.generation.value());
  AddLines(from.unsettled, to->mutable_unsettled());
}
void Fill(const ConnectFailed& from, pb::WorkerMessage* message) {
  pb::ConnectFailed* to = message->mutable_connect_failed();
  to->set_generation(from.generation.value());
  AddIncarnations(from.unreachable, to->mutable_unreachable());
  to->set_reason(CutText(from.reason));
}
void Fill(const FormProgress& from, pb::WorkerMessage* message) {
  message->mutable_form_progress()->set_generation(from.generation.value());
}
void Fill(const RestoreFailed& from, pb::WorkerMessage* message) {
  pb::RestoreFailed* to = message->mutable_restore_failed();
  to->set_generation(from.generation.value());
  to->set_checkpoint(from.checkpoint);
  to->set_reason(CutText(from.reason));
}
void Fill(const DrainNotice& from, pb::WorkerMessage* message) {
  message->mutable_drain_notice()->set_deadline_ms(from.deadline_ms);
  message->mutable_drain_notice()->set_reason(CutText(from.reason));
}
void Fill(const Leaving& from, pb::WorkerMessage* message) {
  message->mutable_leaving()->set_exit_code(from.exit_code);
  message->mutable_leaving()->set_reason(CutText(from.reason));
}
void Fill(const PartWritten& from, pb::WorkerMessage* message) {
  pb::PartWritten* to = message->mutable_part_written();
  ToProto(from.version, to->mutable_version());
  to->set_generation(from.generation.value());
  to->set_rank(from.rank.value());
  to->set_updates(from.updates);
  to->set_ok(from.ok);
  to->set_info(from.ok ? from.info : CutText(from.info));
}
void Fill(const Evaluated& from, pb::WorkerMessage* message) {
  pb::Evaluated* to = message->mutable_evaluated();
  ToProto(from.version, to->mutable_version());
  to->set_generation(from.generation.value());
  to->set_rank(from.rank.value());
  ToProto(from.part, to->mutable_part());
}
void Fill(const HandedOver& from, pb::WorkerMessage* message) {
  pb::HandedOver* to = message->mutable_handed_over();
  to->set_generation(from.generation.value());
  ToProto(from.position, to->mutable_position());
  ToProto(from.held, to->mutable_held());
}

void Fill(const Registered& from, pb::CoordinatorMessage* message) {
  pb::Registered* to = message->mutable_registered();
  to->set_term(from.term.value());
  to->set_registration(from.registration.value());
  to->set_expects_activity(from.expects_activity);
}
void Fill(const Refused& from, pb::CoordinatorMessage* message) {
  message->mutable_refused()->set_exit_code(from.exit_code);
  message->mutable_refused()->set_reason(CutText(from.reason));
}
void Fill(const Revoke& from, pb::CoordinatorMessage* message) {
  pb::Revoke* to = message->mutable_revoke();
  to->set_term(from.term.value());
  to->set_generation(from.generation.value());
  to->set_reason(CutText(from.reason));
}
void Fill(const Prepare& from, pb::CoordinatorMessage* message) {
  pb::Prepare* to = message->mutable_prepare();
  to->set_term(from.term.value());
  ToProto(*from.view, to->mutable_view());
  to->set_secret(from.secret);
}
void Fill(const Form& from, pb::CoordinatorMessage* message) {
  pb::Form* to = message->mutable_form();
  to->set_term(from.term.value());
  ToProto(*from.view, to->mutable_view());
  to->set_secret(from.secret);
  to->set_purpose(static_cast<uint32_t>(from.purpose));
  ToProto(from.position, to->mutable_position());
  to->set_updates(from.updates);
  if (from.result) ToProto(*from.result, to->mutable_result());
  AddSets(from.claims, to->mutable_claims());
  AddSets(from.assignment, to->mutable_assignment());
  AddIncarnations(from.merge, to->mutable_merge());
  for (const Transfer& transfer : from.transfers) {
    pb::Transfer* entry = to->add_transfers();
    entry->set_from(transfer.from.value());
    entry->set_to(transfer.to.value());
  }
  if (from.restore) {
    to->mutable_restore()->set_checkpoint(from.restore->checkpoint);
    ToProto(from.restore->version, to->mutable_restore()->mutable_version());
  }
  to->set_from_seed(from.from_seed);
  if (from.latest_checkpoint) ToProto(*from.latest_checkpoint, to->mutable_latest_checkpoint());
  if (from.latest_evaluation) ToProto(*from.latest_evaluation, to->mutable_latest_evaluation());
}
void Fill(const Activate& from, pb::CoordinatorMessage* message) {
  message->mutable_activate()->set_term(from.term.value());
  message->mutable_activate()->set_generation(from.generation.value());
}
void Fill(const Settled& from, pb::CoordinatorMessage* message) {
  ToProto(from.version, message->mutable_settled()->mutable_version());
}
void Fill(const RequestCheckpoint&, pb::CoordinatorMessage* message) {
  message->mutable_request_checkpoint();
}
void Fill(const Release& from, pb::CoordinatorMessage* message) {
  message->mutable_release()->set_exit_code(from.exit_code);
  message->mutable_release()->set_reason(CutText(from.reason));
}
void Fill(const HandOver& from, pb::CoordinatorMessage* message) {
  message->mutable_hand_over()->set_generation(from.generation.value());
  message->mutable_hand_over()->set_receiver(from.receiver.value());
}

// ---- one function a message, in ----------------------------------------------------------------

template <typename List>
absl::Status Read(const List& from, std::string_view field, std::vector<Incarnation>* to) {
  STARLING_RETURN_IF_ERROR(
      Require(from.size() <= kMaxMembers, field, absl::StrCat(from.size(), " are too many")));
  for (uint64_t value : from) to->push_back(Incarnation(value));
  return absl::OkStatus();
}

absl::Status Read(const google::protobuf::RepeatedPtrField<pb::LedgerLine>& from,
                  std::vector<LedgerLine>* to) {
  STARLING_RETURN_IF_ERROR(Require(from.size() <= kMaxLines, "unsettled",
                                   absl::StrCat(from.size(), " lines are too many")));
  to->resize(static_cast<size_t>(from.size()));
  for (int i = 0; i < from.size(); ++i) {
    const absl::Status read = FromProto(from[i], &(*to)[static_cast<size_t>(i)]);
    if (!read.ok()) return Annotate(read, absl::StrCat("unsettled[", i, "]"));
  }
  return absl::OkStatus();
}

absl::Status ReadReason(const std::string& from, std::string* to) {
  *to = from;
  return CheckText(from, kMaxText, "reason");
}

absl::Status ReadRank(int32_t from, Rank* to) {
  *to = Rank(from);
  return Require(from >= 0 && from < kMaxMembers, "rank", absl::StrCat(from, " is no rank"));
}

absl::Status ReadExitCode(int32_t from, int* to) {
  *to = from;
  return Require(from >= 0 && from <= 255, "exit_code", absl::StrCat(from, " is no exit code"));
}

absl::Status Read(const pb::Register& from, Register* to) {
  STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.member(), &to->member), "member"));
  STARLING_RETURN_IF_ERROR(CheckText(from.run_id(), kMaxName, "run_id"));
  STARLING_RETURN_IF_ERROR(CheckText(from.numerics_version(), kMaxName, "numerics_version"));
  to->run_id = from.run_id();
  to->protocol_version = from.protocol_version();
  to->numerics_version = from.numerics_version();
  to->config_hash = from.config_hash();
  to->model_hash = from.model_hash();
  to->data_hash = from.data_hash();
  to->highest_term = Term(from.highest_term());
  if (from.has_view()) {
    auto view = std::make_shared<View>();
    STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.view(), view.get()), "view"));
    to->view = std::move(view);
  }
  to->active = from.active();
  STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.state(), &to->state), "state"));
  return Read(from.unsettled(), &to->unsettled);
}
absl::Status Read(const pb::Heartbeat& from, Heartbeat* to) {
  *to = {from.progress(), from.waiting(), from.micro_batches_per_second()};
  return Require(std::isfinite(to->micro_batches_per_second) && to->micro_batches_per_second >= 0,
                 "micro_batches_per_second", "is no speed");
}
absl::Status Read(const pb::SurveyAnswer& from, SurveyAnswer* to) {
  to->generation = Generation(from.generation());
  STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.state(), &to->state), "state"));
  return Read(from.unsettled(), &to->unsettled);
}
absl::Status Read(const pb::Report& from, Report* to) {
  STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.result(), &to->result), "result"));
  if (!from.has_line()) return absl::OkStatus();
  return Annotate(FromProto(from.line(), &to->line.emplace()), "line");
}
absl::Status Read(const pb::CommFailed& from, CommFailed* to) {
  to->generation = Generation(from.generation());
  STARLING_RETURN_IF_ERROR(ReadReason(from.reason(), &to->reason));
  return Read(from.suspects(), "suspects", &to->suspects);
}
absl::Status Read(const pb::Ready& from, Ready* to) {
  to->generation = Generation(from.generation());
  return Read(from.unsettled(), &to->unsettled);
}
absl::Status Read(const pb::ConnectFailed& from, ConnectFailed* to) {
  to->generation = Generation(from.generation());
  STARLING_RETURN_IF_ERROR(ReadReason(from.reason(), &to->reason));
  return Read(from.unreachable(), "unreachable", &to->unreachable);
}
absl::Status Read(const pb::FormProgress& from, FormProgress* to) {
  to->generation = Generation(from.generation());
  return absl::OkStatus();
}
absl::Status Read(const pb::RestoreFailed& from, RestoreFailed* to) {
  to->generation = Generation(from.generation());
  to->checkpoint = from.checkpoint();
  STARLING_RETURN_IF_ERROR(CheckText(from.checkpoint(), kMaxName, "checkpoint"));
  return ReadReason(from.reason(), &to->reason);
}
absl::Status Read(const pb::DrainNotice& from, DrainNotice* to) {
  to->deadline_ms = from.deadline_ms();
  STARLING_RETURN_IF_ERROR(Require(from.deadline_ms() >= 0, "deadline_ms", "is negative"));
  return ReadReason(from.reason(), &to->reason);
}
absl::Status Read(const pb::Leaving& from, Leaving* to) {
  STARLING_RETURN_IF_ERROR(ReadExitCode(from.exit_code(), &to->exit_code));
  return ReadReason(from.reason(), &to->reason);
}
absl::Status Read(const pb::PartWritten& from, PartWritten* to) {
  STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.version(), &to->version), "version"));
  to->generation = Generation(from.generation());
  STARLING_RETURN_IF_ERROR(ReadRank(from.rank(), &to->rank));
  STARLING_RETURN_IF_ERROR(Require(from.updates() >= 0, "updates", "is negative"));
  to->updates = from.updates();
  to->ok = from.ok();
  to->info = from.info();
  return CheckText(from.info(), kMaxPartInfo, "info");
}
absl::Status Read(const pb::Evaluated& from, Evaluated* to) {
  STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.version(), &to->version), "version"));
  to->generation = Generation(from.generation());
  STARLING_RETURN_IF_ERROR(ReadRank(from.rank(), &to->rank));
  return Annotate(FromProto(from.part(), &to->part), "part");
}
absl::Status Read(const pb::HandedOver& from, HandedOver* to) {
  to->generation = Generation(from.generation());
  STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.position(), &to->position), "position"));
  return Annotate(FromProto(from.held(), &to->held), "held");
}

absl::Status Read(const pb::Registered& from, Registered* to) {
  *to = {Term(from.term()), Registration(from.registration()), from.expects_activity()};
  return absl::OkStatus();
}
absl::Status Read(const pb::Refused& from, Refused* to) {
  STARLING_RETURN_IF_ERROR(ReadExitCode(from.exit_code(), &to->exit_code));
  return ReadReason(from.reason(), &to->reason);
}
absl::Status Read(const pb::Revoke& from, Revoke* to) {
  to->term = Term(from.term());
  to->generation = Generation(from.generation());
  return ReadReason(from.reason(), &to->reason);
}
absl::Status Read(const pb::View& from, std::shared_ptr<const View>* to) {
  auto view = std::make_shared<View>();
  STARLING_RETURN_IF_ERROR(Annotate(FromProto(from, view.get()), "view"));
  *to = std::move(view);
  return absl::OkStatus();
}
absl::Status Read(const pb::Prepare& from, Prepare* to) {
  to->term = Term(from.term());
  to->secret = from.secret();
  STARLING_RETURN_IF_ERROR(CheckText(from.secret(), kMaxName, "secret"));
  return Read(from.view(), &to->view);
}
absl::Status ReadSets(const google::protobuf::RepeatedPtrField<pb::IntervalSet>& from,
                      size_t members, std::string_view field, std::vector<plan::IntervalSet>* to) {
  STARLING_RETURN_IF_ERROR(
      Require(static_cast<size_t>(from.size()) == members, field,
              absl::StrCat(from.size(), " entries for ", members, " members")));
  to->resize(members);
  for (int r = 0; r < from.size(); ++r) {
    const absl::Status read = FromProto(from[r], &(*to)[static_cast<size_t>(r)]);
    if (!read.ok()) return Annotate(read, absl::StrCat(std::string(field), "[", r, "]"));
  }
  return absl::OkStatus();
}
absl::Status ReadTransfers(const pb::Form& from, int members, std::vector<Transfer>* to) {
  STARLING_RETURN_IF_ERROR(
      Require(from.transfers_size() <= members, "transfers", "more than members"));
  for (const pb::Transfer& transfer : from.transfers()) {
    if (transfer.from() < 0 || transfer.from() >= members || transfer.to() < 0 ||
        transfer.to() >= members || transfer.from() == transfer.to()) {
      return absl::InvalidArgumentError(
          absl::StrCat("transfers: rank ", transfer.from(), " to rank ", transfer.to()));
    }
    to->push_back({Rank(transfer.from()), Rank(transfer.to())});
  }
  return absl::OkStatus();
}
absl::Status ReadVersions(const pb::Form& from, Form* to) {
  if (from.has_restore()) {
    RestoreSource& restore = to->restore.emplace();
    restore.checkpoint = from.restore().checkpoint();
    STARLING_RETURN_IF_ERROR(CheckText(restore.checkpoint, kMaxName, "restore.checkpoint"));
    STARLING_RETURN_IF_ERROR(
        Annotate(FromProto(from.restore().version(), &restore.version), "restore.version"));
  }
  if (from.has_latest_checkpoint()) {
    STARLING_RETURN_IF_ERROR(
        Annotate(FromProto(from.latest_checkpoint(), &to->latest_checkpoint.emplace()),
                 "latest_checkpoint"));
  }
  if (from.has_latest_evaluation()) {
    STARLING_RETURN_IF_ERROR(
        Annotate(FromProto(from.latest_evaluation(), &to->latest_evaluation.emplace()),
                 "latest_evaluation"));
  }
  return absl::OkStatus();
}
absl::Status Read(const pb::Form& from, Form* to) {
  to->term = Term(from.term());
  STARLING_RETURN_IF_ERROR(Read(from.view(), &to->view));
  const size_t members = to->view->members.size();
  STARLING_RETURN_IF_ERROR(CheckText(from.secret(), kMaxName, "secret"));
  to->secret = from.secret();
  STARLING_RETURN_IF_ERROR(Require(from.purpose() <= static_cast<uint32_t>(Purpose::kStop),
                                   "purpose", absl::StrCat(from.purpose(), " is unknown")));
  to->purpose = static_cast<Purpose>(from.purpose());
  STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.position(), &to->position), "position"));
  STARLING_RETURN_IF_ERROR(Require(from.updates() >= 0, "updates", "is negative"));
  to->updates = from.updates();
  if (from.has_result()) {
    STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.result(), &to->result.emplace()), "result"));
  }
  STARLING_RETURN_IF_ERROR(ReadSets(from.claims(), members, "claims", &to->claims));
  STARLING_RETURN_IF_ERROR(ReadSets(from.assignment(), members, "assignment", &to->assignment));
  STARLING_RETURN_IF_ERROR(Read(from.merge(), "merge", &to->merge));
  STARLING_RETURN_IF_ERROR(ReadTransfers(from, static_cast<int>(members), &to->transfers));
  to->from_seed = from.from_seed();
  return ReadVersions(from, to);
}
absl::Status Read(const pb::Activate& from, Activate* to) {
  *to = {Term(from.term()), Generation(from.generation())};
  return absl::OkStatus();
}
absl::Status Read(const pb::Settled& from, Settled* to) {
  return Annotate(FromProto(from.version(), &to->version), "version");
}
absl::Status Read(const pb::RequestCheckpoint&, RequestCheckpoint*) { return absl::OkStatus(); }
absl::Status Read(const pb::Release& from, Release* to) {
  STARLING_RETURN_IF_ERROR(ReadExitCode(from.exit_code(), &to->exit_code));
  return ReadReason(from.reason(), &to->reason);
}
absl::Status Read(const pb::HandOver& from, HandOver* to) {
  *to = {Generation(from.generation()), Incarnation(from.receiver())};
  return absl::OkStatus();
}

// A message of type Domain read from its protobuf twin.
template <typename Domain, typename Result, typename Proto>
absl::StatusOr<Result> ReadAs(const Proto& from, std::string_view name) {
  Domain message;
  STARLING_RETURN_IF_ERROR(Annotate(Read(from, &message), name));
  return Result(std::move(message));
}

}  // namespace

void ToProto(const WorkerMessage& from, pb::WorkerMessage* to) {
  std::visit([to](const auto& message) { Fill(message, to); }, from);
}

void ToProto(const CoordinatorMessage& from, pb::CoordinatorMessage* to) {
  std::visit([to](const auto& message) { Fill(message, to); }, from);
}

absl::StatusOr<WorkerMessage> FromProto(const pb::WorkerMessage& from) {
  using M = WorkerMessage;
  switch (from.message_case()) {
    case pb::WorkerMessage::kRegister:
      return ReadAs<Register, M>(from.register_(), "register");
    case pb::WorkerMessage::kHeartbeat:
      return ReadAs<Heartbeat, M>(from.heartbeat(), "heartbeat");
    case pb::WorkerMessage::kSurveyAnswer:
      return ReadAs<SurveyAnswer, M>(from.survey_answer(), "survey_answer");
    case pb::WorkerMessage::kReport:
      return ReadAs<Report, M>(from.report(), "report");
    case pb::WorkerMessage::kCommFailed:
      return ReadAs<CommFailed, M>(from.comm_failed(), "comm_failed");
    case pb::WorkerMessage::kReady:
      return ReadAs<Ready, M>(from.ready(), "ready");
    case pb::WorkerMessage::kConnectFailed:
      return ReadAs<ConnectFailed, M>(from.connect_failed(), "connect_failed");
    case pb::WorkerMessage::kFormProgress:
      return ReadAs<FormProgress, M>(from.form_progress(), "form_progress");
    case pb::WorkerMessage::kRestoreFailed:
      return ReadAs<RestoreFailed, M>(from.restore_failed(), "restore_failed");
    case pb::WorkerMessage::kDrainNotice:
      return ReadAs<DrainNotice, M>(from.drain_notice(), "drain_notice");
    case pb::WorkerMessage::kLeaving:
      return ReadAs<Leaving, M>(from.leaving(), "leaving");
    case pb::WorkerMessage::kPartWritten:
      return ReadAs<PartWritten, M>(from.part_written(), "part_written");
    case pb::WorkerMessage::kEvaluated:
      return ReadAs<Evaluated, M>(from.evaluated(), "evaluated");
    case pb::WorkerMessage::kHandedOver:
      return ReadAs<HandedOver, M>(from.handed_over(), "handed_over");
    case pb::WorkerMessage::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("message: is empty, or of a kind unknown here");
}

absl::StatusOr<CoordinatorMessage> FromProto(const pb::CoordinatorMessage& from) {
  using M = CoordinatorMessage;
  switch (from.message_case()) {
    case pb::CoordinatorMessage::kRegistered:
      return ReadAs<Registered, M>(from.registered(), "registered");
    case pb::CoordinatorMessage::kRefused:
      return ReadAs<Refused, M>(from.refused(), "refused");
    case pb::CoordinatorMessage::kRevoke:
      return ReadAs<Revoke, M>(from.revoke(), "revoke");
    case pb::CoordinatorMessage::kPrepare:
      return ReadAs<Prepare, M>(from.prepare(), "prepare");
    case pb::CoordinatorMessage::kForm:
      return ReadAs<Form, M>(from.form(), "form");
    case pb::CoordinatorMessage::kActivate:
      return ReadAs<Activate, M>(from.activate(), "activate");
    case pb::CoordinatorMessage::kSettled:
      return ReadAs<Settled, M>(from.settled(), "settled");
    case pb::CoordinatorMessage::kRequestCheckpoint:
      return ReadAs<RequestCheckpoint, M>(from.request_checkpoint(), "request_checkpoint");
    case pb::CoordinatorMessage::kRelease:
      return ReadAs<Release, M>(from.release(), "release");
    case pb::CoordinatorMessage::kHandOver:
      return ReadAs<HandOver, M>(from.hand_over(), "hand_over");
    case pb::CoordinatorMessage::MESSAGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("message: is empty, or of a kind unknown here");
}

// ---- status ------------------------------------------------------------------------------------

void ToProto(const StatusReport& from, pb::StatusReply* to) {
  const membership::Status& status = from.status;
  to->set_run(from.run);
  to->set_term(status.term.value());
  to->set_generation(status.generation.value());
  to->set_phase(status.phase);
  to->set_phase_reason(CutText(status.phase_reason));
  ToProto(status.position, to->mutable_position());
  ToProto(status.settled, to->mutable_settled());
  to->set_target_workers(status.target_workers);
  for (const WorkerStatus& worker : status.workers) {
    pb::WorkerStatus* entry = to->add_workers();
    ToProto(worker.member, entry->mutable_member());
    if (worker.rank) entry->set_rank(worker.rank->value());
    entry->set_state(worker.state);
    entry->set_micro_batches_per_second(worker.micro_batches_per_second);
    entry->set_last_seen_ms(absl::ToInt64Milliseconds(worker.last_seen));
  }
  if (status.latest_checkpoint) {
    ToProto(*status.latest_checkpoint, to->mutable_latest_checkpoint());
  }
  if (status.last_result) ToProto(*status.last_result, to->mutable_last_result());
  to->set_goodput(from.goodput);
  to->set_total_steps(from.total_steps);
  to->set_micro_batches(from.micro_batches);
  to->set_http_address(from.http_address);
}

absl::StatusOr<StatusReport> FromProto(const pb::StatusReply& from) {
  StatusReport to;
  membership::Status& status = to.status;
  to.run = from.run();
  status.term = Term(from.term());
  status.generation = Generation(from.generation());
  status.phase = from.phase();
  status.phase_reason = from.phase_reason();
  STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.position(), &status.position), "position"));
  STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.settled(), &status.settled), "settled"));
  status.target_workers = from.target_workers();
  for (const pb::WorkerStatus& entry : from.workers()) {
    WorkerStatus worker;
    STARLING_RETURN_IF_ERROR(Annotate(FromProto(entry.member(), &worker.member), "workers"));
    if (entry.has_rank()) worker.rank = Rank(entry.rank());
    worker.state = entry.state();
    worker.micro_batches_per_second = entry.micro_batches_per_second();
    worker.last_seen = absl::Milliseconds(entry.last_seen_ms());
    status.workers.push_back(std::move(worker));
  }
  if (from.has_latest_checkpoint()) {
    STARLING_RETURN_IF_ERROR(
        Annotate(FromProto(from.latest_checkpoint(), &status.latest_checkpoint.emplace()),
                 "latest_checkpoint"));
  }
  if (from.has_last_result()) {
    STARLING_RETURN_IF_ERROR(
        Annotate(FromProto(from.last_result(), &status.last_result.emplace()), "last_result"));
  }
  to.goodput = from.goodput();
  to.total_steps = from.total_steps();
  to.micro_batches = from.micro_batches();
  to.http_address = from.http_address();
  return to;
}

}  // namespace starling::rpc
