#include "comm/listener.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/socket_address.h"
#include "starling/base/clock.h"
#include "starling/base/host_port.h"
#include "starling/base/log.h"
#include "starling/base/secret.h"
#include "starling/base/status.h"

namespace starling::comm {
namespace {

constexpr int kBacklog = 256;
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

void SignalEvent(int fd) {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then it is readable anyway.
  [[maybe_unused]] const ssize_t n = write(fd, &one, sizeof(one));
}

void DrainEvent(int fd) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = read(fd, &count, sizeof(count));
}

absl::StatusOr<UniqueFd> BindTo(const SocketAddress& address, const std::string& name) {
  STARLING_ASSIGN_OR_RETURN(UniqueFd fd, MakeSocket(address));
  if (bind(fd.get(), address.get(), address.length) != 0) {
    return ErrnoStatus(errno, absl::StrCat("cannot listen on ", name));
  }
  return fd;
}

}  // namespace

Reception::Reception(GroupSpec spec)
    : spec_(std::move(spec)),
      run_digest_(Sha256(spec_.run_id)),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  STARLING_CHECK(event_.valid());
}

Refusal Reception::Check(const Hello& hello) const {
  if (hello.run_digest != run_digest_) return Refusal::kRun;
  const int32_t self = spec_.rank.value();
  const int32_t size = static_cast<int32_t>(spec_.peers.size());
  // Of each pair the higher rank connects.
  const bool known = hello.group_size == size && hello.to_rank == self && hello.from_rank > self &&
                     hello.from_rank < size;
  if (!known || hello.to_incarnation != spec_.peers[static_cast<size_t>(self)].incarnation ||
      hello.from_incarnation != spec_.peers[static_cast<size_t>(hello.from_rank)].incarnation) {
    return Refusal::kIdentity;
  }
  return Refusal::kNone;
}

void Reception::Signal() { SignalEvent(event_.get()); }

void Reception::Deliver(Arrival arrival) {
  absl::MutexLock lock(&mutex_);
  arrivals_.push_back(std::move(arrival));
  Signal();
}

void Reception::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  Signal();
}

std::vector<Arrival> Reception::Take() {
  absl::MutexLock lock(&mutex_);
  DrainEvent(event_.get());
  return std::exchange(arrivals_, {});
}

bool Reception::cancelled() const {
  absl::MutexLock lock(&mutex_);
  return cancelled_;
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Start(const SocketTransportOptions& options,
                                                          const ListenerLimits& limits) {
  STARLING_ASSIGN_OR_RETURN(const SocketAddress bind_address, ResolveTcp(options.bind_host, "0"));
  STARLING_ASSIGN_OR_RETURN(UniqueFd tcp, BindTo(bind_address, options.bind_host));
  STARLING_ASSIGN_OR_RETURN(const int port, BoundPort(tcp.get()));
  const std::string& host =
      options.advertise_host.empty() ? options.bind_host : options.advertise_host;
  std::string address = JoinHostPort(host, port);
  UniqueFd unix_socket;
  if (options.shared_memory) {
    // Before TCP listens: who reaches the one finds the other.
    STARLING_ASSIGN_OR_RETURN(const SocketAddress unix_address, UnixAddress(address));
    STARLING_ASSIGN_OR_RETURN(unix_socket,
                              BindTo(unix_address, absl::StrCat("UNIX socket of ", address)));
    if (listen(unix_socket.get(), kBacklog) != 0) return ErrnoStatus(errno, "listen");
  }
  if (listen(tcp.get(), kBacklog) != 0) return ErrnoStatus(errno, "listen");
  return std::unique_ptr<Listener>(new Listener(std::move(tcp), std::move(unix_socket),
                                                std::move(address), options.slot_bytes, limits));
}

Listener::Listener(UniqueFd tcp, UniqueFd unix_socket, std::string address, int64_t slot_bytes,
                   const ListenerLimits& limits)
    : tcp_(std::move(tcp)),
      unix_(std::move(unix_socket)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      address_(std::move(address)),
      slot_bytes_(slot_bytes),
      limits_(limits),
      thread_([this] { Run(); }) {}

Listener::~Listener() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  SignalEvent(wake_.get());
  thread_.join();
}

absl::Status Listener::Announce(std::shared_ptr<Reception> reception) {
  const Generation generation = reception->spec().generation;
  {
    absl::MutexLock lock(&mutex_);
    if (!receptions_.emplace(generation, std::move(reception)).second) {
      return absl::AlreadyExistsError(
          absl::StrCat("generation ", generation.value(), " is being connected already"));
    }
  }
  SignalEvent(wake_.get());  // for those who wait parked
  return absl::OkStatus();
}

void Listener::Withdraw(Generation generation) {
  absl::MutexLock lock(&mutex_);
  receptions_.erase(generation);
}

void Listener::Leave(Generation generation) {
  {
    absl::MutexLock lock(&mutex_);
    left_ = std::max(left_, generation);
  }
  SignalEvent(wake_.get());
}

size_t Listener::waiting() const {
  absl::MutexLock lock(&mutex_);
  return waiting_;
}

void Listener::Run() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) return;
      waiting_ = visitors_.size();
    }
    PollOnce();
  }
}

