// What every verb says to people: errors and notes on standard error, data on standard output.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "starling/base/exit_codes.h"

namespace starling::cli {

// Prints "starling: <message>" on standard error and returns the code as a number.
int Fail(ExitCode code, std::string_view message);
// The same with the exit code that belongs to the status.
int Fail(const absl::Status& status);

// Prints a line on standard error.
void Note(std::string_view message);

// Checks that a folder can be created, or written to when it exists, without creating it. Prints
// and returns 73 or 77, or 0.
int CheckFolderWritable(const std::string& key, const std::string& folder);

// Checks that a file can be made under `path`: its folder as above; it is no folder, device or pipe
// (73), and none of `inputs` by whatever name or link (64): writing it would destroy what it is
// made from. Prints and returns the code, or 0.
int CheckOutputFile(const std::string& key, const std::string& path,
                    const std::vector<std::string>& inputs);

// Path of the program `name` beside this one; with the exit code 71 when it is not there.
absl::StatusOr<std::string> SiblingProgram(const std::string& name);

// 12 345 678 → "12.3 M"; below 1000 as it is.
std::string ShortCount(double count);
// 93784 s → "1d2h", 192 s → "3m12s": at most two units.
std::string ShortTime(double seconds);

}  // namespace starling::cli
