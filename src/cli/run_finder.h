// --run, --endpoint and --timeout of the verbs that talk to a running coordinator or read its
// files, and how the run is found when neither is given.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "starling/rpc/target.h"

namespace CLI {
class App;
}

namespace starling::cli {

struct RunArguments {
  std::string run;       // run folder; empty = the newest one below ./runs
  std::string endpoint;  // HOST:PORT; the environment's STARLING_ENDPOINT when empty
  std::string timeout = "5s";
};

// Adds the options; `arguments` must live as long as `verb`.
void AddRunOptions(CLI::App* verb, RunArguments* arguments);
void AddRunOption(CLI::App* verb, RunArguments* arguments);  // only --run

// The folder below ./runs whose file `file` changed last; says on standard error which one it is.
// NotFound when there is none.
absl::StatusOr<std::string> NewestRun(const std::string& file);

// Where the coordinator is. NotFound when nothing is given and there is no run.
absl::StatusOr<rpc::Target> FindRun(const RunArguments& arguments);

// "500ms", "30s", "5m". InvalidArgument for anything else and for zero.
absl::StatusOr<absl::Duration> ParseTimeout(const std::string& option, const std::string& text);

}  // namespace starling::cli
