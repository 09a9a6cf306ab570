#include "comm/ring.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "comm/control_stream.h"
#include "starling/base/status.h"

namespace starling::comm {

// Positions count bytes and never wrap; 0 ≤ head − tail ≤ capacity. Every field has its own cache
// line because the two ends write to different ones.
struct RingControl {
  alignas(64) std::atomic<uint64_t> head;            // written by the producer
  alignas(64) std::atomic<uint64_t> tail;            // written by the consumer
  alignas(64) std::atomic<uint32_t> reader_waiting;  // set by the consumer before it sleeps,
                                                     // cleared by whoever wakes it or by itself
  alignas(64) std::atomic<uint32_t> writer_waiting;  // likewise for the producer
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

namespace {

constexpr uint64_t kMagic = 0x31474e4952545353;  // "SSTRING1"
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

struct alignas(64) BlockHeader {
  uint64_t magic;
  int64_t capacity;
};

int64_t BlockBytes(int64_t capacity) {
  return static_cast<int64_t>(sizeof(BlockHeader) + 2 * sizeof(RingControl)) + 2 * capacity;
}

// The memory is zero already; this gives the objects in it their life.
void Construct(std::byte* base, int64_t capacity) {
  new (base) BlockHeader{kMagic, capacity};
  new (base + sizeof(BlockHeader)) RingControl[2]{};
}

absl::StatusOr<std::shared_ptr<std::byte>> Map(int fd, int64_t bytes) {
  void* memory =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "cannot map shared memory");
  return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory), [bytes](std::byte* base) {
    munmap(base, static_cast<size_t>(bytes));
  });
}

}  // namespace

int64_t RingCapacity(int64_t slot_bytes) {
  return 2 * ((std::max<int64_t>(slot_bytes, 1) + 63) / 64 * 64);
}

RingMemory AllocateRings(int64_t capacity) {
  const size_t bytes = static_cast<size_t>((BlockBytes(capacity) + 63) / 64 * 64);
  auto* base = static_cast<std::byte*>(std::aligned_alloc(64, bytes));
  if (base == nullptr) throw std::bad_alloc();
  std::memset(base, 0, sizeof(BlockHeader) + 2 * sizeof(RingControl));
  Construct(base, capacity);
  return {std::shared_ptr<std::byte>(base, [](std::byte* p) { std::free(p); }), capacity};
}

