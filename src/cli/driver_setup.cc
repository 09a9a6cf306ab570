#include "cli/driver_setup.h"

#include "cli/run_setup.h"
#include "starling/base/fs.h"
#include "starling/base/log.h"
#include "starling/base/status.h"

namespace starling::cli {

coordinator::DriverOptions DriverOptionsOf(const config::Config& config, int expected_workers,
                                           bool accept_config_change) {
  coordinator::DriverOptions options;
  options.membership = ProtocolOptions(config, expected_workers, accept_config_change);
  options.run_folder = config.run.directory;
  options.bind = config.coordinator.bind;
  options.http = config.coordinator.http;
  options.global_batch = config.training.global_batch;
  options.seed = config.run.seed;
  options.keep_checkpoints = static_cast<int>(config.checkpoint.keep);
  return options;
}

absl::Status OpenCoordinatorLog(const std::string& run_folder) {
  STARLING_RETURN_IF_ERROR(RealFs().MakeDirectories(run_folder));
  LogOptions log;
  log.file = JoinPath(run_folder, "coordinator.log");
  log.component = "coordinator";
  InitLogging(log);
  return absl::OkStatus();
}

}  // namespace starling::cli
