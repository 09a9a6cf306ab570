// The exit codes that the cores put into messages, as the numbers that messages carry.
#pragma once

#include "starling/base/exit_codes.h"

namespace starling::membership {

inline constexpr int kFailure = static_cast<int>(ExitCode::kFailure);
inline constexpr int kBadData = static_cast<int>(ExitCode::kBadData);
inline constexpr int kInternal = static_cast<int>(ExitCode::kInternal);
inline constexpr int kIoError = static_cast<int>(ExitCode::kIoError);
inline constexpr int kDrained = static_cast<int>(ExitCode::kDrained);
inline constexpr int kFenced = static_cast<int>(ExitCode::kFenced);
inline constexpr int kConfig = static_cast<int>(ExitCode::kConfig);

}  // namespace starling::membership
