// starling events: what happened to the members of a run, from events.jsonl of its folder.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/run_finder.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "starling/base/fs.h"

namespace starling::cli {
namespace {

struct EventsArguments {
  RunArguments run;
  std::string output = "table";
  bool follow = false;
};

constexpr const char* kFile = "events.jsonl";
constexpr std::chrono::milliseconds kLookAgain(200);

std::string Text(const nlohmann::json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end() || it->is_null()) return "";
  return it->is_string() ? it->get<std::string>() : it->dump();
}

// "2026-01-02T03:04:05.678901Z" → "2026-01-02 03:04:05"
std::string TimeText(const nlohmann::json& json) {
  std::string text = Text(json, "time").substr(0, 19);
  if (text.size() == 19 && text[10] == 'T') text[10] = ' ';
  return text;
}

std::string EventLine(const std::string& line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return line + "\n";
  std::string text =
      absl::StrFormat("%-19s  gen %-4s %-18s %-12s %s", TimeText(json), Text(json, "generation"),
                      Text(json, "event"), Text(json, "worker"), Text(json, "reason"));
  const auto phases = json.find("phase_ms");
  if (phases != json.end() && phases->is_object() && !phases->empty()) {
    absl::StrAppend(&text, " [", Text(json, "members"), " members;");
    for (const auto& [name, ms] : phases->items()) {
      if (ms.is_number()) absl::StrAppendFormat(&text, " %s %.0f ms", name, ms.get<double>());
    }
    text += "]";
  }
  return text + "\n";
}

int Events(const EventsArguments& arguments) {
  std::string run = arguments.run.run;
  if (run.empty()) {
    absl::StatusOr<std::string> newest = NewestRun(kFile);
    if (!newest.ok()) return Fail(newest.status());
    run = *std::move(newest);
  }
  const std::string path = JoinPath(run, kFile);
  if (!RealFs().Exists(path) && !arguments.follow) {
    return Fail(ExitCode::kMissingInput, absl::StrCat(path, " does not exist: is ", run,
                                                      " a run folder whose training has begun?"));
  }
  std::string pending;  // a line still being written
  int64_t offset = 0;
  for (;;) {
    std::ifstream file(path, std::ios::binary);
    file.seekg(offset);
    for (std::string line; std::getline(file, line);) {
      offset += static_cast<int64_t>(line.size());
      pending += line;
      if (file.eof()) break;  // no line break yet
      ++offset;
      std::fputs(arguments.output == "json" ? (pending + "\n").c_str() : EventLine(pending).c_str(),
                 stdout);
      pending.clear();
    }
    std::fflush(stdout);
    if (!arguments.follow) return 0;
    std::this_thread::sleep_for(kLookAgain);
  }
}

}  // namespace

void AddEvents(CLI::App& app, int* exit_code) {
  CLI::App* verb = app.add_subcommand("events", "Show who joined, left and was lost, and when");
  auto arguments = std::make_shared<EventsArguments>();
  AddRunOption(verb, &arguments->run);
  verb->add_flag("-f,--follow", arguments->follow, "Go on with what happens, until Ctrl-C");
  verb->add_option("-o,--output", arguments->output, "table or json (as in the file)")
      ->check(CLI::IsMember({"table", "json"}))
      ->type_name("FORMAT")
      ->capture_default_str();
  verb->footer(
      "Reads events.jsonl of the run folder; the run may be over.\n\n"
      "Examples:\n"
      "  starling events --run runs/ru-tiny\n"
      "  starling events -f\n"
      "  starling events -o json | jq 'select(.event == \"lost\")'\n");
  verb->callback([arguments, exit_code] { *exit_code = Events(*arguments); });
}

}  // namespace starling::cli
