// One rank as a process, for the tests that kill it. Speaks
// lines over its standard streams: prints its address, reads the group, then does as its mode says.
//
//   rank_process RANK tcp|shared SLOT_BYTES MODE
//     stdin   SIZE, then SIZE addresses, one a line
//     loop    all-reduces until a call fails; prints "ready" after the first one, then
//             "end CODE MONOTONIC_NS SUSPECTS…"
//     block   the same with a reduce-scatter of 8 MiB, whatever the others do
//     idle    is connected, prints "ready" and waits for the end of stdin
// STARLING_FAULT applies.
#include <time.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "starling/comm/fault.h"
#include "starling/comm/transport.h"

namespace starling::comm {
namespace {

int64_t MonotonicNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

absl::Status ReduceOnce(Communicator& rank) {
  float value = 1;
  const ReducePart part[] = {{{&value, 1, DType::kFloat32}, ReduceOp::kSum}};
  return rank.AllReduce(part, absl::Minutes(5));
}

absl::Status ScatterOnce(Communicator& rank) {
  const int64_t count = 2 << 20;
  const std::vector<float> in(count, 1.0f);
  std::vector<float> out(count);
  Layout layout;
  for (int64_t r = 0; r < rank.size(); ++r) {
    layout.push_back({{count * r / rank.size(), count * (r + 1) / rank.size()}});
  }
  return rank.ReduceScatter({in.data(), count, DType::kFloat32},
                            {out.data(), count, DType::kFloat32}, layout, absl::Minutes(5));
}

int UntilFailure(Communicator& rank, bool scatter) {
  bool first = true;
  while (true) {
    const absl::Status status = scatter && !first ? ScatterOnce(rank) : ReduceOnce(rank);
    const int64_t now = MonotonicNs();
    if (!status.ok()) {
      std::cout << "end " << static_cast<int>(status.code()) << " " << now;
      for (Rank suspect : rank.suspects()) std::cout << " " << suspect.value();
      std::cout << std::endl;
      return 0;
    }
    if (first) std::cout << "ready" << std::endl;
    first = false;
  }
}

int Main(int argc, char** argv) {
  if (argc < 5) return 64;
  const int rank = std::atoi(argv[1]);
  SocketTransportOptions options;
  options.shared_memory = std::string(argv[2]) == "shared";
  options.slot_bytes = std::atoll(argv[3]);
  auto transport = MakeSocketTransport(options);
  if (!transport.ok()) return 1;
  std::cout << (*transport)->address() << std::endl;
  size_t size = 0;
  std::cin >> size;
  GroupSpec spec;
  spec.run_id = "processes";
  spec.generation = Generation(1);
  spec.rank = Rank(rank);
  spec.secret = "secret";
  for (size_t peer = 0; peer < size; ++peer) {
    std::string address;
    std::cin >> address;
    spec.peers.push_back({Incarnation(1 + peer), address, "this-host"});
  }
  auto connected = (*transport)->Connect(spec, absl::Minutes(1), nullptr);
  if (!connected.ok()) {
    std::cerr << connected.status() << std::endl;
    return 1;
  }
  const char* fault_text = std::getenv("STARLING_FAULT");
  auto faults = ParseFaults(fault_text == nullptr ? "" : fault_text);
  if (!faults.ok()) return 78;
  const auto communicator = WithFaults(*std::move(connected), *faults);
  const std::string mode = argv[4];
  if (mode != "idle") return UntilFailure(*communicator, mode == "block");
  if (!ReduceOnce(*communicator).ok()) return 1;
  std::cout << "ready" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  return 0;
}

}  // namespace
}  // namespace starling::comm

int main(int argc, char** argv) { return starling::comm::Main(argc, argv); }
