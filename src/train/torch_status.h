// The one place where exceptions of libtorch and the standard library become statuses.
#pragma once

#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace starling::train {

// Runs `body` and returns its status. What it throws becomes "<doing>: <what>": ResourceExhausted
// when memory ran out, else Internal.
absl::Status CatchTorch(std::string_view doing, absl::FunctionRef<absl::Status()> body);

}  // namespace starling::train
