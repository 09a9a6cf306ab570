// Data path through shared memory: two single-producer single-consumer byte rings in one block, one
// for each direction. The block is either memory of this process (ranks as threads) or a memfd that
// was passed over a UNIX socket, so it has no name that could be left behind.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "comm/channel.h"
#include "comm/fd.h"

namespace starling::comm {

// A mapped block; freed with the last copy. Thread-safe as a shared_ptr is.
struct RingMemory {
  std::shared_ptr<std::byte> base;
  int64_t capacity = 0;  // bytes of each ring; a multiple of 64
};

// Bytes of a ring made for chunks of `slot_bytes`: two of them, so that one is read while the other
// is written.
int64_t RingCapacity(int64_t slot_bytes);

RingMemory AllocateRings(int64_t capacity);
// As a sealed memfd. ResourceExhausted or Unavailable from the system.
absl::StatusOr<RingMemory> CreateSharedRings(int64_t capacity, UniqueFd* memfd);
// Maps what CreateSharedRings made. DataLoss when it is something else.
absl::StatusOr<RingMemory> MapSharedRings(const UniqueFd& memfd);

struct RingControl;  // counters of one ring, in the block

// One end. `first` tells the two ends apart; `control_fd`, not owned, carries the wake-ups to the
// peer.
class RingChannel final : public Channel {
 public:
  RingChannel(RingMemory memory, bool first, int control_fd);

  int64_t Write(const std::byte* data, int64_t bytes, bool more) override;
  void Flush() override;
  int64_t Read(Sink& sink, int64_t max_bytes) override;
  bool Arm(bool read, bool write) override;
  void Disarm() override;

 private:
  void Publish();
  void Release(int64_t bytes);

  RingMemory memory_;
  int control_fd_;
  int64_t piece_;  // bytes after which the peer is told, so that both sides work at once
  RingControl* out_;
  RingControl* in_;
  std::byte* out_data_;
  const std::byte* in_data_;
  uint64_t written_ = 0;    // bytes ever written here; out_->head is what the peer has been told
  uint64_t published_ = 0;  // value of out_->head
  uint64_t consumed_ = 0;   // value of in_->tail
  uint64_t seen_head_ = 0;  // in_->head at the last Read
  uint64_t seen_tail_ = 0;  // out_->tail at the last Write
};

}  // namespace starling::comm
