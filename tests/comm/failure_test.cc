// How a communicator ends: by Abort, by a peer that goes, at the deadline, by contradicting calls.
// Every wait in these tests would last a minute if nobody woke it.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "comm/world.h"
#include "starling/base/clock.h"

namespace starling::comm::testing {
namespace {

constexpr absl::Duration kAtOnce = absl::Seconds(5);  // ten times what a loaded machine needs

Backend AnyBackend() { return GENERATE(Backend::kThread, Backend::kTcp, Backend::kShared); }

absl::Status ReduceOne(Communicator& rank, int64_t value = 1) {
  const ReducePart part[] = {{{&value, 1, DType::kInt64}, ReduceOp::kSum}};
  return rank.AllReduce(part, kPatience);
}

// A call that blocks at least until every other rank has made it.
absl::Status BigReduceScatter(Communicator& rank) {
  const int64_t count = 1 << 20;
  std::vector<float> in(count, 1.0f);
  std::vector<float> out(count);
  Layout layout(static_cast<size_t>(rank.size()));
  for (int r = 0; r < rank.size(); ++r) {
    layout[static_cast<size_t>(r)] = {{count * r / rank.size(), count * (r + 1) / rank.size()}};
  }
  return rank.ReduceScatter({in.data(), count, DType::kFloat32},
                            {out.data(), count, DType::kFloat32}, layout, kPatience);
}

TEST_CASE("abort: wakes the blocked rank with Aborted and its peers with Unavailable", "[comm]") {
  const Backend backend = AnyBackend();
  CAPTURE(Name(backend));
  World world(backend, 3);
  std::atomic<bool> blocked = false;
  absl::Status aborted;
  absl::Status peer;
  const absl::Time begin = SystemClock::Get().Now();
  std::thread first([&] {
    blocked = true;
    aborted = BigReduceScatter(world[0]);
  });
  std::thread second([&] { peer = BigReduceScatter(world[1]); });
  while (!blocked) std::this_thread::yield();
  world[0].Abort("the view changed");
  first.join();
  second.join();
  CHECK(SystemClock::Get().Now() - begin < kAtOnce);
  CHECK(absl::IsAborted(aborted));
  CHECK(std::string(aborted.message()).find("the view changed") != std::string::npos);
  CHECK(absl::IsUnavailable(peer));
  CHECK(world[0].suspects().empty());
  CHECK(world[1].suspects() == std::vector<Rank>{Rank(0)});
  CHECK(absl::IsUnavailable(BigReduceScatter(world[2])));  // was not in the call: now it is told
}

TEST_CASE("abort: is final, idempotent and works on a group of one", "[comm]") {
  const Backend backend = AnyBackend();
  World world(backend, 1);
  CHECK(ReduceOne(world[0]).ok());
  world[0].Abort("first");
  world[0].Abort("second");
  const absl::Status status = world[0].Barrier(kPatience);
  CHECK(absl::IsAborted(status));
  CHECK(std::string(status.message()).find("first") != std::string::npos);
}

TEST_CASE("abort: from many threads while calls run, no rank hangs", "[comm]") {
  const Backend backend = AnyBackend();
  for (int round = 0; round < 20; ++round) {
    World world(backend, 3);
    std::thread aborter([&] {
      for (int i = 0; i < round; ++i) std::this_thread::yield();
      world[round % 3].Abort("race");
    });
    const auto statuses = world.Run([](Communicator& rank) {
      while (true) {
        if (absl::Status status = ReduceOne(rank); !status.ok()) return status;
      }
    });
    aborter.join();
    for (int rank = 0; rank < 3; ++rank) {
      const absl::Status& status = statuses[static_cast<size_t>(rank)];
      INFO(std::string(status.message()));
      CHECK((rank == round % 3 ? absl::IsAborted(status) : absl::IsUnavailable(status)));
    }
  }
}

TEST_CASE("peer: one that goes without the call leaves all others Unavailable, and is the suspect",
          "[comm]") {
  const Backend backend = AnyBackend();
  CAPTURE(Name(backend));
  World world(backend, 4);
  const absl::Time begin = SystemClock::Get().Now();
  const auto statuses = OnAllRanks(4, [&](int rank) {
    if (rank == 2) {
      world.ranks[2].reset();
      return absl::OkStatus();
    }
    return BigReduceScatter(world[rank]);
  });
  CHECK(SystemClock::Get().Now() - begin < kAtOnce);
  for (int rank : {0, 1, 3}) {
    INFO(std::string(statuses[static_cast<size_t>(rank)].message()));
    CHECK(absl::IsUnavailable(statuses[static_cast<size_t>(rank)]));
    CHECK(world[rank].suspects() == std::vector<Rank>{Rank(2)});
    CHECK(absl::IsUnavailable(ReduceOne(world[rank])));  // dead for good
  }
}

TEST_CASE("peer: one that has finished its part may go while others still work", "[comm]") {
  const Backend backend = AnyBackend();
  for (int round = 0; round < 30; ++round) {
    World world(backend, 4);
    const auto statuses = OnAllRanks(4, [&](int rank) {
      const absl::Status status = ReduceOne(world[rank]);
      world.ranks[static_cast<size_t>(rank)].reset();
      return status;
    });
    for (const absl::Status& status : statuses) {
      INFO(std::string(status.message()));
      CHECK(status.ok());
    }
  }
}

TEST_CASE("peer: the last words of one that goes are still received", "[comm]") {
  const Backend backend = AnyBackend();
  World world(backend, 2);
  int64_t value = 42;
  REQUIRE(world[0].Send({&value, 1, DType::kInt64}, Rank(1), kPatience).ok());
  world.ranks[0].reset();
  int64_t received = 0;
  CHECK(world[1].Receive({&received, 1, DType::kInt64}, Rank(0), kPatience).ok());
  CHECK(received == 42);
  CHECK(absl::IsUnavailable(world[1].Receive({&received, 1, DType::kInt64}, Rank(0), kPatience)));
}

TEST_CASE("deadline: a peer that does not come makes the call DeadlineExceeded", "[comm]") {
  const Backend backend = AnyBackend();
  World world(backend, 3);
  const auto statuses = OnAllRanks(3, [&](int rank) {
    if (rank == 1) return absl::OkStatus();
    return world[rank].Barrier(rank == 0 ? absl::Milliseconds(50) : kPatience);
  });
  CHECK(absl::IsDeadlineExceeded(statuses[0]));
  CHECK(world[0].suspects() == std::vector<Rank>{Rank(1)});
  CHECK(absl::IsUnavailable(statuses[2]));  // rank 0's communicator is dead, and it says why
  CHECK(world[2].suspects() == std::vector<Rank>{Rank(1)});
}

TEST_CASE("mismatch: ranks that make different calls get DataLoss, not garbage", "[comm]") {
  const Backend backend = AnyBackend();
  World world(backend, 2);
  float values[8] = {};
  const auto statuses = OnAllRanks(2, [&](int rank) {
    if (rank == 0) return world[0].Broadcast({values, 3, DType::kFloat32}, Rank(0), kPatience);
    float target[4] = {};
    return world[1].Broadcast({target, 4, DType::kFloat32}, Rank(0), kPatience);
  });
  CHECK(statuses[0].ok());
  CHECK(absl::IsDataLoss(statuses[1]));
  INFO(std::string(statuses[1].message()));
  CHECK(std::string(statuses[1].message()).find("rank 0") != std::string::npos);
}

TEST_CASE("arguments: wrong ones are InvalidArgument and end the communicator", "[comm]") {
  const Backend backend = AnyBackend();
  float values[4] = {};
  const Buffer buffer = {values, 4, DType::kFloat32};
  SECTION("layout of another size") {
    World world(backend, 2);
    CHECK(absl::IsInvalidArgument(world[0].AllGather(buffer, Layout(3), kPatience)));
    CHECK(absl::IsInvalidArgument(world[0].Barrier(kPatience)));
  }
  SECTION("range outside the buffer") {
    World world(backend, 2);
    CHECK(absl::IsInvalidArgument(world[0].AllGather(buffer, {{{0, 5}}, {}}, kPatience)));
  }
  SECTION("or of floats") {
    World world(backend, 1);
    const ReducePart part[] = {{buffer, ReduceOp::kOr}};
    CHECK(absl::IsInvalidArgument(world[0].AllReduce(part, kPatience)));
  }
  SECTION("sending to oneself") {
    World world(backend, 2);
    CHECK(absl::IsInvalidArgument(world[1].Send(buffer, Rank(1), kPatience)));
  }
}

}  // namespace
}  // namespace starling::comm::testing
