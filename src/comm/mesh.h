// The links between this rank and all others of one generation: moves messages over them at the
// same time, waits without polling, notices at once when a peer dies, and can be aborted.
//
// Every link has a control stream (control_stream.h) and a channel for the messages (channel.h). A
// waiting rank polls all control streams, so the end of any peer wakes it; channels through shared
// memory send their wake-ups over the control stream too. A message is a 16-byte header that both
// sides agree on, the payload, and zeros up to a multiple of 8 bytes.
//
// After the first failure the mesh is dead: it says goodbye to the peers, naming the ranks that it
// suspects so that they do not suspect this one, and ends its connections.
//
// Threads: Exchange, Fail and traffic from one thread; Abort, status and suspects from any.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "comm/channel.h"
#include "comm/control_stream.h"
#include "comm/sinks.h"
#include "starling/base/ids.h"
#include "starling/comm/communicator.h"

namespace starling::comm {

// Connection to one peer; both empty at this rank's own place.
struct Link {
  ControlStream control;
  std::unique_ptr<Channel> channel;
};

// The kind of call; goes into the message header so that ranks that call different things notice.
enum class MessageKind : uint32_t {
  kReduceScatter = 1,
  kAllGather = 2,
  kAllReduce = 3,
  kBroadcast = 4,
  kBarrier = 5,
  kPointToPoint = 6,
};
const char* Name(MessageKind kind);

struct MessageHeader {
  MessageKind kind;
  uint32_t sequence;  // number of the collective in this generation
  uint64_t payload_bytes;
};
static_assert(sizeof(MessageHeader) == 16);

// A message on its way out. The cursor's elements have `element_bytes` at `base`.
struct Outgoing {
  Outgoing(int peer, const void* data, int64_t element, std::span<const Range> ranges)
      : to(peer),
        base(static_cast<const std::byte*>(data)),
        element_bytes(element),
        payload(ranges) {}
  int to;
  const std::byte* base;
  int64_t element_bytes;
  RangeCursor payload;
  // Progress, kept by Exchange.
  MessageHeader header = {};
  int64_t frame_sent = 0;  // bytes of the header, then of the padding
  int64_t split = 0;       // bytes already sent of the element at the cursor
  bool done = false;
};

// A message that is expected.
struct Incoming {
  Incoming(int peer, Sink* into, int64_t bytes) : from(peer), sink(into), payload_bytes(bytes) {}
  int from;
  Sink* sink;
  int64_t payload_bytes;
  // Progress, kept by Exchange.
  MessageHeader header = {};
  int64_t frame_received = 0;  // bytes of header and padding
  int64_t payload_received = 0;
  bool done = false;
};

class Mesh {
 public:
  // `links` by rank. `slot_bytes`: what one peer is served before the next one's turn.
  Mesh(Generation generation, int rank, std::vector<Link> links, int64_t slot_bytes);
  // Healthy: tells the peers that this rank has finished. Never blocks.
  ~Mesh();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(links_.size()); }
  Generation generation() const { return generation_; }

  // Sends and receives all messages, at most one in each direction per peer. Blocks.
  absl::Status Exchange(MessageKind kind, uint32_t sequence, std::vector<Outgoing>& out,
                        std::vector<Incoming>& in, absl::Time deadline);

  // Makes the mesh dead with `status` unless it is dead already; returns what it died of.
  absl::Status Fail(absl::Status status, std::vector<int> suspects);
  void Abort(const std::string& reason);

  absl::Status status() const;
  std::vector<Rank> suspects() const;
  Traffic traffic() const { return traffic_; }

 private:
  struct Wish {  // what the current exchange still wants from a peer
    bool read = false;
    bool write = false;
    bool needed = false;  // any message with it is incomplete
  };
  struct Exchanging;

  int64_t PumpOut(Outgoing& message);
  int64_t SendNext(Outgoing& message);
  int64_t PumpIn(Exchanging& exchange, Incoming& message);
  int64_t ReceiveNext(Exchanging& exchange, Incoming& message);
  bool Pump(Exchanging& exchange);
  absl::Status Wait(Exchanging& exchange);
  void FillWishes(const Exchanging& exchange);
  bool ArmAll();
  void Poll(absl::Duration at_most);
  bool InTrouble(int peer) const;
  bool AnyTrouble() const;
  absl::Status FailOnTrouble(const Exchanging& exchange);
  absl::Status FailOnDeadline(const Exchanging& exchange);
  void NoteBroken(int peer);
  std::string Where(MessageKind kind) const;

  const Generation generation_;
  const int rank_;
  const int64_t slot_bytes_;
  std::vector<Link> links_;
  std::vector<Wish> wishes_;        // by peer; refilled before each wait
  std::vector<absl::Time> broken_;  // by peer: when its channel broke; infinite future before
  std::vector<pollfd> pollfds_;     // control of peer p at 2p, channel at 2p + 1
  bool all_rings_ = true;
  Traffic traffic_;

  std::atomic<bool> dead_ = false;  // set once, after status_
  mutable absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);        // OK while alive
  std::vector<int> suspects_ ABSL_GUARDED_BY(mutex_);  // set together with status_
};

}  // namespace starling::comm
