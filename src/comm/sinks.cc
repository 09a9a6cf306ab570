#include "comm/sinks.h"

#include <algorithm>
#include <cstring>

namespace starling::comm {
namespace {

constexpr int64_t kPieceElements = 4096;  // an output piece stays in the first cache while added to
constexpr int64_t kWindowElements = 32768;  // of float accumulators: 128 KiB

}  // namespace

int64_t CountOf(std::span<const Range> ranges) {
  int64_t count = 0;
  for (const Range& range : ranges) count += range.end - range.begin;
  return count;
}

RangeCursor::RangeCursor(std::span<const Range> ranges)
    : ranges_(ranges), remaining_(CountOf(ranges)) {
  SkipEmpty();
}

void RangeCursor::SkipEmpty() {
  while (remaining_ > 0 && ranges_[current_].begin + offset_ == ranges_[current_].end) {
    ++current_;
    offset_ = 0;
  }
}

void RangeCursor::Advance(int64_t count) {
  while (count > 0) {
    const int64_t step = std::min(count, run());
    offset_ += step;
    remaining_ -= step;
    count -= step;
    SkipEmpty();
  }
}

void BytesSink::Take(const std::byte* data, int64_t bytes) {
  std::memcpy(target_.data(), data, static_cast<size_t>(bytes));
  Took(bytes);
}

std::span<std::byte> CopySink::Direct() {
  if (cursor_.done()) return {};
  return {base_ + cursor_.index() * element_bytes_ + split_,
          static_cast<size_t>(cursor_.run() * element_bytes_ - split_)};
}

void CopySink::Took(int64_t bytes) {
  split_ += bytes;
  cursor_.Advance(split_ / element_bytes_);
  split_ %= element_bytes_;
}

void CopySink::Take(const std::byte* data, int64_t bytes) {
  while (bytes > 0) {
    const std::span<std::byte> target = Direct();
    const int64_t n = std::min(bytes, static_cast<int64_t>(target.size()));
    std::memcpy(target.data(), data, static_cast<size_t>(n));
    Took(n);
    data += n;
    bytes -= n;
  }
}

OrderedReducer::OrderedReducer(ConstBuffer in, Buffer out, std::span<const Range> mine, int ranks,
                               int self)
    : dtype_(in.dtype),
      element_bytes_(static_cast<int64_t>(SizeOf(in.dtype))),
      in_(static_cast<const std::byte*>(in.data)),
      out_(static_cast<std::byte*>(out.data)),
      ranks_(ranks),
      self_(self),
      wide_(HasWideAccumulator(in.dtype)),
      total_(CountOf(mine)),
      cursors_(static_cast<size_t>(ranks), RangeCursor(mine)),
      done_(static_cast<size_t>(ranks), 0) {
  if (wide_) window_.resize(static_cast<size_t>(std::min(total_, kWindowElements)));
}

int64_t OrderedReducer::WindowEnd() const {
  return wide_ ? std::min(total_, window_begin_ + kWindowElements) : total_;
}

int64_t OrderedReducer::Room(int rank) const {
  const int before = rank - 1 == self_ ? rank - 2 : rank - 1;
  const int64_t limit = before < 0 ? WindowEnd() : done_[static_cast<size_t>(before)];
  return limit - done_[static_cast<size_t>(rank)];
}

void OrderedReducer::Add(int rank, const std::byte* data, int64_t count) {
  RangeCursor& cursor = cursors_[static_cast<size_t>(rank)];
  int64_t& done = done_[static_cast<size_t>(rank)];
  while (count > 0) {
    const int64_t piece = std::min({count, cursor.run(), kPieceElements});
    AddPiece(rank, cursor.index(), done, data, piece);
    cursor.Advance(piece);
    done += piece;
    data += piece * element_bytes_;
    count -= piece;
  }
  const int last = self_ == ranks_ - 1 ? ranks_ - 2 : ranks_ - 1;
  if (wide_ && rank == last && done == WindowEnd()) window_begin_ = done;
}

// Adds `count` elements of `rank` at `index` of the buffers, `position` of the flattened ranges;
// and this rank's own when it is their turn, while the piece is in the cache.
void OrderedReducer::AddPiece(int rank, int64_t index, int64_t position, const std::byte* data,
                              int64_t count) {
  std::byte* out = out_ + index * element_bytes_;
  const std::byte* own = in_ + index * element_bytes_;
  void* acc = wide_ ? static_cast<void*>(window_.data() + (position - window_begin_)) : out;
  if (self_ == 0 && rank == 1) Start(dtype_, acc, own, count);
  if (rank == 0) {
    Start(dtype_, acc, data, count);
  } else {
    Combine(dtype_, ReduceOp::kSum, acc, data, count);
  }
  if (rank + 1 == self_) Combine(dtype_, ReduceOp::kSum, acc, own, count);
  const int last = self_ == ranks_ - 1 ? ranks_ - 2 : ranks_ - 1;
  if (rank == last) Finish(dtype_, out, acc, count);
}

}  // namespace starling::comm
