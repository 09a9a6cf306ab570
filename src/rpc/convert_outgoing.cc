// Messages to protobuf, one function each.
#include <variant>

#include "rpc/convert.h"

namespace starling::rpc {
namespace {

using namespace membership;  // NOLINT: both sides of each function bear the same names

template <typename List>
void AddIncarnations(const std::vector<Incarnation>& from, List* to) {
  for (Incarnation incarnation : from) to->Add(incarnation.value());
}

void AddTransfers(const std::vector<Transfer>& from,
                  google::protobuf::RepeatedPtrField<pb::Transfer>* to) {
  for (const Transfer& transfer : from) {
    pb::Transfer* entry = to->Add();
    entry->set_from(transfer.from.value());
    entry->set_to(transfer.to.value());
  }
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
void Fill(const Prepared& from, pb::WorkerMessage* message) {
  pb::Prepared* to = message->mutable_prepared();
  to->set_generation(from.generation.value());
  to->set_round(from.round);
  to->set_ok(from.ok);
  to->set_reason(CutText(from.reason));
  AddIncarnations(from.unreachable, to->mutable_unreachable());
  if (from.copied) ToProto(*from.copied, to->mutable_copied());
}
void Fill(const HandedOver& from, pb::WorkerMessage* message) {
  pb::HandedOver* to = message->mutable_handed_over();
  to->set_channel(from.channel.value());
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
  AddTransfers(from.transfers, to->mutable_transfers());
  to->set_round(from.round);
  to->set_hold(from.hold);
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
  for (const Merge& merge : from.merge) {
    pb::Merge* entry = to->add_merge();
    entry->set_holder(merge.holder.value());
    entry->set_owner(merge.owner.value());
  }
  AddTransfers(from.transfers, to->mutable_transfers());
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
  pb::HandOver* to = message->mutable_hand_over();
  to->set_term(from.term.value());
  to->set_generation(from.generation.value());
  ToProto(*from.channel, to->mutable_channel());
  to->set_secret(from.secret);
}

}  // namespace

void ToProto(const WorkerMessage& from, pb::WorkerMessage* to) {
  std::visit([to](const auto& message) { Fill(message, to); }, from);
}

void ToProto(const CoordinatorMessage& from, pb::CoordinatorMessage* to) {
  std::visit([to](const auto& message) { Fill(message, to); }, from);
}

}  // namespace starling::rpc
