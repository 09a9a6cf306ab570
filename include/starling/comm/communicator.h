// Collectives among the members of one generation.
//
// A Communicator belongs to exactly one generation and dies with it: after any status that is not
// OK it is dead for good. There is no retry on it; the only thing left is Abort() and a new
// generation. It is created by a Transport (transport.h) and owned by a Group (group.h).
//
// Destroying a healthy one tells the peers that this rank has finished: what it sent is still
// received, and only a peer that needs more of it fails. A process that exits without destroying it
// is taken for dead.
//
// Threads: one thread issues all collectives and sends, in the same order on every rank. Abort()
// may be called from any thread at any time; everything else only from that one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "starling/base/dtype.h"
#include "starling/base/ids.h"

namespace starling::comm {

// Contiguous elements in host memory, not owned.
struct Buffer {
  void* data = nullptr;
  int64_t count = 0;  // elements
  DType dtype = DType::kFloat32;
};
struct ConstBuffer {
  const void* data = nullptr;
  int64_t count = 0;
  DType dtype = DType::kFloat32;
  ConstBuffer() = default;
  ConstBuffer(const void* d, int64_t n, DType t) : data(d), count(n), dtype(t) {}
  ConstBuffer(const Buffer& b) : data(b.data), count(b.count), dtype(b.dtype) {}  // NOLINT
};

// Elements [begin, end) of a buffer.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  auto operator<=>(const Range&) const = default;
};
// For each rank the ranges it is responsible for. Ranges of different ranks do not overlap;
// elements in no range (padding) are neither read nor written.
using Layout = std::vector<std::vector<Range>>;

enum class ReduceOp : uint8_t {
  kSum,  // floats: added in rank order 0, 1, … at one place; integers: with wrap-around
  kMax,
  kOr,  // bitwise; integers only
};

// One piece of a small all-reduce; reduced in place.
struct ReducePart {
  Buffer buffer;
  ReduceOp op = ReduceOp::kSum;
};

// Bytes handed to or taken from the wire (or shared memory) by this rank since creation, payload
// only.
struct Traffic {
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
};

// Every call blocks until it is complete on this rank. Errors, after each of which the communicator
// is dead: Aborted (Abort was called here), Unavailable (a peer's connection broke; the message
// names generation and rank, `suspects()` lists the ranks), DeadlineExceeded (as last resort),
// InvalidArgument (arguments wrong on this rank: a bug), DataLoss (a peer sent what contradicts the
// call). Buffers that were to be written hold garbage after an error; inputs are never changed.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  virtual Generation generation() const = 0;

  // out[r] = Σ over ranks of in[r] for the ranges r of this rank in `layout`; elsewhere `out` is
  // untouched. `in` and `out` have equal counts and do not overlap. Each element is summed at one
  // place in rank order, so a following AllGather gives the same bits everywhere.
  virtual absl::Status ReduceScatter(ConstBuffer in, Buffer out, const Layout& layout,
                                     absl::Duration timeout) = 0;
  // Each rank's ranges of `buffer` are copied into the same place of every other rank's.
  virtual absl::Status AllGather(Buffer buffer, const Layout& layout, absl::Duration timeout) = 0;
  // Reduces several small buffers as one message; all ranks get bitwise the same result. Counts,
  // types and operations agree on all ranks.
  virtual absl::Status AllReduce(std::span<const ReducePart> parts, absl::Duration timeout) = 0;
  // `buffer` of `root` to everybody.
  virtual absl::Status Broadcast(Buffer buffer, Rank root, absl::Duration timeout) = 0;
  virtual absl::Status Barrier(absl::Duration timeout) = 0;
  // Matched pairs: sizes agree; messages between two ranks arrive in order.
  virtual absl::Status Send(ConstBuffer buffer, Rank to, absl::Duration timeout) = 0;
  virtual absl::Status Receive(Buffer buffer, Rank from, absl::Duration timeout) = 0;

  // Ends the communicator: wakes every waiter here with Aborted and closes the connections, so that
  // the peers notice too. Thread-safe, idempotent, never blocks.
  virtual void Abort(const std::string& reason) = 0;

  // Ranks whose connection broke first, for the report to the coordinator. Thread-safe.
  virtual std::vector<Rank> suspects() const = 0;
  virtual Traffic traffic() const = 0;
};

}  // namespace starling::comm
