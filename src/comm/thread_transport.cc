// Ranks as threads of one process. The communicators are the same as between processes on one host
// (rings and UNIX sockets); only the meeting is simpler: the last member to come makes all links.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/mesh.h"
#include "comm/mesh_communicator.h"
#include "comm/ring.h"
#include "starling/base/clock.h"
#include "starling/base/status.h"
#include "starling/comm/transport.h"

namespace starling::comm {
namespace {

constexpr int64_t kSlotBytes = 1 << 16;

// Those who want one generation. Guarded by the hub's mutex. Dropped when all have given up; a
// complete one stays, so that a ghost that comes for it later is refused.
struct Meeting {
  GroupSpec spec;                        // of the first to come; the others must agree
  std::vector<bool> present;             // by rank; cleared when the rank gives up
  std::vector<std::vector<Link>> links;  // by rank, once all are present
  absl::Status status;                   // why the links could not be made
  bool complete = false;                 // set once; the ranks then take their links
};

// Both ends of the link between `lower` and `higher`.
absl::Status MakePair(Link* lower, Link* higher) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
    return ErrnoStatus(errno, "socketpair");
  }
  lower->control = ControlStream(UniqueFd(fds[0]));
  higher->control = ControlStream(UniqueFd(fds[1]));
  const RingMemory memory = AllocateRings(RingCapacity(kSlotBytes));
  lower->channel = std::make_unique<RingChannel>(memory, true, fds[0]);
  higher->channel = std::make_unique<RingChannel>(memory, false, fds[1]);
  return absl::OkStatus();
}

absl::Status MakeLinks(size_t size, std::vector<std::vector<Link>>* links) {
  links->clear();
  for (size_t rank = 0; rank < size; ++rank) links->emplace_back(size);
  for (size_t low = 0; low < size; ++low) {
    for (size_t high = low + 1; high < size; ++high) {
      STARLING_RETURN_IF_ERROR(MakePair(&(*links)[low][high], &(*links)[high][low]));
    }
  }
  return absl::OkStatus();
}

bool SameGroup(const GroupSpec& a, const GroupSpec& b) {
  const auto same_peer = [](const Peer& x, const Peer& y) {
    return x.incarnation == y.incarnation && x.address == y.address;
  };
  return a.secret == b.secret &&
         std::equal(a.peers.begin(), a.peers.end(), b.peers.begin(), b.peers.end(), same_peer);
}

}  // namespace

class ThreadHub {
 public:
  absl::StatusOr<std::unique_ptr<Communicator>> Meet(const GroupSpec& spec, absl::Time deadline,
                                                     const Generation* cancelled,
                                                     std::vector<Rank>* unreachable);
  // Raises `*cancelled`, a transport's field that this hub's mutex guards.
  void Cancel(Generation* cancelled, Generation generation) {
    absl::MutexLock lock(&mutex_);
    *cancelled = std::max(*cancelled, generation);
  }

 private:
  using Key = std::pair<std::string, Generation>;  // run id, generation

  absl::Status Join(const GroupSpec& spec, std::shared_ptr<Meeting>* meeting)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  std::map<Key, std::shared_ptr<Meeting>> meetings_ ABSL_GUARDED_BY(mutex_);
};

absl::Status ThreadHub::Join(const GroupSpec& spec, std::shared_ptr<Meeting>* meeting) {
  std::shared_ptr<Meeting>& found = meetings_[{spec.run_id, spec.generation}];
  if (found == nullptr) {
    found = std::make_shared<Meeting>();
    found->spec = spec;
    found->present.resize(spec.peers.size());
  }
  *meeting = found;
  const size_t rank = static_cast<size_t>(spec.rank.value());
  if (found->complete || !SameGroup(found->spec, spec) || found->present[rank]) {
    return absl::PermissionDeniedError(absl::StrCat("generation ", spec.generation.value(),
                                                    ": the others expect another group, or rank ",
                                                    rank, " is taken"));
  }
  found->present[rank] = true;
  if (std::all_of(found->present.begin(), found->present.end(), [](bool p) { return p; })) {
    found->status = MakeLinks(found->present.size(), &found->links);
    found->complete = true;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Communicator>> ThreadHub::Meet(const GroupSpec& spec,
                                                              absl::Time deadline,
                                                              const Generation* cancelled,
                                                              std::vector<Rank>* unreachable) {
  const auto cancel = [&] { return *cancelled >= spec.generation; };
  std::shared_ptr<Meeting> meeting;
  absl::MutexLock lock(&mutex_);
  if (cancel()) return absl::AbortedError("the connect was cancelled");
  STARLING_RETURN_IF_ERROR(Join(spec, &meeting));
  const auto over = [&] { return meeting->complete || cancel(); };
  mutex_.AwaitWithTimeout(absl::Condition(&over), deadline - SystemClock::Get().Now());
  const size_t rank = static_cast<size_t>(spec.rank.value());
  if (!meeting->complete) {
    meeting->present[rank] = false;
    for (size_t peer = 0; peer < meeting->present.size() && unreachable != nullptr; ++peer) {
      if (!cancel() && peer != rank && !meeting->present[peer]) {
        unreachable->push_back(Rank(static_cast<int32_t>(peer)));
      }
    }
    if (std::none_of(meeting->present.begin(), meeting->present.end(), [](bool p) { return p; })) {
      meetings_.erase({spec.run_id, spec.generation});
    }
    return cancel() ? absl::AbortedError("the connect was cancelled")
                    : absl::DeadlineExceededError("not all peers came in time");
  }
  STARLING_RETURN_IF_ERROR(meeting->status);
  return MakeMeshCommunicator(std::make_unique<Mesh>(spec.generation, spec.rank.value(),
                                                     std::move(meeting->links[rank]), kSlotBytes));
}

namespace {

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(std::shared_ptr<ThreadHub> hub, std::string address)
      : hub_(std::move(hub)), address_(std::move(address)) {}

  const std::string& address() const override { return address_; }

  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const GroupSpec& spec,
                                                        absl::Duration timeout,
                                                        std::vector<Rank>* unreachable) override {
    const int32_t rank = spec.rank.value();
    if (unreachable != nullptr) unreachable->clear();
    if (rank < 0 || static_cast<size_t>(rank) >= spec.peers.size() ||
        spec.peers[static_cast<size_t>(rank)].address != address_) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank, " of the group is not this transport (", address_, ")"));
    }
    return hub_->Meet(spec, SystemClock::Get().Now() + timeout, &cancelled_, unreachable);
  }
  void CancelConnect(Generation generation) override { hub_->Cancel(&cancelled_, generation); }

 private:
  const std::shared_ptr<ThreadHub> hub_;
  const std::string address_;
  Generation cancelled_;  // highest given to CancelConnect; guarded by the hub's mutex
};

}  // namespace

std::shared_ptr<ThreadHub> MakeThreadHub() { return std::make_shared<ThreadHub>(); }

std::unique_ptr<Transport> MakeThreadTransport(std::shared_ptr<ThreadHub> hub,
                                               std::string address) {
  return std::make_unique<ThreadTransport>(std::move(hub), std::move(address));
}

}  // namespace starling::comm
