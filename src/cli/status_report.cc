#include "cli/status_report.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/terminal.h"

namespace starling::cli {
namespace {

using Json = nlohmann::ordered_json;

Json WorkerJson(const membership::WorkerStatus& worker) {
  Json json;
  json["name"] = worker.member.name;
  json["incarnation"] = ToHex(worker.member.incarnation);
  json["rank"] = worker.rank ? Json(worker.rank->value()) : Json(nullptr);
  json["host"] = worker.member.host;
  json["pid"] = worker.member.pid;
  json["state"] = worker.state;
  json["micro_batches_per_second"] = worker.micro_batches_per_second;
  json["last_seen_ms"] = absl::ToInt64Milliseconds(worker.last_seen);
  return json;
}

int64_t MembersOf(const membership::Status& status) {
  return std::count_if(status.workers.begin(), status.workers.end(),
                       [](const membership::WorkerStatus& w) { return w.rank.has_value(); });
}

std::string Row(const std::vector<std::string>& cells) {
  static constexpr int kWidths[] = {16, 4, 9, 10, 9, 8};
  std::string row;
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i < std::size(kWidths)) {
      absl::StrAppendFormat(&row, "%-*s ", kWidths[i], cells[i]);
    } else {
      row += cells[i];
    }
  }
  return row + "\n";
}

}  // namespace

std::string StatusJson(const rpc::StatusReport& report) {
  const membership::Status& status = report.status;
  Json json;
  json["run"] = report.run;
  json["term"] = status.term.value();
  json["generation"] = status.generation.value();
  json["phase"] = status.phase;
  json["committed_step"] = status.position.step.value();
  json["target_workers"] = status.target_workers;
  json["workers"] = Json::array();
  for (const membership::WorkerStatus& worker : status.workers) {
    json["workers"].push_back(WorkerJson(worker));
  }
  // Data parallel: every member holds the whole state, which is one unit.
  const int64_t members = MembersOf(status);
  json["shards"] = {
      {"strategy", "ddp"}, {"replication", members}, {"single_owner", members == 1 ? 1 : 0}};
  json["checkpoint"]["latest_step"] =
      status.latest_checkpoint ? Json(status.latest_checkpoint->step.value()) : Json(nullptr);
  json["goodput"] = report.goodput;
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string StatusTable(const rpc::StatusReport& report) {
  const membership::Status& status = report.status;
  std::string text = absl::StrFormat("%s: %s, step %d of %d, generation %d, term %d\n", report.run,
                                     status.phase, status.position.step.value(), report.total_steps,
                                     status.generation.value(), status.term.value());
  if (!status.phase_reason.empty()) absl::StrAppend(&text, "  ", status.phase_reason, "\n");
  absl::StrAppendFormat(&text, "  workers %d of %d, checkpoint %s, goodput %.1f %%\n\n",
                        MembersOf(status), status.target_workers,
                        status.latest_checkpoint
                            ? absl::StrCat("step ", status.latest_checkpoint->step.value())
                            : "none",
                        100 * report.goodput);
  text += Row({"NAME", "RANK", "STATE", "BATCHES/S", "SEEN", "PID", "HOST"});
  for (const membership::WorkerStatus& worker : status.workers) {
    text += Row({worker.member.name, worker.rank ? absl::StrCat(worker.rank->value()) : "-",
                 worker.state, absl::StrFormat("%.1f", worker.micro_batches_per_second),
                 ShortTime(absl::ToDoubleSeconds(worker.last_seen)),
                 absl::StrCat(worker.member.pid), worker.member.host});
  }
  return text;
}

}  // namespace starling::cli
