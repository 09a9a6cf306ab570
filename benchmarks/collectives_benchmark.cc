// Speed of the collectives between processes of one host, over shared memory and over TCP.
//
//   collectives_benchmark [RANKS]       2 by default
//
// Starts itself as RANKS processes for each path and prints, from rank 0: for buffers of 4, 16 and
// 64 MB of float32, the time of a reduce-scatter followed by an all-gather and the bus bandwidth,
// 2 (n−1)/n · bytes / time (what each rank sends, which it also receives); then the median time of
// a small all-reduce (64 floats) and of a barrier.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "starling/base/clock.h"
#include "starling/comm/transport.h"

extern char** environ;

namespace starling::comm {
namespace {

constexpr absl::Duration kTimeout = absl::Minutes(2);
constexpr int kAddressBytes = 64;

void CheckOk(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// Median seconds of `call`, which all ranks make.
double Median(int repeats, const std::function<absl::Status()>& call) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const absl::Time begin = SystemClock::Get().Now();
    CheckOk(call());
    seconds.push_back(absl::ToDoubleSeconds(SystemClock::Get().Now() - begin));
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

void MeasureLarge(Communicator& rank, const char* path, int64_t megabytes) {
  const int64_t count = megabytes * 250000;
  const int64_t n = rank.size();
  const std::vector<float> in(static_cast<size_t>(count), 1.0f);
  std::vector<float> out(static_cast<size_t>(count));
  Layout layout;
  for (int64_t r = 0; r < n; ++r) layout.push_back({{count * r / n, count * (r + 1) / n}});
  const Buffer buffer = {out.data(), count, DType::kFloat32};
  const double seconds = Median(static_cast<int>(256 / megabytes) + 5, [&] {
    absl::Status status =
        rank.ReduceScatter({in.data(), count, DType::kFloat32}, buffer, layout, kTimeout);
    status.Update(rank.AllGather(buffer, layout, kTimeout));
    return status;
  });
  if (rank.rank() != Rank(0)) return;
  const double moved = 2.0 * static_cast<double>((n - 1) * count * 4) / static_cast<double>(n);
  std::printf("%-7s reduce-scatter + all-gather  %3lld MB  %8.2f ms  %6.2f GB/s\n", path,
              static_cast<long long>(megabytes), seconds * 1e3, moved / seconds / 1e9);
}

void MeasureSmall(Communicator& rank, const char* path) {
  std::vector<float> values(64, 1.0f);
  const ReducePart part[] = {{{values.data(), 64, DType::kFloat32}, ReduceOp::kMax}};
  const double reduce = Median(2000, [&] { return rank.AllReduce(part, kTimeout); });
  const double barrier = Median(2000, [&] { return rank.Barrier(kTimeout); });
  if (rank.rank() != Rank(0)) return;
  std::printf("%-7s all-reduce of 64 floats %6.1f us   barrier %6.1f us\n", path, reduce * 1e6,
              barrier * 1e6);
}

// One rank: says its address on standard output's pipe `out_fd`, reads all from `in_fd`.
int RankMain(int self, int size, const std::string& path, int in_fd, int out_fd) {
  SocketTransportOptions options;
  options.shared_memory = path == "shared";
  auto transport = MakeSocketTransport(options);
  CheckOk(transport.status());
  char address[kAddressBytes] = {};
  std::strncpy(address, (*transport)->address().c_str(), sizeof(address) - 1);
  if (write(out_fd, address, sizeof(address)) != sizeof(address)) return 1;
  GroupSpec spec;
  spec.run_id = "benchmark";
  spec.generation = Generation(1);
  spec.rank = Rank(self);
  spec.secret = "secret";
  for (int peer = 0; peer < size; ++peer) {
    if (read(in_fd, address, sizeof(address)) != sizeof(address)) return 1;
    spec.peers.push_back({Incarnation(static_cast<uint64_t>(peer) + 1), address, "this-host"});
  }
  auto communicator = (*transport)->Connect(spec, kTimeout, nullptr);
  CheckOk(communicator.status());
  for (int64_t megabytes : {4, 16, 64}) MeasureLarge(**communicator, path.c_str(), megabytes);
  MeasureSmall(**communicator, path.c_str());
  return 0;
}

// Runs the ranks of one path; whether all succeeded.
bool RunGroup(const char* self, int size, const std::string& path) {
  std::vector<pid_t> pids;
  std::vector<int> to;
  std::string addresses;
  for (int rank = 0; rank < size; ++rank) {
    int in[2];
    int out[2];
    if (pipe(in) != 0 || pipe(out) != 0) return false;
    fcntl(in[1], F_SETFD, FD_CLOEXEC);
    std::vector<std::string> words = {self, absl::StrCat(rank),  absl::StrCat(size),
                                      path, absl::StrCat(in[0]), absl::StrCat(out[1])};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t pid = -1;
    if (posix_spawn(&pid, self, nullptr, nullptr, argv.data(), environ) != 0) return false;
    close(in[0]);
    close(out[1]);
    char address[kAddressBytes];
    if (read(out[0], address, sizeof(address)) != sizeof(address)) return false;
    addresses.append(address, sizeof(address));
    close(out[0]);
    pids.push_back(pid);
    to.push_back(in[1]);
  }
  bool good = true;
  for (int fd : to) {
    good &= write(fd, addresses.data(), addresses.size()) == static_cast<ssize_t>(addresses.size());
    close(fd);
  }
  for (pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    good &= status == 0;
  }
  return good;
}

}  // namespace
}  // namespace starling::comm

int main(int argc, char** argv) {
  using starling::comm::RankMain;
  using starling::comm::RunGroup;
  if (argc == 6) {
    return RankMain(std::atoi(argv[1]), std::atoi(argv[2]), argv[3], std::atoi(argv[4]),
                    std::atoi(argv[5]));
  }
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  if (ranks < 2) {
    std::fprintf(stderr, "usage: %s [RANKS], with at least 2\n", argv[0]);
    return 64;
  }
  const bool good =
      RunGroup("/proc/self/exe", ranks, "shared") && RunGroup("/proc/self/exe", ranks, "tcp");
  return good ? 0 : 1;
}
