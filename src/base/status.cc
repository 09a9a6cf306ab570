#include "starling/base/status.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "starling/base/exit_codes.h"

namespace starling {
namespace {

constexpr char kExitCodePayload[] = "starling/exit_code";

absl::StatusCode CodeOf(int errno_value) {
  switch (errno_value) {
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
      return absl::StatusCode::kResourceExhausted;
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

}  // namespace

absl::Status Annotate(const absl::Status& status, std::string_view prefix) {
  if (status.ok()) return status;
  absl::Status longer(status.code(),
                      absl::StrCat(std::string(prefix), ": ", std::string(status.message())));
  status.ForEachPayload([&longer](absl::string_view url, const absl::Cord& payload) {
    longer.SetPayload(url, payload);
  });
  return longer;
}

absl::Status ErrnoStatus(int errno_value, std::string_view what) {
  return absl::Status(CodeOf(errno_value),
                      absl::StrCat(std::string(what), ": ", strerror(errno_value)));
}

absl::Status WithExitCode(absl::Status status, ExitCode code) {
  if (!status.ok())
    status.SetPayload(kExitCodePayload, absl::Cord(absl::StrCat(static_cast<int>(code))));
  return status;
}

ExitCode ExitCodeFor(const absl::Status& status) {
  if (const auto payload = status.GetPayload(kExitCodePayload)) {
    int code = 0;
    if (absl::SimpleAtoi(std::string(*payload), &code)) return static_cast<ExitCode>(code);
  }
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kUsage;
    case absl::StatusCode::kNotFound:
      return ExitCode::kMissingInput;
    case absl::StatusCode::kDataLoss:
      return ExitCode::kBadData;
    case absl::StatusCode::kPermissionDenied:
      return ExitCode::kPermission;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kUnreachable;
    case absl::StatusCode::kResourceExhausted:
      return ExitCode::kIoError;
    case absl::StatusCode::kAlreadyExists:
      return ExitCode::kCannotCreate;
    case absl::StatusCode::kInternal:
      return ExitCode::kInternal;
    default:
      return ExitCode::kFailure;
  }
}

}  // namespace starling
