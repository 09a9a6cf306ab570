// A group of ranks in one process, one thread each, over any backend. Catch's assertions are not
// thread-safe, so ranks return statuses and the test asserts on them afterwards.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "starling/comm/transport.h"

namespace starling::comm::testing {

enum class Backend { kThread, kTcp, kShared };

inline const char* Name(Backend backend) {
  switch (backend) {
    case Backend::kThread:
      return "thread";
    case Backend::kTcp:
      return "tcp";
    case Backend::kShared:
      return "shared";
  }
  return "?";
}

constexpr absl::Duration kPatience = absl::Seconds(60);  // far above what any call here needs
constexpr int64_t kSlotBytes = 1024;

inline std::vector<std::unique_ptr<Transport>> MakeTransports(Backend backend, int size) {
  std::vector<std::unique_ptr<Transport>> transports;
  const auto hub = MakeThreadHub();
  for (int rank = 0; rank < size; ++rank) {
    if (backend == Backend::kThread) {
      transports.push_back(MakeThreadTransport(hub, absl::StrCat("thread-", rank)));
      continue;
    }
    SocketTransportOptions options;
    options.shared_memory = backend == Backend::kShared;
    options.slot_bytes = kSlotBytes;
    auto transport = MakeSocketTransport(options);
    if (!transport.ok()) std::abort();
    transports.push_back(*std::move(transport));
  }
  return transports;
}

inline GroupSpec SpecOf(const std::vector<std::unique_ptr<Transport>>& transports, int rank,
                        uint64_t generation = 1) {
  GroupSpec spec;
  spec.run_id = "run";
  spec.generation = Generation(generation);
  spec.rank = Rank(rank);
  spec.secret = "secret of the generation";
  for (size_t peer = 0; peer < transports.size(); ++peer) {
    spec.peers.push_back({Incarnation(100 + peer), transports[peer]->address(), "this-host"});
  }
  return spec;
}

// Runs `body(rank)` on a thread for each rank and returns what they returned.
inline std::vector<absl::Status> OnAllRanks(int size,
                                            const std::function<absl::Status(int)>& body) {
  std::vector<absl::Status> statuses(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { statuses[static_cast<size_t>(rank)] = body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

struct World {
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::unique_ptr<Communicator>> ranks;

  World(Backend backend, int size, uint64_t generation = 1)
      : transports(MakeTransports(backend, size)), ranks(static_cast<size_t>(size)) {
    const auto statuses = OnAllRanks(size, [&](int rank) {
      auto connected = transports[static_cast<size_t>(rank)]->Connect(
          SpecOf(transports, rank, generation), kPatience, nullptr);
      if (!connected.ok()) return connected.status();
      ranks[static_cast<size_t>(rank)] = *std::move(connected);
      return absl::OkStatus();
    });
    for (const absl::Status& status : statuses) {
      if (!status.ok()) throw std::runtime_error(std::string(status.message()));
    }
  }

  int size() const { return static_cast<int>(ranks.size()); }
  Communicator& operator[](int rank) { return *ranks[static_cast<size_t>(rank)]; }
  std::vector<absl::Status> Run(const std::function<absl::Status(Communicator&)>& body) {
    return OnAllRanks(size(), [&](int rank) { return body((*this)[rank]); });
  }
};

}  // namespace starling::comm::testing
