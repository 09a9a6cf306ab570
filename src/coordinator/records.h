// The lines of ledger.jsonl, metrics.jsonl and events.jsonl, each ending in a newline. Pure;
// thread-safe. Their keys are documented in docs/formats.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "starling/membership/coordinator_core.h"

namespace starling::coordinator {

// "2031-01-02T03:04:05.678901Z".
std::string WallTime(absl::Time time);

std::string LedgerText(const membership::LedgerLine& line, int64_t global_batch);

// What a step's metrics say beside the vote itself.
struct StepRates {
  double tokens_per_second = 0;
  double samples_per_second = 0;
  double goodput = 0;
  int members = 0;
};
// Mean loss per micro-batch of both objectives.
double MeanLoss(const membership::VoteResult& result);
std::string MetricsText(const membership::VoteResult& result, const StepRates& rates,
                        absl::Time wall);
std::string EvaluationText(const Version& version, const membership::EvaluationPart& sum,
                           absl::Time wall);
std::string EventText(const membership::Event& event, Term term, absl::Time wall, int64_t mono_ns);

// The (timeline, step) that a ledger or metrics line is about; nothing when it is no such line.
std::optional<Version> VersionOfLine(std::string_view line);
// Whether a metrics line is an evaluation, not a step.
bool IsEvaluation(std::string_view line);

}  // namespace starling::coordinator
