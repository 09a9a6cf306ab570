// The coordinator's options as the config says them, for `starling run` and `starling coordinator`.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "starling/config/config.h"
#include "starling/coordinator/driver.h"

namespace starling::cli {

// `expected_workers`: the first view waits for so many.
coordinator::DriverOptions DriverOptionsOf(const config::Config& config, int expected_workers,
                                           bool accept_config_change);

// Makes the run folder and sends this process's log to coordinator.log in it.
absl::Status OpenCoordinatorLog(const std::string& run_folder);

}  // namespace starling::cli
