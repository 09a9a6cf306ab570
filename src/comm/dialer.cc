#include "comm/dialer.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "starling/base/log.h"
#include "starling/base/secret.h"
#include "starling/base/status.h"

namespace starling::comm {
namespace {

constexpr absl::Duration kBackoffMin = absl::Milliseconds(2);
constexpr absl::Duration kBackoffMax = absl::Milliseconds(100);

}  // namespace

Call::Call(const GroupSpec& spec, int peer, ConnectionRole role)
    : spec_(spec), peer_(peer), role_(role), backoff_(kBackoffMin) {}

pollfd Call::poll() const {
  switch (stage_) {
    case Stage::kConnecting:
      return {fd_.get(), POLLOUT, 0};
    case Stage::kChallenge:
    case Stage::kWelcome:
      return {fd_.get(), POLLIN, 0};
    case Stage::kIdle:
    case Stage::kDone:
    case Stage::kRefused:
      break;
  }
  return {-1, 0, 0};
}

void Call::Step(absl::Time now) {
  if (stage_ == Stage::kIdle && now >= retry_at_) Connect(now);
  if (stage_ == Stage::kConnecting) FinishConnect(now);
  while (stage_ == Stage::kChallenge || stage_ == Stage::kWelcome) {
    if (!ReceiveSome(fd_.get(), kAnswerBytes, &received_, &passed_)) {
      return Retry(now, "the peer closed the connection during the handshake");
    }
    if (received_.size() < kAnswerBytes) return;
    OnAnswer(now);
  }
}

void Call::Retry(absl::Time now, const std::string& error) {
  fd_.Reset();
  passed_.Reset();
  received_.clear();
  last_error_ = error;
  retry_at_ = now + backoff_;
  backoff_ = std::min(backoff_ * 2, kBackoffMax);
  stage_ = Stage::kIdle;
}

void Call::GiveUp(Refusal refusal) {
  fd_.Reset();
  refusal_ = refusal;
  stage_ = Stage::kRefused;
}

void Call::Connect(absl::Time now) {
  nobody_there_ = false;
  const std::string& text = spec_.peers[static_cast<size_t>(peer_)].address;
  // Looked up at every try: the name of a host that has just started may not be known yet.
  const absl::StatusOr<SocketAddress> address =
      role_ == ConnectionRole::kControlMemory ? UnixAddress(text) : ResolveTcp(text);
  if (!address.ok()) return Retry(now, std::string(address.status().message()));
  absl::StatusOr<UniqueFd> fd = MakeSocket(*address);
  if (!fd.ok()) return Retry(now, std::string(fd.status().message()));
  fd_ = *std::move(fd);
  if (connect(fd_.get(), address->get(), address->length) == 0) return SendHello(now);
  if (errno == EINPROGRESS) {
    stage_ = Stage::kConnecting;
    return;
  }
  nobody_there_ = errno == ECONNREFUSED;
  Retry(now, std::string(ErrnoStatus(errno, "connect to " + text).message()));
}

void Call::FinishConnect(absl::Time now) {
  pollfd writable = {fd_.get(), POLLOUT, 0};
  if (::poll(&writable, 1, 0) <= 0) return;
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error == 0) return SendHello(now);
  nobody_there_ = error == ECONNREFUSED;
  const std::string& text = spec_.peers[static_cast<size_t>(peer_)].address;
  Retry(now, std::string(ErrnoStatus(error, "connect to " + text).message()));
}

void Call::SendHello(absl::Time now) {
  reached_ = true;
  Hello hello;
  hello.role = role_;
  hello.generation = spec_.generation;
  hello.from_rank = spec_.rank.value();
  hello.to_rank = peer_;
  hello.from_incarnation = spec_.peers[static_cast<size_t>(spec_.rank.value())].incarnation;
  hello.to_incarnation = spec_.peers[static_cast<size_t>(peer_)].incarnation;
  hello.group_size = static_cast<int32_t>(spec_.peers.size());
  hello.run_digest = Sha256(spec_.run_id);
  FillRandom(hello.nonce.data(), hello.nonce.size());
  hello_ = Encode(hello);
  if (!SendWhole(fd_.get(), hello_)) return Retry(now, "the peer closed the connection at once");
  received_.clear();
  stage_ = Stage::kChallenge;
}

void Call::OnAnswer(absl::Time now) {
  const std::optional<Answer> answer = DecodeAnswer(std::exchange(received_, {}));
  if (!answer.has_value()) return Retry(now, "the peer does not speak this protocol");
  if (answer->type == Answer::Type::kRefused) return GiveUp(answer->refusal);
  if (stage_ == Stage::kChallenge && answer->type == Answer::Type::kChallenge) {
    nonce_ = answer->body;
    const Bytes32 proof = Prove(Side::kConnector, spec_.secret, hello_, nonce_);
    if (!SendWhole(fd_.get(), TextOf(proof))) {
      return Retry(now, "the peer closed the connection during the handshake");
    }
    stage_ = Stage::kWelcome;
    return;
  }
  const Bytes32 expected = Prove(Side::kAcceptor, spec_.secret, hello_, nonce_);
  if (stage_ != Stage::kWelcome || !SameSecret(TextOf(expected), TextOf(answer->body))) {
    return GiveUp(Refusal::kSecret);  // whoever it is does not know the secret
  }
  if (role_ == ConnectionRole::kControlMemory) {
    absl::StatusOr<RingMemory> memory = MapSharedRings(passed_);
    if (!memory.ok()) return Retry(now, std::string(memory.status().message()));
    memory_ = *std::move(memory);
  }
  stage_ = Stage::kDone;
}

Dialer::Dialer(const GroupSpec& spec, int peer, bool share_memory) : spec_(spec), peer_(peer) {
  if (share_memory) {
    calls_.emplace_back(spec, peer, ConnectionRole::kControlMemory);
  } else {
    UseTcp();
  }
}

void Dialer::UseTcp() {
  std::vector<Call> calls;
  calls.emplace_back(spec_, peer_, ConnectionRole::kControl);
  calls.emplace_back(spec_, peer_, ConnectionRole::kData);
  calls_.swap(calls);
}

void Dialer::Step(absl::Time now) {
  for (Call& call : calls_) call.Step(now);
  // The UNIX socket cannot be seen (other network namespace, or the peer does not share memory):
  // TCP tells whether the peer lives at all.
  Call& first = calls_.front();
  if (first.role() == ConnectionRole::kControlMemory && first.stage() == Call::Stage::kIdle &&
      first.nobody_there()) {
    STARLING_LOG(Warning) << "gen=" << spec_.generation.value() << " rank=" << peer_
                          << " is on this host but cannot be reached for shared memory; using TCP";
    UseTcp();
    for (Call& call : calls_) call.Step(now);
  }
}

bool Dialer::done() const {
  return std::all_of(calls_.begin(), calls_.end(),
                     [](const Call& call) { return call.stage() == Call::Stage::kDone; });
}

bool Dialer::reached() const {
  return std::any_of(calls_.begin(), calls_.end(), [](const Call& call) { return call.reached(); });
}

std::string Dialer::last_error() const {
  for (const Call& call : calls_) {
    if (call.stage() != Call::Stage::kDone && !call.last_error().empty()) return call.last_error();
  }
  return "no answer";
}

absl::Status Dialer::refusal() const {
  for (const Call& call : calls_) {
    if (call.stage() != Call::Stage::kRefused) continue;
    return absl::PermissionDeniedError(
        absl::StrCat("rank ", peer_, " refused the connection: ", Describe(call.refusal())));
  }
  return absl::OkStatus();
}

}  // namespace starling::comm
