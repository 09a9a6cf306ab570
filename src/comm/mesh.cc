#include "comm/mesh.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "starling/base/clock.h"

namespace starling::comm {
namespace {

constexpr int64_t kHeaderBytes = static_cast<int64_t>(sizeof(MessageHeader));
constexpr std::byte kPadding[8] = {};
// A few microseconds: long enough for a peer that is just about to write, short enough when ranks
// outnumber processors.
constexpr int kSpins = 40;
// How long a broken channel may wait for the control stream to tell why.
constexpr absl::Duration kGoodbyeGrace = absl::Milliseconds(100);

int64_t PaddingOf(int64_t payload_bytes) { return (8 - payload_bytes % 8) % 8; }

void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

const char* Name(MessageKind kind) {
  switch (kind) {
    case MessageKind::kReduceScatter:
      return "ReduceScatter";
    case MessageKind::kAllGather:
      return "AllGather";
    case MessageKind::kAllReduce:
      return "AllReduce";
    case MessageKind::kBroadcast:
      return "Broadcast";
    case MessageKind::kBarrier:
      return "Barrier";
    case MessageKind::kPointToPoint:
      return "Send/Receive";
  }
  return "an unknown call";
}

struct Mesh::Exchanging {
  MessageKind kind;
  uint32_t sequence;
  std::vector<Outgoing>& out;
  std::vector<Incoming>& in;
  absl::Time deadline;
  absl::Status mismatch;    // set when a peer's header contradicts the call
  bool suspicious = false;  // trouble was seen; one more Pump, then the exchange fails
};

Mesh::Mesh(Generation generation, int rank, std::vector<Link> links, int64_t slot_bytes)
    : generation_(generation),
      rank_(rank),
      slot_bytes_(std::max<int64_t>(slot_bytes, 64)),
      links_(std::move(links)),
      wishes_(links_.size()),
      broken_(links_.size(), absl::InfiniteFuture()),
      pollfds_(links_.size() * 2, pollfd{-1, 0, 0}) {
  for (const Link& link : links_) {
    if (link.channel != nullptr && link.channel->fd() >= 0) all_rings_ = false;
  }
}

Mesh::~Mesh() {
  if (dead_) return;
  for (const Link& link : links_) {
    if (link.channel != nullptr) link.control.SendFinished();
  }
}

std::string Mesh::Where(MessageKind kind) const {
  return absl::StrCat(Name(kind), " of generation ", generation_.value(), " on rank ", rank_);
}

absl::Status Mesh::status() const {
  absl::MutexLock lock(&mutex_);
  return status_;
}

std::vector<Rank> Mesh::suspects() const {
  absl::MutexLock lock(&mutex_);
  std::vector<Rank> ranks;
  for (int rank : suspects_) ranks.emplace_back(rank);
  return ranks;
}

absl::Status Mesh::Fail(absl::Status status, std::vector<int> suspects) {
  {
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    status_ = status;
    suspects_ = suspects;
  }
  dead_ = true;
  // The goodbye goes first: the peers must know the reason before they see the connections end.
  for (const Link& link : links_) {
    if (link.channel != nullptr) link.control.SendAborted(suspects);
  }
  for (const Link& link : links_) {
    if (link.channel == nullptr) continue;
    link.control.Shutdown();
    link.channel->Shutdown();
  }
  return status;
}

void Mesh::Abort(const std::string& reason) {
  Fail(absl::AbortedError(absl::StrCat("generation ", generation_.value(), ": ", reason)), {})
      .IgnoreError();
}

absl::Status Mesh::Exchange(MessageKind kind, uint32_t sequence, std::vector<Outgoing>& out,
                            std::vector<Incoming>& in, absl::Time deadline) {
  Exchanging exchange{kind, sequence, out, in, deadline, absl::OkStatus()};
  for (Outgoing& message : out) {
    message.header = {kind, sequence,
                      static_cast<uint64_t>(message.payload.remaining() * message.element_bytes)};
  }
  int spins = 0;
  while (true) {
    if (dead_) return status();
    const bool moved = Pump(exchange);
    if (!exchange.mismatch.ok()) return Fail(exchange.mismatch, {});
    const auto done = [](const auto& message) { return message.done; };
    if (std::all_of(out.begin(), out.end(), done) && std::all_of(in.begin(), in.end(), done)) {
      return dead_ ? status() : absl::OkStatus();
    }
    if (moved) {
      spins = 0;
    } else if (exchange.suspicious) {
      FillWishes(exchange);
      if (AnyTrouble()) return FailOnTrouble(exchange);
      exchange.suspicious = false;
    } else if (all_rings_ && spins < kSpins) {
      ++spins;
      Relax();
    } else if (absl::Status status = Wait(exchange); !status.ok()) {
      return status;
    }
  }
}

// One turn for every message; whether anything moved.
bool Mesh::Pump(Exchanging& exchange) {
  int64_t moved = 0;
  for (Outgoing& message : exchange.out) moved += PumpOut(message);
  for (Incoming& message : exchange.in) moved += PumpIn(exchange, message);
  return moved > 0;
}

void Mesh::NoteBroken(int peer) {
  absl::Time& since = broken_[static_cast<size_t>(peer)];
  since = std::min(since, SystemClock::Get().Now());
}

int64_t Mesh::PumpOut(Outgoing& message) {
  int64_t moved = 0;
  Link& link = links_[static_cast<size_t>(message.to)];
  while (!message.done && moved < slot_bytes_) {
    const int64_t n = SendNext(message);
    if (n == Channel::kBroken) NoteBroken(message.to);
    if (n <= 0) break;
    moved += n;
  }
  if (moved > 0) link.channel->Flush();
  return moved;
}

// Writes the next stretch of header, payload or padding; bytes written, or kBroken.
int64_t Mesh::SendNext(Outgoing& message) {
  Channel& channel = *links_[static_cast<size_t>(message.to)].channel;
  const int64_t padding = PaddingOf(static_cast<int64_t>(message.header.payload_bytes));
  int64_t n = 0;
  if (message.frame_sent < kHeaderBytes) {
    n = channel.Write(reinterpret_cast<const std::byte*>(&message.header) + message.frame_sent,
                      kHeaderBytes - message.frame_sent, message.header.payload_bytes > 0);
    if (n > 0) message.frame_sent += n;
  } else if (!message.payload.done()) {
    const int64_t run = message.payload.run();
    const int64_t bytes = std::min(run * message.element_bytes - message.split, slot_bytes_);
    const bool more = padding > 0 || run < message.payload.remaining();
    n = channel.Write(
        message.base + message.payload.index() * message.element_bytes + message.split, bytes,
        more);
    if (n <= 0) return n;
    traffic_.bytes_sent += static_cast<uint64_t>(n);
    message.split += n;
    message.payload.Advance(message.split / message.element_bytes);
    message.split %= message.element_bytes;
  } else if (message.frame_sent < kHeaderBytes + padding) {
    n = channel.Write(kPadding, kHeaderBytes + padding - message.frame_sent, false);
    if (n > 0) message.frame_sent += n;
  }
  message.done = message.payload.done() && message.frame_sent == kHeaderBytes + padding;
  return n;
}

int64_t Mesh::PumpIn(Exchanging& exchange, Incoming& message) {
  int64_t moved = 0;
  while (!message.done && moved < slot_bytes_ && exchange.mismatch.ok()) {
    const int64_t n = ReceiveNext(exchange, message);
    if (n == Channel::kBroken) NoteBroken(message.from);
    if (n <= 0) break;
    moved += n;
  }
  return moved;
}

// Reads the next stretch of header, payload or padding; bytes read, or kBroken.
int64_t Mesh::ReceiveNext(Exchanging& exchange, Incoming& message) {
  Channel& channel = *links_[static_cast<size_t>(message.from)].channel;
  const int64_t padding = PaddingOf(message.payload_bytes);
  const bool in_header = message.frame_received < kHeaderBytes;
  int64_t n = 0;
  if (in_header || message.payload_received == message.payload_bytes) {
    std::byte skipped[8];
    std::byte* header = reinterpret_cast<std::byte*>(&message.header) + message.frame_received;
    const int64_t end = in_header ? kHeaderBytes : kHeaderBytes + padding;
    BytesSink sink(
        {in_header ? header : skipped, static_cast<size_t>(end - message.frame_received)});
    n = channel.Read(sink, end - message.frame_received);
    if (n > 0) message.frame_received += n;
  } else {
    n = channel.Read(*message.sink, message.payload_bytes - message.payload_received);
    if (n > 0) {
      message.payload_received += n;
      traffic_.bytes_received += static_cast<uint64_t>(n);
    }
  }
  if (in_header && message.frame_received == kHeaderBytes) {
    const MessageHeader& got = message.header;
    if (got.kind != exchange.kind || got.sequence != exchange.sequence ||
        got.payload_bytes != static_cast<uint64_t>(message.payload_bytes)) {
      exchange.mismatch = absl::DataLossError(
          absl::StrCat(Where(exchange.kind), ": expected ", message.payload_bytes,
                       " bytes of call ", exchange.sequence, " from rank ", message.from,
                       ", it sent ", got.payload_bytes, " bytes of call ", got.sequence, " (",
                       Name(got.kind), "); the ranks do not make the same calls"));
    }
  }
  message.done = message.payload_received == message.payload_bytes &&
                 message.frame_received == kHeaderBytes + padding;
  return n;
}

void Mesh::FillWishes(const Exchanging& exchange) {
  std::fill(wishes_.begin(), wishes_.end(), Wish{});
  for (const Outgoing& message : exchange.out) {
    if (message.done) continue;
    Wish& wish = wishes_[static_cast<size_t>(message.to)];
    wish.write = wish.needed = true;
  }
  for (const Incoming& message : exchange.in) {
    if (message.done) continue;
    Wish& wish = wishes_[static_cast<size_t>(message.from)];
    wish.needed = true;
    const bool in_payload =
        message.frame_received >= kHeaderBytes && message.payload_received < message.payload_bytes;
    wish.read = !in_payload || message.sink->Room() > 0;
  }
}

// Sleeps until a peer has done something this exchange waits for, or has gone.
absl::Status Mesh::Wait(Exchanging& exchange) {
  FillWishes(exchange);
  if (AnyTrouble()) {
    exchange.suspicious = true;
    return absl::OkStatus();
  }
  const absl::Time now = SystemClock::Get().Now();
  if (now >= exchange.deadline) return FailOnDeadline(exchange);
  absl::Duration at_most = exchange.deadline - now;
  for (absl::Time since : broken_) at_most = std::min(at_most, since + kGoodbyeGrace - now);
  if (ArmAll()) Poll(at_most);
  for (Link& link : links_) {
    if (link.channel != nullptr) link.channel->Disarm();
  }
  // What a dead peer wrote before its end may complete the exchange still: one more Pump decides.
  exchange.suspicious = AnyTrouble();
  return absl::OkStatus();
}

bool Mesh::ArmAll() {
  bool may_sleep = true;
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    if (links_[peer].channel == nullptr) continue;
    may_sleep &= links_[peer].channel->Arm(wishes_[peer].read, wishes_[peer].write);
  }
  return may_sleep;
}

void Mesh::Poll(absl::Duration at_most) {
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    const Link& link = links_[peer];
    pollfd& control = pollfds_[2 * peer];
    pollfd& channel = pollfds_[2 * peer + 1];
    control = channel = {-1, 0, 0};
    if (link.channel == nullptr) continue;
    if (link.control.state() == PeerState::kAlive) control = {link.control.fd(), POLLIN, 0};
    const Wish& wish = wishes_[peer];
    const int events = (wish.read ? POLLIN : 0) | (wish.write ? POLLOUT : 0);
    if (events != 0 && broken_[peer] == absl::InfiniteFuture()) {
      channel = {link.channel->fd(), static_cast<int16_t>(events), 0};
    }
  }
  const timespec limit =
      absl::ToTimespec(std::clamp(at_most, absl::ZeroDuration(), absl::Hours(1)));
  if (ppoll(pollfds_.data(), pollfds_.size(), &limit, nullptr) <= 0) return;
  for (size_t peer = 0; peer < links_.size(); ++peer) {
    if (pollfds_[2 * peer].revents != 0) links_[peer].control.Read();
  }
}

