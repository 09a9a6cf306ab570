// Connects the members of a generation in pairs: the higher rank connects, the lower one's listener
// accepts. All handshakes go on at the same time.
#include "comm/socket_transport.h"

#include <poll.h>

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/dialer.h"
#include "comm/mesh.h"
#include "comm/mesh_communicator.h"
#include "comm/tcp_channel.h"
#include "starling/base/clock.h"
#include "starling/base/status.h"

namespace starling::comm {
namespace {

absl::Status CheckSpec(const GroupSpec& spec) {
  const int size = static_cast<int>(spec.peers.size());
  if (spec.rank.value() < 0 || spec.rank.value() >= size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", spec.rank.value(), " in a group of ", size));
  }
  return absl::OkStatus();
}

// The links of one generation while they are being made.
class Gathering {
 public:
  Gathering(const GroupSpec& spec, const SocketTransportOptions& options, Reception* reception)
      : spec_(spec), options_(options), reception_(reception), arrived_(spec.peers.size()) {
    const std::string& host = spec.peers[Self()].host;
    for (int peer = 0; peer < spec.rank.value(); ++peer) {
      const bool same_host = !host.empty() && spec.peers[static_cast<size_t>(peer)].host == host;
      dialers_.emplace_back(spec, peer, options.shared_memory && same_host);
    }
  }

  // Until all links are there. Errors as Transport::Connect.
  absl::Status Run(absl::Time deadline, std::vector<Rank>* unreachable);
  std::vector<Link> TakeLinks();

 private:
  struct Arrived {  // the newest connections from a higher rank
    Arrival control;
    UniqueFd data;
    bool complete() const {
      return control.fd.valid() && (control.role == ConnectionRole::kControlMemory || data.valid());
    }
  };

  size_t Self() const { return static_cast<size_t>(spec_.rank.value()); }
  void TakeArrivals();
  bool Complete() const;
  absl::Status DeadlineError(std::vector<Rank>* unreachable);
  void Poll(absl::Time deadline);

  const GroupSpec& spec_;
  const SocketTransportOptions& options_;
  Reception* reception_;
  std::deque<Dialer> dialers_;    // of the ranks below
  std::vector<Arrived> arrived_;  // by rank; those above are used
};

void Gathering::TakeArrivals() {
  for (Arrival& arrival : reception_->Take()) {
    Arrived& arrived = arrived_[static_cast<size_t>(arrival.rank)];
    // A newer one replaces an older: the peer had to try again.
    if (arrival.role == ConnectionRole::kData) {
      arrived.data = std::move(arrival.fd);
    } else {
      arrived.control = std::move(arrival);
    }
  }
}

bool Gathering::Complete() const {
  return std::all_of(dialers_.begin(), dialers_.end(), [](const Dialer& d) { return d.done(); }) &&
         std::all_of(arrived_.begin() + static_cast<std::ptrdiff_t>(Self()) + 1, arrived_.end(),
                     [](const Arrived& arrived) { return arrived.complete(); });
}

absl::Status Gathering::Run(absl::Time deadline, std::vector<Rank>* unreachable) {
  while (true) {
    const absl::Time now = SystemClock::Get().Now();
    for (Dialer& dialer : dialers_) {
      dialer.Step(now);
      if (absl::Status refusal = dialer.refusal(); !refusal.ok()) {
        unreachable->push_back(Rank(dialer.peer()));
        return refusal;
      }
    }
    TakeArrivals();
    if (reception_->cancelled()) return absl::AbortedError("the connect was cancelled");
    if (Complete()) return absl::OkStatus();
    if (now >= deadline) return DeadlineError(unreachable);
    Poll(deadline);
  }
}

absl::Status Gathering::DeadlineError(std::vector<Rank>* unreachable) {
  std::string missing;
  bool lost = false;  // some peer could not be reached at all
  for (const Dialer& dialer : dialers_) {
    if (dialer.done()) continue;
    lost |= !dialer.reached();
    unreachable->push_back(Rank(dialer.peer()));
    absl::StrAppend(&missing, "; rank ", dialer.peer(), " at ",
                    spec_.peers[static_cast<size_t>(dialer.peer())].address, ": ",
                    dialer.last_error());
  }
  for (size_t peer = Self() + 1; peer < arrived_.size(); ++peer) {
    if (arrived_[peer].complete()) continue;
    unreachable->push_back(Rank(static_cast<int32_t>(peer)));
    absl::StrAppend(&missing, "; rank ", peer, " did not connect");
  }
  const std::string text = absl::StrCat("not all peers could be connected in time", missing);
  return lost ? absl::UnavailableError(text) : absl::DeadlineExceededError(text);
}

void Gathering::Poll(absl::Time deadline) {
  std::vector<pollfd> fds = {{reception_->event_fd(), POLLIN, 0}};
  absl::Time wake_at = deadline;
  for (Dialer& dialer : dialers_) {
    for (const Call& call : dialer.calls()) {
      fds.push_back(call.poll());
      if (call.stage() == Call::Stage::kIdle) wake_at = std::min(wake_at, call.retry_at());
    }
  }
  const absl::Duration at_most = wake_at - SystemClock::Get().Now();
  const timespec limit =
      absl::ToTimespec(std::clamp(at_most, absl::ZeroDuration(), absl::Hours(1)));
  ppoll(fds.data(), fds.size(), &limit, nullptr);
}

std::vector<Link> Gathering::TakeLinks() {
  std::vector<Link> links(spec_.peers.size());
  const auto make = [&](int peer, UniqueFd control, RingMemory memory, UniqueFd data, bool first) {
    Link& link = links[static_cast<size_t>(peer)];
    link.control = ControlStream(std::move(control));
    if (memory.base != nullptr) {
      link.channel = std::make_unique<RingChannel>(std::move(memory), first, link.control.fd());
    } else {
      link.channel = std::make_unique<TcpChannel>(std::move(data), options_.slot_bytes);
    }
  };
  for (Dialer& dialer : dialers_) {
    Call& control = dialer.calls().front();
    UniqueFd data = dialer.calls().size() == 2 ? dialer.calls()[1].TakeFd() : UniqueFd();
    make(dialer.peer(), control.TakeFd(), control.TakeMemory(), std::move(data), false);
  }
  for (size_t peer = Self() + 1; peer < arrived_.size(); ++peer) {
    Arrived& arrived = arrived_[peer];
    make(static_cast<int>(peer), std::move(arrived.control.fd), std::move(arrived.control.memory),
         std::move(arrived.data), true);
  }
  return links;
}

class SocketTransport final : public Transport {
 public:
  SocketTransport(SocketTransportOptions options, std::unique_ptr<Listener> listener)
      : options_(std::move(options)), listener_(std::move(listener)) {}

