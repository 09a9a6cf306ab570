// Text ↔ value for every type of setting. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"

namespace starling::config {

// Strict readings of a whole text; nullopt when it is something else.
std::optional<int64_t> ParseInt(const std::string& text);    // decimal
std::optional<uint64_t> ParseUint(const std::string& text);  // decimal
std::optional<double> ParseDouble(const std::string& text);  // finite; 2.5e-3
std::optional<bool> ParseBool(const std::string& text);      // true or false, nothing else
std::optional<absl::Duration> ParseTime(
    const std::string& text);  // >= 0; a number with ms, s, m, h

// The shortest text that reads back to the same value.
std::string FormatDouble(double value);
std::string FormatTime(absl::Duration value);
std::string FormatString(const std::string& value);  // in quotes where YAML would mistake it

}  // namespace starling::config