absl::StatusOr<RingMemory> CreateSharedRings(int64_t capacity, UniqueFd* memfd) {
  *memfd = UniqueFd(memfd_create("starling-comm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memfd->valid()) return ErrnoStatus(errno, "memfd_create");
  const int64_t bytes = BlockBytes(capacity);
  if (ftruncate(memfd->get(), bytes) != 0) return ErrnoStatus(errno, "cannot size shared memory");
  // Sealed, so that a peer cannot shrink it under our feet.
  if (fcntl(memfd->get(), F_ADD_SEALS, kSeals) != 0) return ErrnoStatus(errno, "F_ADD_SEALS");
  STARLING_ASSIGN_OR_RETURN(auto base, Map(memfd->get(), bytes));
  Construct(base.get(), capacity);
  return RingMemory{std::move(base), capacity};
}

absl::StatusOr<RingMemory> MapSharedRings(const UniqueFd& memfd) {
  struct stat info = {};
  if (fstat(memfd.get(), &info) != 0) return ErrnoStatus(errno, "fstat of shared memory");
  if (fcntl(memfd.get(), F_GET_SEALS) != kSeals || info.st_size < BlockBytes(0)) {
    return absl::DataLossError("the peer passed a descriptor that is not our shared memory");
  }
  STARLING_ASSIGN_OR_RETURN(auto base, Map(memfd.get(), info.st_size));
  const auto* header = reinterpret_cast<const BlockHeader*>(base.get());
  const int64_t capacity = header->capacity;
  if (header->magic != kMagic || capacity < 64 || capacity % 64 != 0 || capacity > info.st_size ||
      BlockBytes(capacity) != info.st_size) {
    return absl::DataLossError("the shared memory passed by the peer has a wrong header");
  }
  return RingMemory{std::move(base), capacity};
}

RingChannel::RingChannel(RingMemory memory, bool first, int control_fd)
    : memory_(std::move(memory)),
      control_fd_(control_fd),
      piece_(std::max<int64_t>(memory_.capacity / 8, 64)) {
  auto* rings = reinterpret_cast<RingControl*>(memory_.base.get() + sizeof(BlockHeader));
  std::byte* data = reinterpret_cast<std::byte*>(rings + 2);
  out_ = rings + (first ? 0 : 1);
  in_ = rings + (first ? 1 : 0);
  out_data_ = data + (first ? 0 : memory_.capacity);
  in_data_ = data + (first ? memory_.capacity : 0);
}

int64_t RingChannel::Write(const std::byte* data, int64_t bytes, bool /*more*/) {
  seen_tail_ = out_->tail.load(std::memory_order_acquire);
  const int64_t used = static_cast<int64_t>(written_ - seen_tail_);
  if (used < 0 || used > memory_.capacity) return kBroken;
  const int64_t total = std::min(bytes, memory_.capacity - used);
  for (int64_t done = 0; done < total;) {
    const int64_t at = static_cast<int64_t>(written_ % static_cast<uint64_t>(memory_.capacity));
    const int64_t n = std::min({total - done, memory_.capacity - at, piece_});
    std::memcpy(out_data_ + at, data + done, static_cast<size_t>(n));
    done += n;
    written_ += static_cast<uint64_t>(n);
    if (static_cast<int64_t>(written_ - published_) >= piece_) Publish();
  }
  return total;
}

void RingChannel::Flush() {
  if (written_ != published_) Publish();
}

// The stores and loads on both sides are sequentially consistent: either the consumer sees the new
// head when it re-checks in Arm, or we see its flag here.
void RingChannel::Publish() {
  published_ = written_;
  out_->head.store(written_, std::memory_order_seq_cst);
  if (out_->reader_waiting.load(std::memory_order_seq_cst) != 0 &&
      out_->reader_waiting.exchange(0, std::memory_order_seq_cst) != 0) {
    SendWake(control_fd_);
  }
}

void RingChannel::Release(int64_t bytes) {
  consumed_ += static_cast<uint64_t>(bytes);
  in_->tail.store(consumed_, std::memory_order_seq_cst);
  if (in_->writer_waiting.load(std::memory_order_seq_cst) != 0 &&
      in_->writer_waiting.exchange(0, std::memory_order_seq_cst) != 0) {
    SendWake(control_fd_);
  }
}

int64_t RingChannel::Read(Sink& sink, int64_t max_bytes) {
  seen_head_ = in_->head.load(std::memory_order_acquire);
  const int64_t available = static_cast<int64_t>(seen_head_ - consumed_);
  if (available < 0 || available > memory_.capacity) return kBroken;
  const int64_t granule = sink.granule();
  int64_t done = 0;
  while (done < std::min(available, max_bytes)) {
    const int64_t at = static_cast<int64_t>(consumed_ % static_cast<uint64_t>(memory_.capacity));
    int64_t n =
        std::min({available - done, max_bytes - done, memory_.capacity - at, piece_, sink.Room()});
    n -= n % granule;
    if (n == 0) break;
    sink.Take(in_data_ + at, n);
    Release(n);
    done += n;
  }
  return done;
}

bool RingChannel::Arm(bool read, bool write) {
  if (read) in_->reader_waiting.store(1, std::memory_order_seq_cst);
  if (write) out_->writer_waiting.store(1, std::memory_order_seq_cst);
  const bool news = (read && in_->head.load(std::memory_order_seq_cst) != seen_head_) ||
                    (write && out_->tail.load(std::memory_order_seq_cst) != seen_tail_);
  return !news;
}

void RingChannel::Disarm() {
  in_->reader_waiting.store(0, std::memory_order_relaxed);
  out_->writer_waiting.store(0, std::memory_order_relaxed);
}

}  // namespace starling::comm
