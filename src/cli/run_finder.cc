#include "cli/run_finder.h"

#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "cli/terminal.h"
#include "starling/base/fs.h"

namespace starling::cli {
namespace {

constexpr const char* kRuns = "runs";
constexpr const char* kResolvedConfig = "config.resolved.yaml";
constexpr const char* kEndpointVariable = "STARLING_ENDPOINT";

}  // namespace

void AddRunOption(CLI::App* verb, RunArguments* arguments) {
  verb->add_option("--run", arguments->run, "Run folder (default: the newest below ./runs)")
      ->type_name("DIR");
}

void AddRunOptions(CLI::App* verb, RunArguments* arguments) {
  AddRunOption(verb, arguments);
  verb->add_option("--endpoint", arguments->endpoint,
                   "Coordinator's address (default: the run folder's endpoint file)")
      ->envname(kEndpointVariable)
      ->type_name("HOST:PORT");
  verb->add_option("--timeout", arguments->timeout, "How long to wait for an answer")
      ->type_name("DURATION")
      ->capture_default_str();
}

absl::StatusOr<std::string> NewestRun(const std::string& file) {
  std::string newest;
  int64_t newest_ns = -1;
  const auto folders = RealFs().List(kRuns);
  if (folders.ok()) {
    for (const std::string& folder : *folders) {
      const std::string run = JoinPath(kRuns, folder);
      struct stat info {};
      if (stat(JoinPath(run, file).c_str(), &info) != 0) continue;
      const int64_t ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
      if (ns <= newest_ns) continue;
      newest_ns = ns;
      newest = run;
    }
  }
  if (newest.empty()) {
    return absl::NotFoundError(absl::StrCat("no folder below ./", kRuns, " has a file `", file,
                                            "`: name the run with --run DIR"));
  }
  Note(absl::StrCat("run: ", newest));
  return newest;
}

absl::StatusOr<rpc::Target> FindRun(const RunArguments& arguments) {
  rpc::Target target{.endpoint = arguments.endpoint, .run_folder = arguments.run, .token = {}};
  if (!target.endpoint.empty()) return target;
  if (target.run_folder.empty()) {
    absl::StatusOr<std::string> newest = NewestRun(std::string(rpc::kEndpointFile));
    if (!newest.ok()) return newest.status();
    target.run_folder = *std::move(newest);
  } else if (!RealFs().Exists(target.run_folder)) {
    return absl::NotFoundError(absl::StrCat("run folder ", target.run_folder, " does not exist"));
  }
  const auto has = [&](std::string_view file) {
    return RealFs().Exists(JoinPath(target.run_folder, file));
  };
  if (has(rpc::kEndpointFile)) return target;
  if (!has(kResolvedConfig)) {
    return absl::NotFoundError(
        absl::StrCat(target.run_folder, " is no run folder: it has no file ", kResolvedConfig));
  }
  return absl::UnavailableError(absl::StrCat("nothing is running in ", target.run_folder,
                                             " (it has no file ", std::string(rpc::kEndpointFile),
                                             "); `starling events --run ", target.run_folder,
                                             "` shows how it ended"));
}

absl::StatusOr<absl::Duration> ParseTimeout(const std::string& option, const std::string& text) {
  absl::Duration duration;
  if (absl::ParseDuration(text, &duration) && duration > absl::ZeroDuration()) return duration;
  return absl::InvalidArgumentError(
      absl::StrCat(option, ": expected a duration such as 500ms, 30s or 5m, got \"", text, "\""));
}

}  // namespace starling::cli
