#include "train/torch_status.h"

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <string>

#include "starling/base/status.h"

namespace starling::train {
namespace {

// libtorch reports a failed allocation on the CPU as a plain error with this text.
absl::Status FromTorchMessage(const std::string& message) {
  if (message.find("not enough memory") != std::string::npos) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::InternalError(message);
}

}  // namespace

absl::Status CatchTorch(std::string_view doing, absl::FunctionRef<absl::Status()> body) {
  try {
    return body();
  } catch (const c10::Error& error) {
    return Annotate(FromTorchMessage(error.what_without_backtrace()), doing);
  } catch (const std::bad_alloc&) {
    return Annotate(absl::ResourceExhaustedError("no memory left"), doing);
  } catch (const std::exception& error) {
    return Annotate(FromTorchMessage(error.what()), doing);
  }
}

}  // namespace starling::train
