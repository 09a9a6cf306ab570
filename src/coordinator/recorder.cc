#include "coordinator/recorder.h"

#include <time.h>

#include "absl/time/clock.h"
#include "coordinator/records.h"
#include "starling/base/log.h"

namespace starling::coordinator {
namespace {

int64_t MonotonicNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::ToInt64Nanoseconds(absl::DurationFromTimespec(now));
}

}  // namespace

absl::Status Recorder::Ledger(const membership::LedgerLine& line) {
  return folder_->AppendLedger(LedgerText(line, options_->global_batch));
}

void Recorder::Step(const membership::WriteMetrics& step, absl::Time now) {
  const membership::VoteResult& result = step.result;
  const double seconds = last_step_ ? absl::ToDoubleSeconds(now - *last_step_) : 0;
  last_step_ = now;
  StepRates rates;
  rates.members = step.members;
  rates.goodput = goodput_.ratio();
  if (seconds > 0) {
    rates.tokens_per_second = static_cast<double>(result.tokens) / seconds;
    rates.samples_per_second = static_cast<double>(options_->global_batch) / seconds;
  }
  // After a restart members say their last vote again: it was shown already.
  const Version version = result.After().version();
  if (folder_->metrics_last() && version <= *folder_->metrics_last()) return;
  Tolerate(folder_->AppendMetrics(MetricsText(result, rates, absl::Now())));
  metrics_->CountStep(result, seconds, options_->global_batch);
  if (options_->on_step) {
    options_->on_step({version.step.value(), MeanLoss(result), rates.tokens_per_second,
                       step.members, result.generation.value(), rates.goodput});
  }
}

void Recorder::Evaluation(const membership::WriteEvaluation& evaluation) {
  Tolerate(folder_->AppendMetrics(EvaluationText(evaluation.version, evaluation.sum, absl::Now())));
  if (options_->on_evaluation) options_->on_evaluation(evaluation);
}

void Recorder::Happened(const membership::Event& event) {
  if (const auto detect = event.phase_ms.find("detect"); detect != event.phase_ms.end()) {
    goodput_.Stalled(absl::Milliseconds(detect->second));
  }
  STARLING_LOG(Info) << "event=" << event.event << " gen=" << event.generation.value()
                     << " members=" << event.members << " worker=" << event.worker << " "
                     << event.reason;
  Tolerate(folder_->AppendEvents(EventText(event, term_, absl::Now(), MonotonicNanoseconds())));
  metrics_->CountEvent(event);
  if (options_->on_event) options_->on_event(event);
}

void Recorder::Tolerate(const absl::Status& status) {
  if (status.ok() || complained_) return;
  complained_ = true;
  STARLING_LOG(Error) << "metrics or events are incomplete from here on: "
                      << std::string(status.message());
}

}  // namespace starling::coordinator