  const std::string& address() const override { return listener_->address(); }

  absl::StatusOr<std::unique_ptr<Communicator>> Connect(const GroupSpec& spec,
                                                        absl::Duration timeout,
                                                        std::vector<Rank>* unreachable) override;
  void CancelConnect(Generation generation) override;

 private:
  absl::Status Begin(const std::shared_ptr<Reception>& reception);
  void End(Generation generation);

  const SocketTransportOptions options_;
  absl::Mutex mutex_;
  Generation cancelled_ ABSL_GUARDED_BY(mutex_);  // highest given to CancelConnect
  std::map<Generation, std::shared_ptr<Reception>> running_ ABSL_GUARDED_BY(mutex_);
  const std::unique_ptr<Listener> listener_;
};

absl::Status SocketTransport::Begin(const std::shared_ptr<Reception>& reception) {
  const Generation generation = reception->spec().generation;
  absl::MutexLock lock(&mutex_);
  if (generation <= cancelled_) {
    return absl::AbortedError(
        absl::StrCat("connecting generation ", generation.value(), " was cancelled"));
  }
  STARLING_RETURN_IF_ERROR(listener_->Announce(reception));
  running_[generation] = reception;
  return absl::OkStatus();
}

void SocketTransport::End(Generation generation) {
  absl::MutexLock lock(&mutex_);
  running_.erase(generation);
  listener_->Withdraw(generation);
}

absl::StatusOr<std::unique_ptr<Communicator>> SocketTransport::Connect(
    const GroupSpec& spec, absl::Duration timeout, std::vector<Rank>* unreachable) {
  STARLING_RETURN_IF_ERROR(CheckSpec(spec));
  std::vector<Rank> ignored;
  if (unreachable == nullptr) unreachable = &ignored;
  unreachable->clear();
  const absl::Time deadline = SystemClock::Get().Now() + timeout;
  const auto reception = std::make_shared<Reception>(spec);
  STARLING_RETURN_IF_ERROR(Begin(reception));
  Gathering gathering(reception->spec(), options_, reception.get());
  const absl::Status status = gathering.Run(deadline, unreachable);
  End(spec.generation);
  if (!status.ok()) {
    return Annotate(
        status, absl::StrCat("generation ", spec.generation.value(), ", rank ", spec.rank.value()));
  }
  listener_->Leave(spec.generation);  // whoever comes for it now is late or a ghost
  return MakeMeshCommunicator(std::make_unique<Mesh>(spec.generation, spec.rank.value(),
                                                     gathering.TakeLinks(), options_.slot_bytes));
}

void SocketTransport::CancelConnect(Generation generation) {
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = std::max(cancelled_, generation);
    for (auto& [running, reception] : running_) {
      if (running <= generation) reception->Cancel();
    }
  }
  listener_->Leave(generation);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> MakeSocketTransport(
    const SocketTransportOptions& options, const ListenerLimits& limits) {
  STARLING_ASSIGN_OR_RETURN(auto listener, Listener::Start(options, limits));
  return std::make_unique<SocketTransport>(options, std::move(listener));
}

absl::StatusOr<std::unique_ptr<Transport>> MakeSocketTransport(
    const SocketTransportOptions& options) {
  return MakeSocketTransport(options, ListenerLimits());
}

}  // namespace starling::comm
