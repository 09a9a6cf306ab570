// Faults at exact places, for tests and drills: a decorator around a communicator that acts at
// (generation, rank, call).
//
// Text form, from the environment variable STARLING_FAULT, several parted by ';':
//   kill@gen=2,rank=1,call=5      SIGKILL to this process right before its 5th collective of g = 2
//   fail@gen=2,rank=1,call=5      that call fails as if the peer's connection had broken
//   stall@gen=2,rank=1,call=5,ms=3000   that call starts 3 s late
//   pace@ms=50                    every micro-batch takes at least 50 ms (read by the worker)
// Calls count from 1 in each generation. "gen=*" and "rank=*" match all.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "starling/comm/communicator.h"

namespace starling::comm {

struct Fault {
  enum class Kind { kKill, kFail, kStall, kPace };
  Kind kind = Kind::kKill;
  std::optional<Generation> generation;  // none = every
  std::optional<Rank> rank;              // none = every
  int64_t call = 0;                      // 1, 2, …; unused for kPace
  absl::Duration duration;               // kStall, kPace
};

// InvalidArgument with the offending part and the accepted forms.
absl::StatusOr<std::vector<Fault>> ParseFaults(std::string_view text);

// `inner` with the faults that concern its generation and rank; `inner` itself when none does.
std::unique_ptr<Communicator> WithFaults(std::unique_ptr<Communicator> inner,
                                         const std::vector<Fault>& faults);

}  // namespace starling::comm
