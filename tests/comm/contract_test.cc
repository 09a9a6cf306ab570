// The contract of Communicator, for every backend × group size × count × type: results are exact,
// floats are added in rank order, what lies outside the layout stays untouched, and no more bytes
// move than the algorithm needs.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cmath>
#include <cstring>

#include "comm/world.h"
#include "starling/base/rng.h"

namespace starling::comm::testing {
namespace {

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16,
                            DType::kInt32,   DType::kInt64,   DType::kUint8,    DType::kUint64};
using Bytes = std::vector<char>;

uint16_t SmallIntAsHalf(int value) {  // exact for 0 … 2048
  if (value == 0) return 0;
  const int exponent = std::ilogb(value);
  return static_cast<uint16_t>(((exponent + 15) << 10) +
                               std::lround(std::ldexp(value, 10 - exponent)) - 1024);
}

template <typename T>
void Set(Bytes& bytes, int64_t index, T value) {
  std::memcpy(bytes.data() + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

// A pseudo-random float whose sums depend on the order of addition.
double Scattered(int rank, int64_t index) {
  const uint64_t mixed =
      Mix64(static_cast<uint64_t>(rank) * 1000003 + static_cast<uint64_t>(index));
  return std::ldexp(static_cast<double>(mixed % 2000001) - 1000000, static_cast<int>(mixed >> 60));
}
int SmallInt(int rank, int64_t index) { return static_cast<int>((index * 7 + rank * 3) % 19); }

// Rank `rank`'s element; with ranks > 1 the sum of the first `ranks` ranks, added in order.
void SetSum(Bytes& bytes, DType type, int64_t index, int first, int ranks) {
  float sum32 = 0;
  double sum64 = 0;
  int small = 0;
  uint64_t wide = 0;
  for (int rank = first; rank < first + ranks; ++rank) {
    const double value = Scattered(rank, index);
    sum32 = rank == first ? static_cast<float>(value) : sum32 + static_cast<float>(value);
    sum64 = rank == first ? value * 1.1 : sum64 + value * 1.1;
    small += SmallInt(rank, index);
    wide += Mix64(static_cast<uint64_t>(rank) + static_cast<uint64_t>(index));  // wraps around
  }
  switch (type) {
    case DType::kFloat32:
      return Set(bytes, index, sum32);
    case DType::kFloat64:
      return Set(bytes, index, sum64);
    case DType::kBFloat16: {
      const float exact = static_cast<float>(small);
      uint32_t bits = 0;
      std::memcpy(&bits, &exact, sizeof(bits));
      return Set(bytes, index, static_cast<uint16_t>(bits >> 16));
    }
    case DType::kFloat16:
      return Set(bytes, index, SmallIntAsHalf(small));
    case DType::kInt32:
      return Set(bytes, index, static_cast<int32_t>(wide));
    case DType::kInt64:
    case DType::kUint64:
      return Set(bytes, index, wide);
    case DType::kUint8:
      return Set(bytes, index, static_cast<uint8_t>(wide));
  }
}

Bytes InputOf(DType type, int rank, int64_t count) {
  Bytes bytes(static_cast<size_t>(count) * SizeOf(type));
  for (int64_t i = 0; i < count; ++i) SetSum(bytes, type, i, rank, 1);
  return bytes;
}

// Uneven: rank 0 owns little and the last rank nothing (when there are three or more); each rank's
// part lies in several ranges, an empty one among them, and gaps of padding belong to nobody.
Layout UnevenLayout(int ranks, int64_t count) {
  Layout layout(static_cast<size_t>(ranks));
  const int owners = ranks >= 3 ? ranks - 1 : ranks;
  int64_t begin = 0;
  for (int piece = 0; begin < count; ++piece) {
    const int owner = piece % owners;
    const int64_t length = std::min<int64_t>(count - begin, owner == 0 ? 3 : 701 + piece);
    auto& ranges = layout[static_cast<size_t>(owner)];
    ranges.push_back({begin, begin + length});
    ranges.push_back({begin + length, begin + length});
    begin += length + piece % 3;
  }
  return layout;
}

struct Case {
  Backend backend;
  int size;
  int64_t count;
};

Case AnyCase() {
  const Backend backend = GENERATE(Backend::kThread, Backend::kTcp, Backend::kShared);
  const int size = GENERATE(1, 2, 3, 4, 7);
  const int64_t count = GENERATE(0, 1, 1001, 9999);
  return {backend, size, count};
}

void CheckOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& status : statuses) {
    INFO(std::string(status.message()));
    CHECK(status.ok());
  }
}

TEST_CASE("communicator: reduce-scatter sums own ranges in rank order, touches nothing else",
          "[comm]") {
  const Case c = AnyCase();
  CAPTURE(Name(c.backend), c.size, c.count);
  World world(c.backend, c.size);
  const Layout layout = UnevenLayout(c.size, c.count);
  for (DType type : kTypes) {
    CAPTURE(std::string(DTypeName(type)));
    std::vector<Bytes> results(static_cast<size_t>(c.size));
    CheckOk(world.Run([&](Communicator& rank) {
      const Bytes in = InputOf(type, rank.rank().value(), c.count);
      Bytes& out = results[static_cast<size_t>(rank.rank().value())];
      out.assign(in.size(), '\x5a');
      return rank.ReduceScatter({in.data(), c.count, type}, {out.data(), c.count, type}, layout,
                                kPatience);
    }));
    for (int rank = 0; rank < c.size; ++rank) {
      Bytes expected(static_cast<size_t>(c.count) * SizeOf(type), '\x5a');
      for (const Range& range : layout[static_cast<size_t>(rank)]) {
        for (int64_t i = range.begin; i < range.end; ++i) SetSum(expected, type, i, 0, c.size);
      }
      CHECK(results[static_cast<size_t>(rank)] == expected);
    }
  }
}

TEST_CASE("communicator: all-gather puts every rank's ranges everywhere", "[comm]") {
  const Case c = AnyCase();
  CAPTURE(Name(c.backend), c.size, c.count);
  World world(c.backend, c.size);
  const Layout layout = UnevenLayout(c.size, c.count);
  for (DType type : {DType::kFloat32, DType::kUint8, DType::kInt64, DType::kBFloat16}) {
    std::vector<Bytes> results(static_cast<size_t>(c.size));
    CheckOk(world.Run([&](Communicator& rank) {
      Bytes& buffer = results[static_cast<size_t>(rank.rank().value())];
      buffer = InputOf(type, rank.rank().value(), c.count);
      return rank.AllGather({buffer.data(), c.count, type}, layout, kPatience);
    }));
    for (int rank = 0; rank < c.size; ++rank) {
      Bytes expected = InputOf(type, rank, c.count);  // padding keeps its own
      for (int owner = 0; owner < c.size; ++owner) {
        for (const Range& range : layout[static_cast<size_t>(owner)]) {
          for (int64_t i = range.begin; i < range.end; ++i) SetSum(expected, type, i, owner, 1);
        }
      }
      CHECK(results[static_cast<size_t>(rank)] == expected);
    }
  }
}

TEST_CASE("communicator: all-reduce of several parts is exact and the same on all ranks",
          "[comm]") {
  const Case c = AnyCase();
  CAPTURE(Name(c.backend), c.size, c.count);
  World world(c.backend, c.size);
  std::vector<std::vector<Bytes>> results(static_cast<size_t>(c.size));
  std::vector<std::vector<uint64_t>> extremes(static_cast<size_t>(c.size));
  CheckOk(world.Run([&](Communicator& rank) {
    const int self = rank.rank().value();
    auto& mine = results[static_cast<size_t>(self)];
    std::vector<ReducePart> parts;
    mine.reserve(std::size(kTypes));
    for (DType type : kTypes) {
      Bytes& buffer = mine.emplace_back(InputOf(type, self, c.count));
      parts.push_back({{buffer.data(), c.count, type}, ReduceOp::kSum});
    }
    auto& extreme = extremes[static_cast<size_t>(self)];
    extreme = {uint64_t{1} << self, static_cast<uint64_t>(self * 10)};
    parts.push_back({{&extreme[0], 1, DType::kUint64}, ReduceOp::kOr});
    parts.push_back({{&extreme[1], 1, DType::kUint64}, ReduceOp::kMax});
    return rank.AllReduce(parts, kPatience);
  }));
  for (int rank = 0; rank < c.size; ++rank) {
    for (size_t t = 0; t < std::size(kTypes); ++t) {
      CAPTURE(rank, std::string(DTypeName(kTypes[t])));
      Bytes expected(static_cast<size_t>(c.count) * SizeOf(kTypes[t]));
      for (int64_t i = 0; i < c.count; ++i) SetSum(expected, kTypes[t], i, 0, c.size);
      CHECK(results[static_cast<size_t>(rank)][t] == expected);
    }
    CHECK(extremes[static_cast<size_t>(rank)][0] == (uint64_t{1} << c.size) - 1);
    CHECK(extremes[static_cast<size_t>(rank)][1] == static_cast<uint64_t>(c.size - 1) * 10);
  }
}

TEST_CASE("communicator: broadcast, barrier and point-to-point deliver in order", "[comm]") {
  const Case c = AnyCase();
  CAPTURE(Name(c.backend), c.size, c.count);
  World world(c.backend, c.size);
  const int root = c.size - 1;
  std::vector<Bytes> results(static_cast<size_t>(c.size));
  std::vector<std::vector<Bytes>> passed(static_cast<size_t>(c.size));
  CheckOk(world.Run([&](Communicator& rank) -> absl::Status {
    const int self = rank.rank().value();
    Bytes& buffer = results[static_cast<size_t>(self)];
    buffer = InputOf(DType::kFloat32, self, c.count);
    absl::Status status =
        rank.Broadcast({buffer.data(), c.count, DType::kFloat32}, Rank(root), kPatience);
    if (!status.ok()) return status;
    status = rank.Barrier(kPatience);
    // A chain: every rank passes two messages on to the next.
    for (int i = 0; i < 2 && status.ok(); ++i) {
      Bytes& message =
          passed[static_cast<size_t>(self)].emplace_back(InputOf(DType::kInt32, 50 + i, c.count));
      if (self > 0) {
        std::fill(message.begin(), message.end(), 0);
        status = rank.Receive({message.data(), c.count, DType::kInt32}, Rank(self - 1), kPatience);
      }
      if (status.ok() && self + 1 < c.size) {
        status = rank.Send({message.data(), c.count, DType::kInt32}, Rank(self + 1), kPatience);
      }
    }
    return status.ok() ? rank.Barrier(kPatience) : status;
  }));
  for (int rank = 0; rank < c.size; ++rank) {
    CHECK(results[static_cast<size_t>(rank)] == InputOf(DType::kFloat32, root, c.count));
    for (int i = 0; i < 2; ++i) {
      CHECK(passed[static_cast<size_t>(rank)][static_cast<size_t>(i)] ==
            InputOf(DType::kInt32, 50 + i, c.count));
    }
  }
}

TEST_CASE("communicator: more than eight ranks take the sparse algorithms to the same results",
          "[comm]") {
  const Backend backend = GENERATE(Backend::kThread, Backend::kShared);
  const int size = 10;
  const int64_t count = 50001;  // above the limit for a flat broadcast
  World world(backend, size);
  std::vector<Bytes> sums(size);
  std::vector<Bytes> copies(size);
  CheckOk(world.Run([&](Communicator& rank) -> absl::Status {
    const size_t self = static_cast<size_t>(rank.rank().value());
    sums[self] = InputOf(DType::kFloat32, rank.rank().value(), 77);
    copies[self] = InputOf(DType::kInt32, rank.rank().value(), count);
    const ReducePart part[] = {{{sums[self].data(), 77, DType::kFloat32}, ReduceOp::kSum}};
    absl::Status status = rank.AllReduce(part, kPatience);
    status.Update(rank.Broadcast({copies[self].data(), count, DType::kInt32}, Rank(3), kPatience));
    status.Update(rank.Barrier(kPatience));
    return status;
  }));
  Bytes expected(77 * sizeof(float));
  for (int64_t i = 0; i < 77; ++i) SetSum(expected, DType::kFloat32, i, 0, size);
  for (size_t rank = 0; rank < size; ++rank) {
    CHECK(sums[rank] == expected);
    CHECK(copies[rank] == InputOf(DType::kInt32, 3, count));
  }
}

TEST_CASE("communicator: traffic is (n-1)/n of the buffer in each direction", "[comm]") {
  const Backend backend = GENERATE(Backend::kThread, Backend::kTcp, Backend::kShared);
  const int size = 4;
  const int64_t count = 4000;
  World world(backend, size);
  Layout layout;
  for (int64_t rank = 0; rank < size; ++rank) layout.push_back({{rank * 1000, (rank + 1) * 1000}});
  CheckOk(world.Run([&](Communicator& rank) -> absl::Status {
    std::vector<float> in(count, 1.0f);
    std::vector<float> out(count);
    absl::Status status =
        rank.ReduceScatter({in.data(), count, DType::kFloat32},
                           {out.data(), count, DType::kFloat32}, layout, kPatience);
    status.Update(rank.AllGather({out.data(), count, DType::kFloat32}, layout, kPatience));
    if (status.ok() && out != std::vector<float>(count, 4.0f)) return absl::DataLossError("sum");
    return status;
  }));
  for (int rank = 0; rank < size; ++rank) {
    CHECK(world[rank].traffic().bytes_sent == 2 * 3000 * sizeof(float));
    CHECK(world[rank].traffic().bytes_received == 2 * 3000 * sizeof(float));
  }
}

TEST_CASE("communicator: many calls in a row with ranks of different speed stay matched",
          "[comm]") {
  const Backend backend = GENERATE(Backend::kThread, Backend::kTcp, Backend::kShared);
  World world(backend, 3);
  CheckOk(world.Run([&](Communicator& rank) -> absl::Status {
    for (int64_t call = 0; call < 300; ++call) {
      int64_t value = call * (rank.rank().value() + 1);
      const ReducePart part[] = {{{&value, 1, DType::kInt64}, ReduceOp::kSum}};
      if (absl::Status status = rank.AllReduce(part, kPatience); !status.ok()) return status;
      if (value != call * 6) return absl::DataLossError("wrong sum");
      if (call % 7 == rank.rank().value()) std::this_thread::yield();
    }
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace starling::comm::testing