// Waits for news, then serves every visitor: a turn without news costs a visitor one system call.
void Listener::PollOnce() {
  const absl::Time now = SystemClock::Get().Now();
  const bool accepting = now >= accept_after_;
  std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0},
                             {accepting ? tcp_.get() : -1, POLLIN, 0},
                             {accepting ? unix_.get() : -1, POLLIN, 0}};
  absl::Time wake_at = accepting ? absl::InfiniteFuture() : accept_after_;
  for (const Visitor& visitor : visitors_) {
    fds.push_back({visitor.fd.get(), POLLIN, 0});
    wake_at = std::min(wake_at, visitor.deadline);
  }
  const absl::Duration at_most = std::clamp(wake_at - now, absl::ZeroDuration(), absl::Hours(1));
  const timespec limit = absl::ToTimespec(at_most);
  if (ppoll(fds.data(), fds.size(), &limit, nullptr) < 0) return;
  DrainEvent(wake_.get());
  const absl::Time after = SystemClock::Get().Now();
  std::deque<Visitor> staying;
  for (Visitor& visitor : visitors_) {
    if (Serve(visitor) && after < visitor.deadline) staying.push_back(std::move(visitor));
  }
  visitors_ = std::move(staying);
  if (fds[1].revents != 0) Accept(tcp_.get(), false);
  if (fds[2].revents != 0) Accept(unix_.get(), true);
  Trim(Visitor::Stage::kHello, limits_.half_open_max);
  Trim(Visitor::Stage::kParked, limits_.parked_max);
}

void Listener::Accept(int listen_fd, bool is_unix) {
  for (size_t i = 0; i < limits_.half_open_max; ++i) {
    UniqueFd fd(accept4(listen_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        STARLING_LOG(Warning) << "address=" << address_ << " cannot accept connections: "
                              << std::string(ErrnoStatus(errno, "accept").message());
        accept_after_ = SystemClock::Get().Now() + kAcceptPause;
      }
      return;
    }
    if (!is_unix) SetNoDelay(fd.get());
    Visitor visitor;
    visitor.fd = std::move(fd);
    visitor.is_unix = is_unix;
    visitor.deadline = SystemClock::Get().Now() + limits_.handshake;
    if (Serve(visitor)) visitors_.push_back(std::move(visitor));
  }
}

// Drops the oldest visitors in `stage` beyond `max`.
void Listener::Trim(Visitor::Stage stage, size_t max) {
  const auto in_stage = [stage](const Visitor& visitor) { return visitor.stage == stage; };
  while (static_cast<size_t>(std::count_if(visitors_.begin(), visitors_.end(), in_stage)) > max) {
    visitors_.erase(std::find_if(visitors_.begin(), visitors_.end(), in_stage));
  }
}

bool Listener::Serve(Visitor& visitor) {
  switch (visitor.stage) {
    case Visitor::Stage::kHello:
      if (!ReceiveSome(visitor.fd.get(), kHelloBytes, &visitor.received, nullptr)) return false;
      return visitor.received.size() < kHelloBytes || OnHello(visitor);
    case Visitor::Stage::kParked: {
      // It has nothing more to say before the Challenge; this only notices that it left.
      std::string unexpected;
      if (!ReceiveSome(visitor.fd.get(), 1, &unexpected, nullptr) || !unexpected.empty()) {
        return false;
      }
      return Route(visitor);
    }
    case Visitor::Stage::kProof:
      if (!ReceiveSome(visitor.fd.get(), kProofBytes, &visitor.received, nullptr)) return false;
      return visitor.received.size() < kProofBytes || OnProof(visitor);
  }
  return false;
}

