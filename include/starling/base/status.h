// Status helpers. Every module boundary returns absl::Status or absl::StatusOr; nothing of ours
// throws. Thread-safe: macros and pure functions.
#pragma once

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace starling {

// Status with `prefix` and ": " before its message; OK stays OK. Keeps the code.
absl::Status Annotate(const absl::Status& status, std::string_view prefix);

// Status for a failed system call: "<what>: <strerror(errno_value)>" with the code that the error
// means for recovery (ENOSPC, EDQUOT, ENOMEM → ResourceExhausted; ENOENT → NotFound; EACCES, EPERM,
// EROFS → PermissionDenied; EEXIST → AlreadyExists; everything else → Unavailable).
absl::Status ErrnoStatus(int errno_value, std::string_view what);

}  // namespace starling

#define STARLING_CONCAT_INNER(a, b) a##b
#define STARLING_CONCAT(a, b) STARLING_CONCAT_INNER(a, b)

// Returns the status of `expr` from the enclosing function when it is not OK.
#define STARLING_RETURN_IF_ERROR(expr)                                                           \
  do {                                                                                           \
    if (absl::Status starling_status_ = (expr); !starling_status_.ok()) return starling_status_; \
  } while (false)

// `lhs` = value of the StatusOr `expr`, or returns its status from the enclosing function.
#define STARLING_ASSIGN_OR_RETURN(lhs, expr) \
  STARLING_ASSIGN_OR_RETURN_INNER(STARLING_CONCAT(starling_or_, __LINE__), lhs, expr)
#define STARLING_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr) \
  auto tmp = (expr);                                    \
  if (!tmp.ok()) return tmp.status();                   \
  lhs = std::move(tmp).value()
