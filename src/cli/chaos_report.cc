#include "cli/chaos_report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "starling/base/fs.h"

namespace starling::cli {
namespace {

using Json = nlohmann::json;

absl::Duration Quantile(std::vector<absl::Duration> values, double q) {
  if (values.empty()) return absl::ZeroDuration();
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(std::lround(q * static_cast<double>(values.size() - 1)))];
}

// Every micro-batch once?
bool CountsEachOnce(const Json& line, int64_t micro_batches) {
  std::vector<int> times(static_cast<size_t>(micro_batches), 0);
  const auto ranks = line.find("micro_batches");
  if (ranks == line.end() || !ranks->is_array()) return false;
  for (const Json& rank : *ranks) {
    if (!rank.is_array() || rank.size() != 2) return false;
    for (const Json& interval : rank[1]) {
      if (interval.size() != 2) return false;
      const int64_t begin = interval[0], end = interval[1];
      if (begin < 0 || end > micro_batches) return false;
      for (int64_t i = begin; i < end; ++i) ++times[static_cast<size_t>(i)];
    }
  }
  return std::all_of(times.begin(), times.end(), [](int n) { return n == 1; });
}

}  // namespace

std::vector<Json> LineFollower::Take() {
  std::vector<Json> lines;
  std::ifstream file(path_, std::ios::binary);
  file.seekg(offset_);
  for (std::string line; std::getline(file, line);) {
    if (file.eof()) break;  // still being written
    offset_ += static_cast<std::streamoff>(line.size()) + 1;
    Json json = Json::parse(line, nullptr, false);
    lines.push_back(json.is_object() ? std::move(json) : Json());
  }
  return lines;
}

ChaosReport::ChaosReport(const std::string& run_folder, int64_t micro_batches)
    : ledger_(JoinPath(run_folder, "ledger.jsonl")),
      events_(JoinPath(run_folder, "events.jsonl")),
      micro_batches_(micro_batches) {}

void ChaosReport::Check(const Json& line) {
  if (line.is_null() || !line.contains("timeline") || !line.contains("step")) {
    violations_.push_back("the ledger has a line that is none");
    return;
  }
  const std::pair<uint64_t, int64_t> version = {line["timeline"], line["step"]};
  const std::string name = absl::StrCat("timeline ", version.first, " step ", version.second);
  if (!seen_.insert(version).second) violations_.push_back(name + " is in the ledger twice");
  if (before_ && before_->first == version.first && version.second != before_->second + 1) {
    violations_.push_back(absl::StrCat(name, " follows step ", before_->second));
  }
  if (!CountsEachOnce(line, micro_batches_)) {
    violations_.push_back(name + " does not hold every micro-batch once");
  }
  before_ = version;
  last_step_ = version.second;
}

absl::Duration ChaosReport::UsualStep() const { return Quantile(intervals_, 0.5); }

void ChaosReport::Observe(absl::Time now) {
  for (const Json& line : ledger_.Take()) {
    Check(line);
    if (!begun_) continue;
    ++steps_;
    for (const auto& [kind, acted] : pending_) {
      healed_[kind].push_back(std::max(absl::ZeroDuration(), now - acted - UsualStep()));
    }
    if (pending_.empty() && last_line_) intervals_.push_back(now - *last_line_);
    pending_.clear();
    last_line_ = now;
  }
  for (const Json& event : events_.Take()) {
    if (!begun_ || event.is_null()) continue;
    if (event.value("event", "") == "view") lost_ += event.value("micro_batches_lost", int64_t{0});
    if (event.value("event", "") == "diverged") {
      violations_.push_back("members diverged: " + event.value("reason", ""));
    }
  }
  begun_ = true;
}

void ChaosReport::Sample(int workers, double speed, absl::Time now) {
  if (sampled_) {
    const double seconds = absl::ToDoubleSeconds(now - *sampled_);
    worker_seconds_ += workers * seconds;
    if (speed > 0) {
      speed_seconds_ += speed * seconds;
      speed_time_ += seconds;
    }
  }
  sampled_ = now;
}

std::string ChaosReport::Text() const {
  const double committed = static_cast<double>(steps_ * micro_batches_);
  const double computed = committed + static_cast<double>(lost_);
  std::string text = absl::StrFormat(
      "steps committed            %d\nmicro-batches recomputed   %d (%.2f %% of all computed)\n",
      steps_, lost_, computed > 0 ? 100 * static_cast<double>(lost_) / computed : 0.0);
  if (speed_seconds_ > 0 && worker_seconds_ > 0) {
    const double useful = committed * speed_time_ / speed_seconds_;
    absl::StrAppendFormat(&text, "goodput                    %.1f %% of %.0f worker-seconds\n",
                          100 * std::min(1.0, useful / worker_seconds_), worker_seconds_);
  }
  absl::StrAppendFormat(&text, "usual step                 %.0f ms\n\n",
                        absl::ToDoubleMilliseconds(UsualStep()));
  absl::StrAppendFormat(&text, "%-12s %5s %14s %14s\n", "KIND", "ACTS", "RECOVERY P50",
                        "RECOVERY P99");
  for (const auto& [kind, times] : healed_) {
    absl::StrAppendFormat(&text, "%-12s %5d %11.0f ms %11.0f ms\n", kind, times.size(),
                          absl::ToDoubleMilliseconds(Quantile(times, 0.5)),
                          absl::ToDoubleMilliseconds(Quantile(times, 0.99)));
  }
  for (const auto& [kind, acted] : pending_) {
    absl::StrAppend(&text, kind, ": no step was committed after the last one\n");
  }
  absl::StrAppend(&text, "\nviolations                 ", violations_.size(), "\n");
  for (const std::string& violation : violations_) absl::StrAppend(&text, "  ", violation, "\n");
  return text;
}

}  // namespace starling::cli