bool Listener::Refuse(Visitor& visitor, Refusal refusal) {
  STARLING_LOG(Warning) << "address=" << address_ << " gen=" << visitor.hello.generation.value()
                        << " refused a connection of rank=" << visitor.hello.from_rank
                        << " incarnation=" << ToHex(visitor.hello.from_incarnation) << ": "
                        << Describe(refusal);
  SendWhole(visitor.fd.get(), Encode(Answer{Answer::Type::kRefused, refusal, {}}));
  return false;
}

bool Listener::OnHello(Visitor& visitor) {
  const std::optional<Hello> hello = DecodeHello(visitor.received);
  if (!hello.has_value()) return false;  // not one of us: no answer
  visitor.hello = *hello;
  visitor.hello_bytes = std::exchange(visitor.received, {});
  if (hello->version != kWireVersion) return Refuse(visitor, Refusal::kVersion);
  const bool wants_memory = hello->role == ConnectionRole::kControlMemory;
  if (wants_memory != visitor.is_unix) return false;
  return Route(visitor);
}

std::shared_ptr<Reception> Listener::Find(Generation generation, bool* left) const {
  absl::MutexLock lock(&mutex_);
  *left = generation <= left_;
  const auto found = receptions_.find(generation);
  return found == receptions_.end() ? nullptr : found->second;
}

// Sends the Challenge when the generation is announced here; parks or refuses otherwise.
bool Listener::Route(Visitor& visitor) {
  bool left = false;
  const std::shared_ptr<Reception> reception = Find(visitor.hello.generation, &left);
  const absl::Time now = SystemClock::Get().Now();
  if (reception == nullptr) {
    if (left) return Refuse(visitor, Refusal::kStale);
    if (visitor.stage == Visitor::Stage::kHello) visitor.deadline = now + limits_.parked;
    visitor.stage = Visitor::Stage::kParked;
    return true;
  }
  const Refusal refusal = reception->Check(visitor.hello);
  if (refusal != Refusal::kNone) return Refuse(visitor, refusal);
  visitor.stage = Visitor::Stage::kProof;
  visitor.deadline = now + limits_.handshake;
  FillRandom(visitor.nonce.data(), visitor.nonce.size());
  return SendWhole(visitor.fd.get(),
                   Encode(Answer{Answer::Type::kChallenge, Refusal::kNone, visitor.nonce}));
}

bool Listener::OnProof(Visitor& visitor) {
  bool left = false;
  const std::shared_ptr<Reception> reception = Find(visitor.hello.generation, &left);
  if (reception == nullptr) return Refuse(visitor, Refusal::kStale);
  const std::string& secret = reception->spec().secret;
  if (!SameSecret(TextOf(Prove(Side::kConnector, secret, visitor.hello_bytes, visitor.nonce)),
                  visitor.received)) {
    return Refuse(visitor, Refusal::kSecret);
  }
  Arrival arrival{visitor.hello.from_rank, visitor.hello.role, UniqueFd(), RingMemory()};
  UniqueFd memfd;
  if (visitor.hello.role == ConnectionRole::kControlMemory) {
    auto memory = CreateSharedRings(RingCapacity(slot_bytes_), &memfd);
    if (!memory.ok()) {
      STARLING_LOG(Error) << "gen=" << visitor.hello.generation.value()
                          << " no shared memory: " << std::string(memory.status().message());
      return Refuse(visitor, Refusal::kResources);
    }
    arrival.memory = *std::move(memory);
  }
  const Answer welcome{Answer::Type::kWelcome, Refusal::kNone,
                       Prove(Side::kAcceptor, secret, visitor.hello_bytes, visitor.nonce)};
  if (SendWhole(visitor.fd.get(), Encode(welcome), memfd.get())) {
    arrival.fd = std::move(visitor.fd);
    reception->Deliver(std::move(arrival));
  }
  return false;
}

}  // namespace starling::comm
