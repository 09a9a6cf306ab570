#include <utility>

#include "rpc/convert.h"
#include "starling/base/status.h"

namespace starling::rpc {

using membership::WorkerStatus;

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
