// What coordinator, launcher and workers derive from the one config, so that they agree. Pure
// functions.
#pragma once

#include <string>
#include <string_view>

#include "starling/config/config.h"
#include "starling/membership/types.h"

namespace starling::cli {

// The protocol's options. `expected_workers`: the first view waits for so many; workers pass
// anything, because only the coordinator reads it.
membership::Options ProtocolOptions(const config::Config& config, int expected_workers,
                                    bool accept_config_change);

// Folder below the run folder that holds the workers' logs.
inline constexpr std::string_view kWorkersFolder = "workers";

// A worker's name as the beginning of a file name: whatever is neither letter, digit, '.', '_' nor
// '-' becomes '_'.
std::string FileNameOf(std::string_view worker_name);

// Begins the reason of a drain that the worker itself asked for (SIGTERM, spot notice). The
// launcher starts such a worker again; one that a person drained stays away.
inline constexpr std::string_view kOwnNotice = "notice: ";

}  // namespace starling::cli
