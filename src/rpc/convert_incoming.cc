// Messages from protobuf, one function each: peers are not trusted.
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/convert.h"
#include "starling/base/status.h"

namespace starling::rpc {
namespace {

using namespace membership;  // NOLINT: both sides of each function bear the same names

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
absl::Status Read(const pb::Prepared& from, Prepared* to) {
  to->generation = Generation(from.generation());
  STARLING_RETURN_IF_ERROR(Require(from.round() >= 0, "round", "is negative"));
  to->round = from.round();
  to->ok = from.ok();
  STARLING_RETURN_IF_ERROR(Read(from.unreachable(), "unreachable", &to->unreachable));
  if (from.has_copied()) {
    STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.copied(), &to->copied.emplace()), "copied"));
  }
  return ReadReason(from.reason(), &to->reason);
}
absl::Status Read(const pb::HandedOver& from, HandedOver* to) {
  to->channel = Generation(from.channel());
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
// A receiver has several donors, but few.
constexpr int kMaxDonors = 16;

absl::Status ReadTransfers(const google::protobuf::RepeatedPtrField<pb::Transfer>& from,
                           int members, std::vector<Transfer>* to) {
  STARLING_RETURN_IF_ERROR(
      Require(from.size() <= kMaxDonors * members, "transfers", "too many for the members"));
  for (const pb::Transfer& transfer : from) {
    if (transfer.from() < 0 || transfer.from() >= members || transfer.to() < 0 ||
        transfer.to() >= members || transfer.from() == transfer.to()) {
      return absl::InvalidArgumentError(
          absl::StrCat("transfers: rank ", transfer.from(), " to rank ", transfer.to()));
    }
    to->push_back({Rank(transfer.from()), Rank(transfer.to())});
  }
  return absl::OkStatus();
}
absl::Status ReadMerges(const pb::Form& from, std::vector<Merge>* to) {
  STARLING_RETURN_IF_ERROR(Require(from.merge_size() <= kMaxMembers, "merge", "too many entries"));
  for (const pb::Merge& merge : from.merge()) {
    STARLING_RETURN_IF_ERROR(
        Require(merge.holder() >= 0 && merge.holder() < from.view().members_size(), "merge.holder",
                absl::StrCat(merge.holder(), " is no rank of the view")));
    to->push_back({Rank(merge.holder()), Incarnation(merge.owner())});
  }
  return absl::OkStatus();
}
absl::Status Read(const pb::Prepare& from, Prepare* to) {
  to->term = Term(from.term());
  to->secret = from.secret();
  STARLING_RETURN_IF_ERROR(CheckText(from.secret(), kMaxName, "secret"));
  STARLING_RETURN_IF_ERROR(Read(from.view(), &to->view));
  STARLING_RETURN_IF_ERROR(Require(from.round() >= 0, "round", "is negative"));
  to->round = from.round();
  to->hold = from.hold();
  return ReadTransfers(from.transfers(), static_cast<int>(to->view->members.size()),
                       &to->transfers);
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
  STARLING_RETURN_IF_ERROR(ReadMerges(from, &to->merge));
  STARLING_RETURN_IF_ERROR(
      ReadTransfers(from.transfers(), static_cast<int>(members), &to->transfers));
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
  to->term = Term(from.term());
  to->generation = Generation(from.generation());
  STARLING_RETURN_IF_ERROR(CheckText(from.secret(), kMaxName, "secret"));
  to->secret = from.secret();
  STARLING_RETURN_IF_ERROR(Read(from.channel(), &to->channel));
  return Require(to->channel->members.size() == 2, "channel", "is not of two members");
}

// A message of type Domain read from its protobuf twin.
template <typename Domain, typename Result, typename Proto>
absl::StatusOr<Result> ReadAs(const Proto& from, std::string_view name) {
  absl::StatusOr<Result> message(absl::in_place, std::in_place_type<Domain>);
  STARLING_RETURN_IF_ERROR(Annotate(Read(from, &std::get<Domain>(*message)), name));
  return message;
}

}  // namespace

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
    case pb::WorkerMessage::kPrepared:
      return ReadAs<Prepared, M>(from.prepared(), "prepared");
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

}  // namespace starling::rpc