// Whether the exchange cannot be completed because of `peer`.
bool Mesh::InTrouble(int peer) const {
  const Link& link = links_[static_cast<size_t>(peer)];
  if (link.channel == nullptr) return false;
  const absl::Time broken = broken_[static_cast<size_t>(peer)];
  switch (link.control.state()) {
    case PeerState::kDead:
    case PeerState::kAborted:
      return true;
    case PeerState::kFinished:
      // What it sent last may still be in flight on a socket, but not in shared memory.
      return wishes_[static_cast<size_t>(peer)].needed &&
             (link.channel->fd() < 0 || broken != absl::InfiniteFuture());
    case PeerState::kAlive:
      return broken != absl::InfiniteFuture() && SystemClock::Get().Now() - broken >= kGoodbyeGrace;
  }
  return false;
}

bool Mesh::AnyTrouble() const {
  for (int peer = 0; peer < size(); ++peer) {
    if (InTrouble(peer)) return true;
  }
  return false;
}

// Suspects are the peers that ended without a word and those that other peers name; a peer that
// only said goodbye is suspected when nobody else is.
absl::Status Mesh::FailOnTrouble(const Exchanging& exchange) {
  if (dead_) return status();  // the ends seen were those of our own Abort
  std::vector<int> suspects;
  std::vector<int> aborted;
  for (int peer = 0; peer < size(); ++peer) {
    if (!InTrouble(peer)) continue;
    const ControlStream& control = links_[static_cast<size_t>(peer)].control;
    if (control.state() != PeerState::kAborted) {
      suspects.push_back(peer);
    } else if (control.suspects().empty()) {
      aborted.push_back(peer);
    }
    for (int named : control.suspects()) {
      if (named >= 0 && named < size() && named != rank_) suspects.push_back(named);
    }
  }
  if (suspects.empty()) suspects = aborted;
  std::sort(suspects.begin(), suspects.end());
  suspects.erase(std::unique(suspects.begin(), suspects.end()), suspects.end());
  const std::string what = suspects.empty() ? "a peer took this rank for dead"
                                            : absl::StrCat("connection to rank ",
                                                           absl::StrJoin(suspects, ", "), " broke");
  return Fail(absl::UnavailableError(absl::StrCat(Where(exchange.kind), ": ", what)), suspects);
}

absl::Status Mesh::FailOnDeadline(const Exchanging& exchange) {
  std::vector<int> waited_for;
  for (int peer = 0; peer < size(); ++peer) {
    if (wishes_[static_cast<size_t>(peer)].needed) waited_for.push_back(peer);
  }
  return Fail(
      absl::DeadlineExceededError(absl::StrCat(Where(exchange.kind), ": still waiting for rank ",
                                               absl::StrJoin(waited_for, ", "))),
      waited_for);
}

}  // namespace starling::comm
