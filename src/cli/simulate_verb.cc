// starling simulate: a whole cluster in one thread and in simulated time, with faults, watched by
// the checkers of protocol.md's invariants.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "starling/config/nearest.h"
#include "starling/sim/run.h"

namespace starling::cli {
namespace {

constexpr size_t kLastEvents = 30;

struct SimulateArguments {
  uint64_t seed = 1;
  int workers = 8;
  double hours = 0.05;
  int64_t micro_batches = 0;  // 0: two a worker
  double step_seconds = 2;
  double detection = 3;
  std::vector<std::string> faults;
  std::string trace;
};

std::string Line(const char* label, const std::string& value) {
  return absl::StrFormat("%-16s%s\n", label, value);
}

std::string SummaryText(const sim::Summary& s) {
  const auto share = [](double part, double whole) { return whole > 0 ? 100 * part / whole : 0.0; };
  const auto whole = static_cast<int64_t>(s.simulated_seconds);
  std::string text = Line("seed", absl::StrCat(s.seed));
  text += Line("workers", absl::StrCat(s.workers));
  text += Line("simulated time",
               absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60));
  text += Line("events", absl::StrCat(s.events));
  text += Line("generations", absl::StrCat(s.views));
  text += Line("steps", absl::StrCat(s.steps));
  text += Line(
      "micro-batches",
      absl::StrFormat("%d computed, %d of them again (%.2f %%)", s.computed, s.recomputed,
                      share(static_cast<double>(s.recomputed), static_cast<double>(s.computed))));
  text +=
      Line("member stall",
           absl::StrFormat("%.1f s in all (%.2f %% of the workers' time), mean %.3f s, longest "
                           "%.3f s",
                           s.stall_seconds, share(s.stall_seconds, s.simulated_seconds * s.workers),
                           s.stalls > 0 ? s.stall_seconds / static_cast<double>(s.stalls) : 0.0,
                           s.longest_stall));
  text += Line("restores", absl::StrCat(s.restores));
  text += Line("violations", s.failure.empty() ? "0" : "1");
  text += Line("fingerprint", absl::StrFormat("%016x", s.hash));
  return text;
}

// What somebody needs to see it again.
std::string CommandLine(const SimulateArguments& a) {
  std::string text =
      absl::StrCat("starling simulate --seed ", a.seed, " --workers ", a.workers, " --hours ",
                   a.hours, " --step-seconds ", a.step_seconds, " --detection ", a.detection);
  if (a.micro_batches > 0) absl::StrAppend(&text, " --micro-batches ", a.micro_batches);
  if (!a.faults.empty()) absl::StrAppend(&text, " --faults ", absl::StrJoin(a.faults, ","));
  return text;
}

int Simulate(const SimulateArguments& arguments) {
  sim::Options options{.seed = arguments.seed,
                       .min_workers = arguments.workers,
                       .max_workers = arguments.workers,
                       .seconds = arguments.hours * 3600,
                       .micro_batches = arguments.micro_batches > 0 ? arguments.micro_batches
                                                                    : 2 * arguments.workers,
                       .step_seconds = arguments.step_seconds,
                       .detection = arguments.detection};
  const std::vector<std::string> names = sim::FaultNames();
  for (const std::string& fault : arguments.faults) {
    if (!options.faults) options.faults.emplace();
    if (fault == "none" && arguments.faults.size() == 1) break;
    if (std::find(names.begin(), names.end(), fault) == names.end()) {
      const std::string nearest = config::Nearest(fault, names);
      return Fail(ExitCode::kUsage,
                  absl::StrCat("unknown fault \"", fault, "\"",
                               nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"),
                               " Faults are none alone, or ", absl::StrJoin(names, ",")));
    }
    options.faults->insert(fault);
  }
  std::ofstream trace;
  if (!arguments.trace.empty()) {
    trace.open(arguments.trace, std::ios::binary);
    if (!trace) {
      return Fail(ExitCode::kCannotCreate, absl::StrCat(arguments.trace, " cannot be created"));
    }
    options.trace = [&](const std::string& line) { trace << line << '\n'; };
  }
  const sim::Summary summary = sim::Run(options);
  std::fputs(SummaryText(summary).c_str(), stdout);
  if (!arguments.trace.empty() && !trace.flush()) {
    return Fail(ExitCode::kIoError, absl::StrCat(arguments.trace, " cannot be written"));
  }
  if (summary.failure.empty()) return 0;
  std::printf("\nthe last events\n");
  for (const std::string& line : sim::LastEvents(options, kLastEvents)) {
    std::printf("  %s\n", line.c_str());
  }
  std::fflush(stdout);
  return Fail(ExitCode::kInternal,
              absl::StrCat(summary.failure, "; again with: ", CommandLine(arguments)));
}

}  // namespace

void AddSimulate(CLI::App& app, int* exit_code) {
  CLI::App* verb = app.add_subcommand(
      "simulate",
      "Run a cluster with faults in simulated time and check the protocol's invariants");
  auto a = std::make_shared<SimulateArguments>();
  verb->add_option("--seed", a->seed, "Everything follows from it: equal seeds, equal output")
      ->capture_default_str();
  verb->add_option("--workers", a->workers, "Number of workers")
      ->check(CLI::Range(1, 100'000))
      ->capture_default_str();
  verb->add_option("--hours", a->hours, "Simulated time, the last quarter of it without faults")
      ->check(CLI::Range(0.001, 10'000.0))
      ->capture_default_str();
  verb->add_option("--micro-batches", a->micro_batches,
                   "In a step; two for each worker if not said")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000'000}));
  verb->add_option("--step-seconds", a->step_seconds, "Time of a step that all workers share")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  verb->add_option("--detection", a->detection, "Seconds of silence that mean dead")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  verb->add_option("--faults", a->faults,
                   "All of these and no others, or none; the seed picks if not said")
      ->delimiter(',')
      ->type_name("NAME,…");
  verb->add_option("--trace", a->trace, "Write every message and decision to this file")
      ->type_name("FILE");
  verb->footer(absl::StrCat(
      "Faults: ", absl::StrJoin(sim::FaultNames(), ", "),
      ".\nA violation ends the run with exit code 70, the last events and a command that shows it "
      "again.\n\n"
      "Examples:\n"
      "  starling simulate --seed 7 --workers 50 --hours 1\n"
      "  starling simulate --workers 8 --faults crash,pause,drain --trace /tmp/trace.txt\n"
      "  starling simulate --workers 1000 --step-seconds 30 --detection 15 --faults none\n"));
  verb->callback([a, exit_code] { *exit_code = Simulate(*a); });
}

}  // namespace starling::cli
