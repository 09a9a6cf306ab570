#include "starling/config/summary.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "config/values.h"
#include "starling/model/lean_albert_layout.h"

namespace starling::config {
namespace {

// ddp, fp32: working copy 4, accumulator 4, reduced sums 4, two moments 8 bytes a parameter.
constexpr int64_t kDdpBytesPerParameter = 20;
constexpr int64_t kSnapshotBytesPerParameter = 12;
constexpr int64_t kGradientBytes = 4;

WorkersRow RowFor(int64_t workers, const Summary& summary) {
  WorkersRow row;
  row.workers = workers;
  row.memory_bytes = kDdpBytesPerParameter * summary.parameters;
  row.sent_bytes = 2 * (workers - 1) * kGradientBytes * summary.parameters / workers;
  row.most_micro_batches = (summary.micro_batches + workers - 1) / workers;
  return row;
}

int64_t TotalTokens(const Training& training) {
  const std::vector<plan::LengthChange> changes = training.sequence_length.Changes();
  int64_t tokens = 0;
  for (size_t i = 0; i < changes.size(); ++i) {
    const int64_t begin = std::min(changes[i].first_step, training.steps);
    const int64_t end = i + 1 < changes.size() ? std::min(changes[i + 1].first_step, training.steps)
                                               : training.steps;
    tokens += (end - begin) * training.global_batch * changes[i].length;
  }
  return tokens;
}

std::string FormatBytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%d B", bytes)
                   : absl::StrFormat("%.*f %s", value < 10 ? 2 : 1, value, kUnits[unit]);
}

std::string FormatCount(int64_t count) {
  if (count < 1000) return absl::StrCat(count);
  static constexpr const char* kUnits[] = {"thousand", "million", "billion", "trillion"};
  double value = static_cast<double>(count) / 1000;
  int unit = 0;
  while (value >= 1000 && unit < 3) {
    value /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", value < 10 ? 2 : 1, value, kUnits[unit]);
}

// Rows that look alike become one: group sizes from 5 on hardly change the traffic.
struct TextRow {
  int64_t first = 0, last = 0;
  std::string rest;
};

std::vector<TextRow> TextRows(const Summary& summary) {
  std::vector<TextRow> out;
  for (const WorkersRow& row : summary.rows) {
    const bool idle = row.workers > summary.micro_batches;
    const std::string rest = absl::StrFormat(
        "%17s  %22s  %24s", FormatBytes(row.memory_bytes), FormatBytes(row.sent_bytes),
        idle ? "0 or 1" : absl::StrCat(row.most_micro_batches));
    if (!out.empty() && out.back().rest == rest) {
      out.back().last = row.workers;
    } else {
      out.push_back({row.workers, row.workers, rest});
    }
  }
  return out;
}

void ExplainTimes(const Config& config, std::string* out) {
  const Elastic& elastic = config.elastic;
  absl::StrAppend(out, "waiting times (from elastic.detection ", FormatTime(elastic.detection),
                  " and measured times)\n");
  const auto line = [out](const std::string& what, const std::string& time) {
    absl::StrAppendFormat(out, "  %-52s %s\n", what, time);
  };
  line("a worker sends a heartbeat every", FormatTime(elastic.heartbeat_interval()));
  line("a silent worker counts as lost after", FormatTime(elastic.detection));
  line("a worker without progress is dropped after",
       absl::StrCat("10 micro-batches, at least ", FormatTime(elastic.stuck_after)));
  line("a copy to a newcomer that takes longer than a step",
       absl::StrCat("at most ", FormatTime(elastic.join_stall_max)));
  line("a silent sole owner of state is waited for", FormatTime(elastic.patience));
  line(absl::StrCat("the first view forms after ", elastic.min_workers, " worker(s) and"),
       FormatTime(elastic.gather_after));
}

}  // namespace

Summary Summarize(const Config& config) {
  const model::ParameterLayout layout = model::MakeParameterLayout(config.model);
  Summary summary;
  summary.parameters = layout.distinct_values();
  summary.unrolled_parameters = layout.total_values();
  summary.micro_batches = config.training.micro_batches();
  summary.samples = config.training.steps * config.training.global_batch;
  summary.tokens = TotalTokens(config.training);
  summary.snapshot_bytes = kSnapshotBytesPerParameter * summary.parameters;
  for (int64_t n = config.elastic.min_workers; n <= config.elastic.max_workers; ++n) {
    const WorkersRow row = RowFor(n, summary);
    summary.rows.push_back(row);
  }
  return summary;
}

std::string Explain(const Config& config) {
  const Summary summary = Summarize(config);
  std::string out =
      absl::StrFormat("model: %s parameters (%d); %s with shared matrices counted at every use\n",
                      FormatCount(summary.parameters), summary.parameters,
                      FormatCount(summary.unrolled_parameters));
  absl::StrAppendFormat(&out, "a step: %d samples in %d micro-batches of %d\n",
                        config.training.global_batch, summary.micro_batches,
                        config.training.micro_batch);
  absl::StrAppendFormat(&out, "the run: %d steps, %s samples, at most %s tokens\n",
                        config.training.steps, FormatCount(summary.samples),
                        FormatCount(summary.tokens));
  absl::StrAppendFormat(&out, "%-9s%17s  %22s  %24s\n", "workers", "memory per worker",
                        "sent a step per worker", "micro-batches per worker");
  for (const TextRow& row : TextRows(summary)) {
    const std::string workers =
        row.first == row.last ? absl::StrCat(row.first) : absl::StrCat(row.first, "-", row.last);
    absl::StrAppendFormat(&out, "%-9s%s\n", workers, row.rest);
  }
  absl::StrAppend(&out, "memory is state only, without activations; a checkpoint adds ",
                  FormatBytes(summary.snapshot_bytes), " while it is written\n");
  ExplainTimes(config, &out);
  return out;
}

}  // namespace starling::config
