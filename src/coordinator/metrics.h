// The run's Prometheus metrics and the points of the loss curve. Counters are fed by the driver's
// thread; gauges are set from a status when somebody scrapes. Thread-safe. All series exist from
// the start, at 0.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "starling/membership/coordinator_core.h"
#include "starling/rpc/requests.h"

namespace starling::coordinator {

class Metrics {
 public:
  Metrics();

  // A decided step that took `seconds` since the one before (0 = unknown).
  void CountStep(const membership::VoteResult& result, double seconds, int64_t samples);
  void CountEvent(const membership::Event& event);

  // The exposition text (format 0.0.4) with the gauges as `report` says.
  std::string Text(const rpc::StatusReport& report);

  // Mean losses of the newest steps, oldest first.
  std::vector<double> losses() const;

 private:
  prometheus::Counter& Counter(const std::string& name, const std::string& help,
                               const prometheus::Labels& labels = {});
  prometheus::Gauge& Gauge(const std::string& name, const std::string& help,
                           const prometheus::Labels& labels = {});

  prometheus::Registry registry_;
  std::map<std::string, prometheus::Gauge*> workers_;     // by state
  std::map<std::string, prometheus::Counter*> changes_;   // by event
  std::map<std::string, prometheus::Histogram*> phases_;  // by phase
  prometheus::Gauge &members_, &target_, &generation_, &term_, &running_, &step_, &loss_, &rate_,
      &norm_, &goodput_, &checkpoint_step_, &checkpoint_time_;
  prometheus::Counter &tokens_, &samples_, &skipped_, &checkpoint_failures_;
  prometheus::Histogram& step_seconds_;

  mutable absl::Mutex mutex_;
  std::vector<double> losses_ ABSL_GUARDED_BY(mutex_);  // at most kLosses
};

}  // namespace starling::coordinator
