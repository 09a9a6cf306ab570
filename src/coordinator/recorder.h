// Writes what the core says into ledger, metrics and events, with the rates and the goodput that
// need a clock, and tells whoever listens. Used by the driver's thread.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "coordinator/goodput.h"
#include "coordinator/metrics.h"
#include "coordinator/run_folder.h"
#include "starling/coordinator/driver.h"

namespace starling::coordinator {

class Recorder {
 public:
  // All outlive the recorder.
  Recorder(const DriverOptions* options, RunFolder* folder, Metrics* metrics)
      : options_(options), folder_(folder), metrics_(metrics) {}

  void set_term(Term term) { term_ = term; }
  Goodput& goodput() { return goodput_; }

  // Fails as the file system does: a ledger that cannot be written ends the coordinator.
  absl::Status Ledger(const membership::LedgerLine& line);
  // These go on without their file, with a warning: training does not depend on them.
  void Step(const membership::WriteMetrics& step, absl::Time now);
  void Evaluation(const membership::WriteEvaluation& evaluation);
  void Happened(const membership::Event& event);

 private:
  void Tolerate(const absl::Status& status);

  const DriverOptions* const options_;
  RunFolder* const folder_;
  Metrics* const metrics_;
  Term term_;
  Goodput goodput_;
  std::optional<absl::Time> last_step_;  // when the newest step was decided
  bool complained_ = false;              // a warning about each failed line would fill the log
};

}  // namespace starling::coordinator
