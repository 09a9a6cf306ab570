// Where received bytes go, and a cursor over the ranges that are sent. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/channel.h"
#include "comm/reduce.h"
#include "starling/comm/communicator.h"

namespace starling::comm {

// Elements in all of `ranges`.
int64_t CountOf(std::span<const Range> ranges);

// Walks over the elements of a list of ranges. Keeps a reference to the list.
class RangeCursor {
 public:
  RangeCursor() = default;
  explicit RangeCursor(std::span<const Range> ranges);

  bool done() const { return remaining_ == 0; }
  int64_t remaining() const { return remaining_; }
  // Index of the next element, and how many follow it without a gap. REQUIRES: !done().
  int64_t index() const { return ranges_[current_].begin + offset_; }
  int64_t run() const { return ranges_[current_].end - index(); }
  // Moves on by `count` ≤ remaining().
  void Advance(int64_t count);

 private:
  void SkipEmpty();

  std::span<const Range> ranges_;
  size_t current_ = 0;
  int64_t offset_ = 0;
  int64_t remaining_ = 0;
};

// Copies into the given bytes.
class BytesSink final : public Sink {
 public:
  explicit BytesSink(std::span<std::byte> target) : target_(target) {}
  int64_t Room() const override { return static_cast<int64_t>(target_.size()); }
  int64_t granule() const override { return 1; }
  void Take(const std::byte* data, int64_t bytes) override;
  std::span<std::byte> Direct() override { return target_; }
  void Took(int64_t bytes) override { target_ = target_.subspan(static_cast<size_t>(bytes)); }

 private:
  std::span<std::byte> target_;  // what is still missing
};

// Copies into the ranges of a buffer of bytes or elements.
class CopySink final : public Sink {
 public:
  CopySink(void* base, int64_t element_bytes, std::span<const Range> ranges)
      : base_(static_cast<std::byte*>(base)), element_bytes_(element_bytes), cursor_(ranges) {}
  int64_t Room() const override { return cursor_.remaining() * element_bytes_ - split_; }
  int64_t granule() const override { return 1; }
  void Take(const std::byte* data, int64_t bytes) override;
  std::span<std::byte> Direct() override;
  void Took(int64_t bytes) override;

 private:
  std::byte* base_;
  int64_t element_bytes_;
  RangeCursor cursor_;
  int64_t split_ = 0;  // bytes of the element at the cursor that are already there
};

// out = Σ of all ranks' pieces over `mine`, each element in rank order whatever order the pieces
// arrive in: rank r's piece is taken only as far as the rank before it has been added; the rest
// waits in the channel. This rank's own piece is read from `in` on the way.
class OrderedReducer {
 public:
  // REQUIRES: ranks ≥ 2.
  OrderedReducer(ConstBuffer in, Buffer out, std::span<const Range> mine, int ranks, int self);

  // Elements that may be added for `rank` ≠ self now.
  int64_t Room(int rank) const;
  void Add(int rank, const std::byte* data, int64_t count);
  int64_t element_bytes() const { return element_bytes_; }

 private:
  void AddPiece(int rank, int64_t index, int64_t position, const std::byte* data, int64_t count);
  int64_t WindowEnd() const;

  const DType dtype_;
  const int64_t element_bytes_;
  const std::byte* const in_;
  std::byte* const out_;
  const int ranks_;
  const int self_;
  const bool wide_;
  const int64_t total_;
  std::vector<RangeCursor> cursors_;  // per rank; self's is unused
  std::vector<int64_t> done_;         // per rank: elements added; self's is unused
  std::vector<float> window_;         // accumulators of 16-bit types, elements
  int64_t window_begin_ = 0;          // [window_begin_, WindowEnd()); moves on when all are added
};

// The part of an OrderedReducer that takes one rank's bytes.
class ReduceSink final : public Sink {
 public:
  ReduceSink(OrderedReducer* reducer, int rank) : reducer_(reducer), rank_(rank) {}
  int64_t Room() const override { return reducer_->Room(rank_) * reducer_->element_bytes(); }
  int64_t granule() const override { return reducer_->element_bytes(); }
  void Take(const std::byte* data, int64_t bytes) override {
    reducer_->Add(rank_, data, bytes / reducer_->element_bytes());
  }

 private:
  OrderedReducer* reducer_;
  int rank_;
};

}  // namespace starling::comm
