// The coordinator's options as the config says them, for `starling run` and `starling coordinator`.
#pragma once

#include "starling/config/config.h"
#include "starling/coordinator/driver.h"

namespace starling::cli {

// `expected_workers`: the first view waits for so many.
coordinator::DriverOptions DriverOptionsOf(const config::Config& config, int expected_workers,
                                           bool accept_config_change);

}  // namespace starling::cli
