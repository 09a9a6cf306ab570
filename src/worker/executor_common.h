// What the parts of the executor share.
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "starling/comm/communicator.h"
#include "starling/membership/worker_core.h"

namespace starling::worker {

// Collectives and copies end by an abort when a peer dies; this bound is the last resort
// (protocol.md §6).
inline constexpr absl::Duration kCollectiveTimeout = absl::Minutes(30);

// Prefetched batches that nobody has taken: enough to hide their making, little to throw away.
inline constexpr size_t kPrefetch = 4;

inline comm::Buffer FloatBuffer(std::span<float> values) {
  return {values.data(), static_cast<int64_t>(values.size()), DType::kFloat32};
}

// Close was called here, before or during the call.
inline bool EndedHere(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsFailedPrecondition(status);
}

inline membership::Completion Failure(const absl::Status& status) {
  return {.ok = false, .reason = std::string(status.message())};
}

}  // namespace starling::worker
