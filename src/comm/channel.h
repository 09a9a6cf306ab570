// One direction-pair of bytes to one peer, non-blocking. Channels move bytes; what the bytes mean,
// waiting, and noticing that the peer died belong to Mesh (mesh.h). Used by one thread, except
// Shutdown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace starling::comm {

// Takes received bytes. Implementations: sinks.h.
class Sink {
 public:
  virtual ~Sink() = default;
  // Bytes it can take now; a multiple of granule(). Zero means: not before others have progressed.
  virtual int64_t Room() const = 0;
  // Size of the elements; Take is only called with whole ones.
  virtual int64_t granule() const = 0;
  // Takes `bytes` ≤ Room().
  virtual void Take(const std::byte* data, int64_t bytes) = 0;
  // Memory where the next bytes belong unchanged, so that they can be received straight into it
  // (then Took follows); empty when they must go through Take.
  virtual std::span<std::byte> Direct() { return {}; }
  virtual void Took(int64_t /*bytes*/) {}
};

class Channel {
 public:
  static constexpr int64_t kBroken = -1;
  virtual ~Channel() = default;

  // Hands over up to `bytes` and returns how many; 0 when the channel is full; kBroken when it can
  // carry no more. `more`: further bytes of the same message follow at once.
  virtual int64_t Write(const std::byte* data, int64_t bytes, bool more) = 0;
  // Makes everything written visible to the peer and wakes it if it sleeps.
  virtual void Flush() {}
  // Feeds up to `max_bytes` that have arrived to `sink` and returns how many; 0 when there are
  // none.
  virtual int64_t Read(Sink& sink, int64_t max_bytes) = 0;

  // Descriptor to poll for readiness, or -1 when the peer sends a wake-up over the control stream,
  // which it does only after Arm.
  virtual int fd() const { return -1; }
  // Asks the peer for a wake-up when it has written (`read`) or consumed (`write`). False when that
  // happened since the last Read or Write, so the caller must not sleep.
  virtual bool Arm(bool /*read*/, bool /*write*/) { return true; }
  virtual void Disarm() {}

  // Makes every later call fail and the peer notice. Thread-safe, never blocks.
  virtual void Shutdown() {}
};

}  // namespace starling::comm
