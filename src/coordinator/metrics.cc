#include "coordinator/metrics.h"

#include <prometheus/text_serializer.h>

#include "absl/time/clock.h"
#include "coordinator/records.h"

namespace starling::coordinator {
namespace {

constexpr size_t kLosses = 600;

prometheus::Histogram::BucketBoundaries Seconds() {
  return {0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 300};
}

}  // namespace

prometheus::Counter& Metrics::Counter(const std::string& name, const std::string& help,
                                      const prometheus::Labels& labels) {
  return prometheus::BuildCounter()
      .Name("starling_" + name)
      .Help(help)
      .Register(registry_)
      .Add(labels);
}

prometheus::Gauge& Metrics::Gauge(const std::string& name, const std::string& help,
                                  const prometheus::Labels& labels) {
  return prometheus::BuildGauge()
      .Name("starling_" + name)
      .Help(help)
      .Register(registry_)
      .Add(labels);
}

Metrics::Metrics()
    : members_(Gauge("members", "Members of the newest view")),
      target_(Gauge("target_members", "Wanted number of workers")),
      generation_(Gauge("generation", "Number of the newest view")),
      term_(Gauge("term", "Number of this coordinator's life")),
      running_(Gauge("running", "1 while a view is active, else 0")),
      step_(Gauge("train_step", "Decided steps")),
      loss_(Gauge("train_loss", "Mean loss of the newest step")),
      rate_(Gauge("train_learning_rate", "Learning rate of the newest step")),
      norm_(Gauge("train_grad_norm", "Gradient norm of the newest step, before clipping")),
      goodput_(Gauge("goodput_ratio", "Share of the time in which a view was active")),
      checkpoint_step_(Gauge("checkpoint_last_step", "Step of the newest complete checkpoint")),
      checkpoint_time_(Gauge("checkpoint_last_success_timestamp_seconds",
                             "When the newest checkpoint was completed")),
      tokens_(Counter("train_tokens_total", "Tokens trained on, without padding")),
      samples_(Counter("train_samples_total", "Samples trained on")),
      skipped_(Counter("train_skipped_steps_total", "Steps whose gradient was not finite")),
      checkpoint_failures_(Counter("checkpoint_failures_total", "Checkpoints that failed")),
      step_seconds_(prometheus::BuildHistogram()
                        .Name("starling_train_step_seconds")
                        .Help("Time from one decided step to the next")
                        .Register(registry_)
                        .Add({}, Seconds())) {
  for (const char* state : {"active", "joining", "draining", "lost", "spare"}) {
    workers_[state] = &Gauge("workers", "Workers by state", {{"state", state}});
  }
  for (const char* cause : {"joined", "lost", "drained", "resize", "restore", "diverged"}) {
    changes_[cause] =
        &Counter("membership_changes_total", "Changes of the members by cause", {{"cause", cause}});
  }
  auto& phases = prometheus::BuildHistogram()
                     .Name("starling_reconfiguration_seconds")
                     .Help("Time of a view change by phase")
                     .Register(registry_);
  for (const char* phase : {"detect", "survey", "form", "transfer", "recompute"}) {
    phases_[phase] = &phases.Add({{"phase", phase}}, Seconds());
  }
}

void Metrics::CountStep(const membership::VoteResult& result, double seconds, int64_t samples) {
  step_.Set(static_cast<double>(result.After().step.value()));
  loss_.Set(MeanLoss(result));
  rate_.Set(result.learning_rate);
  norm_.Set(result.grad_norm);
  tokens_.Increment(static_cast<double>(result.tokens));
  samples_.Increment(static_cast<double>(samples));
  if (result.outcome == membership::Outcome::kSkip) skipped_.Increment();
  if (seconds > 0) step_seconds_.Observe(seconds);
  absl::MutexLock lock(&mutex_);
  losses_.push_back(MeanLoss(result));
  if (losses_.size() > kLosses) losses_.erase(losses_.begin());
}

void Metrics::CountEvent(const membership::Event& event) {
  if (const auto it = changes_.find(event.event); it != changes_.end()) it->second->Increment();
  for (const auto& [phase, milliseconds] : event.phase_ms) {
    const auto it = phases_.find(phase);
    if (it != phases_.end()) it->second->Observe(milliseconds / 1000);
  }
  if (event.event == "checkpoint_failed") checkpoint_failures_.Increment();
  if (event.event == "checkpoint")
    checkpoint_time_.Set(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
}

std::string Metrics::Text(const rpc::StatusReport& report) {
  const membership::Status& status = report.status;
  std::map<std::string, int> states;
  int members = 0;
  for (const membership::WorkerStatus& worker : status.workers) {
    ++states[worker.state];
    members += worker.rank ? 1 : 0;
  }
  for (const auto& [state, gauge] : workers_) gauge->Set(states[state]);
  members_.Set(members);
  target_.Set(status.target_workers);
  generation_.Set(static_cast<double>(status.generation.value()));
  term_.Set(static_cast<double>(status.term.value()));
  running_.Set(status.phase == "running" ? 1 : 0);
  goodput_.Set(report.goodput);
  if (status.latest_checkpoint) {
    checkpoint_step_.Set(static_cast<double>(status.latest_checkpoint->step.value()));
  }
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

std::vector<double> Metrics::losses() const {
  absl::MutexLock lock(&mutex_);
  return losses_;
}

}  // namespace starling::coordinator
