#include "coordinator/records.h"

#include <nlohmann/json.hpp>

#include "starling/base/ids.h"

namespace starling::coordinator {
namespace {

using Json = nlohmann::ordered_json;

// Never throws: bytes that are no UTF-8 are replaced, numbers that JSON lacks become null.
std::string Line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

double Ratio(double part, int64_t whole) {
  return whole == 0 ? 0.0 : part / static_cast<double>(whole);
}

}  // namespace

std::string WallTime(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone());
}

std::string LedgerText(const membership::LedgerLine& line, int64_t global_batch) {
  const int64_t step = line.version.step.value();
  Json ranks = Json::array();
  for (size_t r = 0; r < line.micro_batches.size(); ++r) {
    if (line.micro_batches[r].empty()) continue;
    Json intervals = Json::array();
    for (const plan::Interval& interval : line.micro_batches[r].intervals()) {
      intervals.push_back({interval.begin, interval.end});
    }
    ranks.push_back({r, std::move(intervals)});
  }
  Json json;
  json["timeline"] = line.version.timeline.value();
  json["step"] = step;
  json["generation"] = line.generation.value();
  json["members"] = line.micro_batches.size();
  json["micro_batches"] = std::move(ranks);
  json["samples"] = {(step - 1) * global_batch, step * global_batch - 1};
  json["skipped"] = line.skipped;
  if (line.digest) {
    std::string hex;
    for (uint64_t lane : *line.digest) hex += ToHex(lane);
    json["digest"] = hex;
  }
  return Line(json);
}

double MeanLoss(const membership::VoteResult& result) {
  return Ratio(result.mlm_loss + result.sop_loss, result.count);
}

std::string MetricsText(const membership::VoteResult& result, const StepRates& rates,
                        absl::Time wall) {
  Json json;
  json["timeline"] = result.at.timeline.value();
  json["step"] = result.After().step.value();
  json["time"] = WallTime(wall);
  json["loss"] = MeanLoss(result);
  json["mlm_loss"] = Ratio(result.mlm_loss, result.count);
  json["sop_loss"] = Ratio(result.sop_loss, result.count);
  json["lr"] = result.learning_rate;
  json["grad_norm"] = result.grad_norm;
  json["tokens_per_second"] = rates.tokens_per_second;
  json["samples_per_second"] = rates.samples_per_second;
  json["workers"] = rates.members;
  json["generation"] = result.generation.value();
  json["goodput"] = rates.goodput;
  json["skipped"] = result.outcome == membership::Outcome::kSkip;
  return Line(json);
}

std::string EvaluationText(const Version& version, const membership::EvaluationPart& sum,
                           absl::Time wall) {
  Json json;
  json["timeline"] = version.timeline.value();
  json["step"] = version.step.value();
  json["time"] = WallTime(wall);
  json["eval_loss"] = Ratio(sum.mlm_loss, sum.masked);
  json["eval_accuracy"] = Ratio(static_cast<double>(sum.masked_correct), sum.masked);
  json["eval_masked"] = sum.masked;
  json["eval_sop_loss"] = Ratio(sum.sop_loss, sum.pairs);
  json["eval_sop_accuracy"] = Ratio(static_cast<double>(sum.pairs_correct), sum.pairs);
  json["eval_pairs"] = sum.pairs;
  return Line(json);
}

std::string EventText(const membership::Event& event, Term term, absl::Time wall, int64_t mono_ns) {
  Json json;
  json["time"] = WallTime(wall);
  json["mono_ns"] = mono_ns;
  json["term"] = term.value();
  json["generation"] = event.generation.value();
  json["event"] = event.event;
  json["worker"] = event.worker;
  json["reason"] = event.reason;
  json["members"] = event.members;
  json["phase_ms"] = Json::object();
  for (const auto& [phase, milliseconds] : event.phase_ms) json["phase_ms"][phase] = milliseconds;
  if (event.event == "view") json["micro_batches_lost"] = event.micro_batches_lost;
  return Line(json);
}

std::optional<Version> VersionOfLine(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto timeline = json.find("timeline");
  const auto step = json.find("step");
  if (timeline == json.end() || step == json.end() || !timeline->is_number_unsigned() ||
      !step->is_number_unsigned()) {
    return std::nullopt;
  }
  return Version{Timeline(timeline->get<uint64_t>()), Step(step->get<int64_t>())};
}

bool IsEvaluation(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  return json.is_object() && json.contains("eval_loss");
}

}  // namespace starling::coordinator
