// Faults at exact places, for tests and drills: in a communicator at (generation, rank, call), and
// in whoever says that it passes a named point.
//
// Text form, from the environment variable STARLING_FAULT, several parted by ';':
//   kill@gen=2,rank=1,call=5      SIGKILL to this process right before its 5th collective of g = 2
//   fail@gen=2,rank=1,call=5      that call fails as if the peer's connection had broken
//   stall@gen=2,rank=1,call=5,ms=3000   that call starts 3 s late
//   pace@ms=50                    every micro-batch takes at least 50 ms (read by the worker)
//   kill@gen=2,rank=1,point=vote        SIGKILL right before that rank votes
//   kill@point=compute,nth=5            … the fifth time that this process passes the point
//   kill@gen=2,rank=1,point=vote,ms=20  … 20 ms after it passed, whatever it does then
//   stall@gen=2,rank=0,point=vote,ms=300  it stays there for 300 ms
// Calls count from 1 in each generation. "gen=*" and "rank=*" match all; with a point they may be
// left out. Points of a worker, in the order of a step:
//   compute    before a micro-batch               computed     after it
//   reduce     before the reduce-scatter          gather       between it and the all-gather
//   norm       before the norm's all-reduce       normed       after it
//   vote       before the vote                    voted        it is complete, nobody was told
//   apply      before the update                  applied      after it, nobody was told
//   connect    before a view is connected         connected    after it
//   copy       before each chunk of a state that is sent or received
//   copied     after the last one
//   part       before a checkpoint part is written             part_written  durable, not reported
//   hand_over  before an accumulator is sent or received       handing_over  in the middle of it
//   handed_over  after it, nobody was told
// and of `starling coordinator`:
//   manifest   all parts are durable, no manifest              manifest_written  not yet journalled
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "starling/comm/communicator.h"

namespace starling::comm {

enum class FaultPoint {
  kCompute,
  kComputed,
  kReduce,
  kGather,
  kNorm,
  kNormed,
  kVote,
  kVoted,
  kApply,
  kApplied,
  kConnect,
  kConnected,
  kCopy,
  kCopied,
  kPart,
  kPartWritten,
  kHandOver,
  kHandingOver,
  kHandedOver,
  kManifest,
  kManifestWritten,
};

struct Fault {
  enum class Kind { kKill, kFail, kStall, kPace };
  Kind kind = Kind::kKill;
  std::optional<Generation> generation;  // none = every
  std::optional<Rank> rank;              // none = every
  int64_t call = 0;                      // 1, 2, …; unused for kPace and at a point
  std::optional<FaultPoint> point;       // instead of a call; kKill and kStall
  int64_t nth = 1;                       // at a point: the n-th time
  absl::Duration duration;               // kStall, kPace; kKill at a point: so long after it
};

// InvalidArgument with the offending part and the accepted forms.
absl::StatusOr<std::vector<Fault>> ParseFaults(std::string_view text);

// `inner` with the faults that concern its generation and rank; `inner` itself when none does.
std::unique_ptr<Communicator> WithFaults(std::unique_ptr<Communicator> inner,
                                         const std::vector<Fault>& faults);

// Acts on the faults at points. Thread-safe.
class FaultPoints {
 public:
  explicit FaultPoints(const std::vector<Fault>& faults);

  // The calling thread passes `point`; blocks for a stall. Costs a comparison without faults.
  void Pass(FaultPoint point, Generation generation, Rank rank) {
    if (!faults_.empty()) PassSlowly(point, generation, rank);
  }

 private:
  struct Counted {
    Fault fault;
    int64_t passed = 0;
  };
  void PassSlowly(FaultPoint point, Generation generation, Rank rank);

  absl::Mutex mutex_;
  std::vector<Counted> faults_;  // set once; the counts are guarded by the mutex
};

}  // namespace starling::comm
