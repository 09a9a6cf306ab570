// What `starling chaos` measures: reads a run's ledger and events as they grow, and says at the end
// what the disturbances cost and whether a step was damaged. One thread.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace starling::cli {

// The lines of a file that grows, each once.
class LineFollower {
 public:
  explicit LineFollower(std::string path) : path_(std::move(path)) {}
  std::vector<nlohmann::json> Take();  // whole lines that are new; what is no JSON is null

 private:
  const std::string path_;
  std::streamoff offset_ = 0;
};

class ChaosReport {
 public:
  ChaosReport(const std::string& run_folder, int64_t micro_batches);

  // Reads what is new. Lines of before the first call are checked, but not counted.
  void Observe(absl::Time now);
  // Workers and their mean speed (micro-batches per second) for the time since the last call.
  void Sample(int workers, double speed, absl::Time now);
  void Acted(const std::string& kind, absl::Time now) { pending_.emplace_back(kind, now); }

  int64_t last_step() const { return last_step_; }
  const std::vector<std::string>& violations() const { return violations_; }
  std::string Text() const;  // the table

 private:
  void Check(const nlohmann::json& line);
  absl::Duration UsualStep() const;

  LineFollower ledger_, events_;
  const int64_t micro_batches_;
  bool begun_ = false;
  int64_t last_step_ = 0, steps_ = 0, lost_ = 0;
  std::set<std::pair<uint64_t, int64_t>> seen_;  // (timeline, step)
  std::optional<std::pair<uint64_t, int64_t>> before_;
  std::vector<std::string> violations_;
  std::optional<absl::Time> last_line_;
  std::vector<absl::Duration> intervals_;                      // between lines, undisturbed
  std::vector<std::pair<std::string, absl::Time>> pending_;    // acts that no line followed yet
  std::map<std::string, std::vector<absl::Duration>> healed_;  // by kind
  std::optional<absl::Time> sampled_;
  double worker_seconds_ = 0, speed_seconds_ = 0, speed_time_ = 0;
};

}  // namespace starling::cli
