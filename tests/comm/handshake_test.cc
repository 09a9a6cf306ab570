// Who is let in: strangers, ghosts of older generations and members with another secret are
// refused, cannot stop the listener, and never reach a collective. Early members are parked until
// the generation is announced. The strangers are plain sockets that speak bytes.
#include "comm/handshake.h"

#include <poll.h>
#include <sys/socket.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "comm/socket_address.h"
#include "comm/socket_transport.h"
#include "comm/world.h"
#include "starling/base/clock.h"
#include "starling/base/rng.h"

namespace starling::comm::testing {
namespace {

constexpr absl::Duration kShort = absl::Milliseconds(100);

// Connects to a transport as anybody can.
UniqueFd Stranger(const std::string& address) {
  const SocketAddress target = *ResolveTcp(address);
  UniqueFd fd(socket(target.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(connect(fd.get(), target.get(), target.length) == 0);
  return fd;
}

// What the listener answers: up to `bytes`, fewer when it closes first.
std::string Hear(const UniqueFd& fd, size_t bytes) {
  std::string heard;
  while (heard.size() < bytes) {
    char buffer[64];
    const ssize_t n = recv(fd.get(), buffer, std::min(sizeof(buffer), bytes - heard.size()), 0);
    if (n <= 0) break;
    heard.append(buffer, static_cast<size_t>(n));
  }
  return heard;
}

Hello HelloOf(const GroupSpec& spec, int from, int to) {
  Hello hello;
  hello.generation = spec.generation;
  hello.from_rank = from;
  hello.to_rank = to;
  hello.from_incarnation = spec.peers[static_cast<size_t>(from)].incarnation;
  hello.to_incarnation = spec.peers[static_cast<size_t>(to)].incarnation;
  hello.group_size = static_cast<int32_t>(spec.peers.size());
  hello.run_digest = Sha256(spec.run_id);
  return hello;
}

// Rank 0 of a pair, connecting in its own thread while a test plays rank 1.
struct WaitingRank {
  std::vector<std::unique_ptr<Transport>> transports = MakeTransports(Backend::kTcp, 2);
  GroupSpec spec = SpecOf(transports, 0, 5);
  absl::Status status;
  std::thread thread{
      [this] { status = transports[0]->Connect(spec, kPatience, nullptr).status(); }};
  ~WaitingRank() {
    transports[0]->CancelConnect(spec.generation);
    thread.join();
  }
  std::optional<Answer> Ask(const Hello& hello, UniqueFd* kept = nullptr) {
    UniqueFd fd = Stranger(transports[0]->address());
    REQUIRE(SendWhole(fd.get(), Encode(hello)));
    const auto answer = DecodeAnswer(Hear(fd, kAnswerBytes));
    if (kept != nullptr) *kept = std::move(fd);
    return answer;
  }
};

TEST_CASE("handshake: each wrong claim is refused by name", "[comm]") {
  WaitingRank rank;
  Hello hello = HelloOf(rank.spec, 1, 0);
  Refusal expected = Refusal::kNone;
  SECTION("version") { hello.version = kWireVersion + 1, expected = Refusal::kVersion; }
  SECTION("run") { hello.run_digest = Sha256("another run"), expected = Refusal::kRun; }
  SECTION("own incarnation") {
    hello.from_incarnation = Incarnation(999), expected = Refusal::kIdentity;
  }
  SECTION("our incarnation") {
    hello.to_incarnation = Incarnation(999), expected = Refusal::kIdentity;
  }
  SECTION("rank outside the group") { hello.from_rank = 2, expected = Refusal::kIdentity; }
  SECTION("negative rank") { hello.from_rank = -1, expected = Refusal::kIdentity; }
  SECTION("our own rank") { hello.from_rank = 0, expected = Refusal::kIdentity; }
  SECTION("group size") { hello.group_size = 3, expected = Refusal::kIdentity; }
  // Before rank 0 has announced the generation the stranger is parked and answered later.
  const auto answer = rank.Ask(hello);
  REQUIRE(answer.has_value());
  CHECK(answer->type == Answer::Type::kRefused);
  CHECK(answer->refusal == expected);
}

TEST_CASE("handshake: a wrong proof is refused, and the right one is welcomed with a proof",
          "[comm]") {
  WaitingRank rank;
  const Hello hello = HelloOf(rank.spec, 1, 0);
  UniqueFd fd;
  const auto challenge = rank.Ask(hello, &fd);
  REQUIRE(challenge.has_value());
  REQUIRE(challenge->type == Answer::Type::kChallenge);
  const bool right = GENERATE(false, true);
  const std::string secret = right ? rank.spec.secret : "guess";
  const Bytes32 proof = Prove(Side::kConnector, secret, Encode(hello), challenge->body);
  REQUIRE(SendWhole(fd.get(), std::string(proof.data(), proof.size())));
  const auto answer = DecodeAnswer(Hear(fd, kAnswerBytes));
  REQUIRE(answer.has_value());
  CHECK(answer->type == (right ? Answer::Type::kWelcome : Answer::Type::kRefused));
  if (right) {
    CHECK(answer->body == Prove(Side::kAcceptor, secret, Encode(hello), challenge->body));
  } else {
    CHECK(answer->refusal == Refusal::kSecret);
  }
}

TEST_CASE("handshake: an echo of our own challenge proves nothing", "[comm]") {
  WaitingRank rank;
  UniqueFd fd;
  const auto challenge = rank.Ask(HelloOf(rank.spec, 1, 0), &fd);
  REQUIRE(challenge.has_value());
  REQUIRE(SendWhole(fd.get(), std::string(challenge->body.data(), challenge->body.size())));
  const auto answer = DecodeAnswer(Hear(fd, kAnswerBytes));
  REQUIRE(answer.has_value());
  CHECK(answer->refusal == Refusal::kSecret);
}

TEST_CASE("handshake: members whose secrets differ do not connect", "[comm]") {
  const Backend backend = GENERATE(Backend::kThread, Backend::kTcp, Backend::kShared);
  const auto transports = MakeTransports(backend, 2);
  std::vector<std::vector<Rank>> unreachable(2);
  const auto statuses = OnAllRanks(2, [&](int rank) {
    GroupSpec spec = SpecOf(transports, rank);
    if (rank == 1) spec.secret = "another secret";
    return transports[static_cast<size_t>(rank)]
        ->Connect(spec, absl::Milliseconds(500), &unreachable[static_cast<size_t>(rank)])
        .status();
  });
  // Of the two, the one that is refused knows why; the other only sees that nobody comes.
  const auto denied = [](const absl::Status& s) { return absl::IsPermissionDenied(s); };
  CHECK(std::any_of(statuses.begin(), statuses.end(), denied));
  for (const absl::Status& status : statuses) {
    CHECK((absl::IsPermissionDenied(status) || absl::IsDeadlineExceeded(status)));
  }
}

TEST_CASE("handshake: strangers with garbage or silence do not keep members from connecting",
          "[comm]") {
  const Backend backend = GENERATE(Backend::kTcp, Backend::kShared);
  const auto transports = MakeTransports(backend, 2);
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 100; ++i) {  // more than the listener keeps half-open
    strangers.push_back(Stranger(transports[0]->address()));
    std::string noise(static_cast<size_t>(i) * 3, 'x');
    if (i % 2 == 1) SendWhole(strangers.back().get(), noise);
  }
  const auto statuses = OnAllRanks(2, [&](int rank) -> absl::Status {
    auto connected = transports[static_cast<size_t>(rank)]->Connect(SpecOf(transports, rank),
                                                                    kPatience, nullptr);
    if (!connected.ok()) return connected.status();
    return (*connected)->Barrier(kPatience);
  });
  for (const absl::Status& status : statuses) {
    INFO(std::string(status.message()));
    CHECK(status.ok());
  }
}

TEST_CASE("listener: a slow stranger is dropped at its deadline", "[comm]") {
  ListenerLimits limits;
  limits.handshake = absl::Milliseconds(50);
  const auto transport = MakeSocketTransport(SocketTransportOptions(), limits);
  REQUIRE(transport.ok());
  const UniqueFd stranger = Stranger((*transport)->address());
  REQUIRE(SendWhole(stranger.get(), "T"));
  const absl::Time begin = SystemClock::Get().Now();
  CHECK(Hear(stranger, 1).empty());  // returns when the listener closes
  CHECK(SystemClock::Get().Now() - begin < absl::Seconds(5));
}

TEST_CASE("listener: half-open and parked connections stay under their limits", "[comm]") {
  ListenerLimits limits;
  limits.half_open_max = 4;
  limits.parked_max = 3;
  auto listener = Listener::Start(SocketTransportOptions(), limits);
  REQUIRE(listener.ok());
  GroupSpec spec;
  spec.peers = {{Incarnation(1), "a", ""}, {Incarnation(2), "b", ""}};
  spec.generation = Generation(9);
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 40; ++i) {
    strangers.push_back(Stranger((*listener)->address()));
    if (i % 2 == 0) REQUIRE(SendWhole(strangers.back().get(), Encode(HelloOf(spec, 1, 0))));
  }
  // The oldest ones are dropped, one after the other, as the listener gets to the newer ones.
  for (int i = 0; i < 40 - 2 * 7; ++i) {
    CHECK(Hear(strangers[static_cast<size_t>(i)], 1).empty());
  }
  CHECK((*listener)->waiting() <= 7);
}

TEST_CASE("listener: random bytes in every length and mutated messages break nothing", "[comm]") {
  WaitingRank rank;
  const std::string good = Encode(HelloOf(rank.spec, 1, 0));
  uint64_t seed = 20240611;
  INFO("seed " << seed);
  for (int round = 0; round < 200; ++round) {
    std::string bytes = good;
    for (int change = 0; change < 1 + round % 4; ++change) {
      seed = Mix64(seed);
      bytes[seed % bytes.size()] = static_cast<char>(seed >> 32);
    }
    if (round % 3 == 0) bytes.resize(Mix64(seed) % 300, static_cast<char>(seed));
    const UniqueFd fd = Stranger(rank.transports[0]->address());
    REQUIRE(SendWhole(fd.get(), bytes));
    shutdown(fd.get(), SHUT_WR);
    const std::string heard = Hear(fd, 1000);
    // At most a Challenge and, when the bytes go on, a refusal of the proof; never a Welcome.
    REQUIRE(heard.size() <= 2 * kAnswerBytes);
    for (size_t at = 0; at < heard.size(); at += kAnswerBytes) {
      const auto answer = DecodeAnswer(heard.substr(at, kAnswerBytes));
      REQUIRE(answer.has_value());
      REQUIRE(answer->type != Answer::Type::kWelcome);
    }
    (void)DecodeHello(bytes);
    (void)DecodeAnswer(bytes.substr(0, kAnswerBytes));
  }
  // Still there for a member.
  const auto answer = rank.Ask(HelloOf(rank.spec, 1, 0));
  REQUIRE(answer.has_value());
  CHECK(answer->type == Answer::Type::kChallenge);
}

TEST_CASE("ghost: a member of an older generation is refused and the newer one works on",
          "[comm]") {
  const Backend backend = GENERATE(Backend::kTcp, Backend::kShared);
  const auto transports = MakeTransports(backend, 2);
  std::vector<std::unique_ptr<Communicator>> ranks(2);
  const auto statuses = OnAllRanks(2, [&](int rank) {
    auto connected = transports[static_cast<size_t>(rank)]->Connect(SpecOf(transports, rank, 7),
                                                                    kPatience, nullptr);
    if (connected.ok()) ranks[static_cast<size_t>(rank)] = *std::move(connected);
    return connected.status();
  });
  REQUIRE(statuses[0].ok());
  REQUIRE(statuses[1].ok());
  const uint64_t old_generation = GENERATE(6, 7);  // 7: a second life of the same generation
  std::vector<Rank> unreachable;
  const absl::Status ghost =
      transports[1]
          ->Connect(SpecOf(transports, 1, old_generation), kPatience, &unreachable)
          .status();
  CHECK(absl::IsPermissionDenied(ghost));
  CHECK(unreachable == std::vector<Rank>{Rank(0)});
  for (const absl::Status& status :
       OnAllRanks(2, [&](int r) { return ranks[static_cast<size_t>(r)]->Barrier(kPatience); })) {
    CHECK(status.ok());
  }
}

TEST_CASE("connect: members that come one after the other find each other", "[comm]") {
  const Backend backend = GENERATE(Backend::kThread, Backend::kTcp, Backend::kShared);
  const int first = GENERATE(0, 1);  // the accepting or the connecting side waits
  const auto transports = MakeTransports(backend, 2);
  std::atomic<bool> begun = false;
  absl::Status early;
  std::thread waiting([&] {
    begun = true;
    early = transports[static_cast<size_t>(first)]
                ->Connect(SpecOf(transports, first), kPatience, nullptr)
                .status();
  });
  while (!begun) std::this_thread::yield();
  const int second = 1 - first;
  const auto late = transports[static_cast<size_t>(second)]->Connect(SpecOf(transports, second),
                                                                     kPatience, nullptr);
  waiting.join();
  CHECK(early.ok());
  CHECK(late.ok());
}

TEST_CASE("connect: a peer whose process is not there yet is tried until the timeout", "[comm]") {
  auto transports = MakeTransports(Backend::kTcp, 2);
  const GroupSpec spec = SpecOf(transports, 1);
  transports[0].reset();  // nobody listens at its address now
  std::vector<Rank> unreachable;
  const absl::Status status = transports[1]->Connect(spec, kShort, &unreachable).status();
  INFO(std::string(status.message()));
  CHECK(absl::IsUnavailable(status));
  CHECK(unreachable == std::vector<Rank>{Rank(0)});
}

TEST_CASE("connect: at the timeout those that did not come are named", "[comm]") {
  const Backend backend = GENERATE(Backend::kThread, Backend::kTcp, Backend::kShared);
  const auto transports = MakeTransports(backend, 3);
  std::vector<Rank> unreachable;
  const absl::Status status =
      transports[1]->Connect(SpecOf(transports, 1), kShort, &unreachable).status();
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(unreachable == std::vector<Rank>{Rank(0), Rank(2)});
  // Nothing is left of the attempt: the next generation connects.
  const auto statuses = OnAllRanks(3, [&](int rank) {
    return transports[static_cast<size_t>(rank)]
        ->Connect(SpecOf(transports, rank, 2), kPatience, nullptr)
        .status();
  });
  for (const absl::Status& each : statuses) CHECK(each.ok());
}

TEST_CASE("connect: cancel ends a running one and those to come, not newer ones", "[comm]") {
  const Backend backend = GENERATE(Backend::kThread, Backend::kTcp, Backend::kShared);
  const auto transports = MakeTransports(backend, 2);
  absl::Status status;
  std::thread waiting([&] {
    status = transports[0]->Connect(SpecOf(transports, 0, 3), kPatience, nullptr).status();
  });
  transports[0]->CancelConnect(Generation(3));
  waiting.join();
  CHECK(absl::IsAborted(status));
  CHECK(absl::IsAborted(
      transports[0]->Connect(SpecOf(transports, 0, 2), kPatience, nullptr).status()));
  const auto statuses = OnAllRanks(2, [&](int rank) {
    return transports[static_cast<size_t>(rank)]
        ->Connect(SpecOf(transports, rank, 4), kPatience, nullptr)
        .status();
  });
  for (const absl::Status& each : statuses) CHECK(each.ok());
}

TEST_CASE("connect: a newer generation is prepared while an older one works", "[comm]") {
  const Backend backend = GENERATE(Backend::kThread, Backend::kTcp, Backend::kShared);
  const auto transports = MakeTransports(backend, 2);
  const auto statuses = OnAllRanks(2, [&](int rank) -> absl::Status {
    Transport& transport = *transports[static_cast<size_t>(rank)];
    auto older = transport.Connect(SpecOf(transports, rank, 1), kPatience, nullptr);
    if (!older.ok()) return older.status();
    absl::Status prepared;
    std::unique_ptr<Communicator> newer;
    std::thread background([&] {
      auto connected = transport.Connect(SpecOf(transports, rank, 2), kPatience, nullptr);
      prepared = connected.status();
      if (connected.ok()) newer = *std::move(connected);
    });
    absl::Status status;
    for (int i = 0; i < 20; ++i) status.Update((*older)->Barrier(kPatience));
    background.join();
    status.Update(prepared);
    if (status.ok()) status = newer->Barrier(kPatience);
    if (status.ok()) status = (*older)->Barrier(kPatience);
    return status;
  });
  for (const absl::Status& status : statuses) {
    INFO(std::string(status.message()));
    CHECK(status.ok());
  }
}

TEST_CASE("connect: a peer on this host that does not share memory is reached over TCP", "[comm]") {
  std::vector<std::unique_ptr<Transport>> transports;
  transports.push_back(std::move(MakeTransports(Backend::kTcp, 1)[0]));
  transports.push_back(std::move(MakeTransports(Backend::kShared, 1)[0]));
  const auto statuses = OnAllRanks(2, [&](int rank) -> absl::Status {
    auto connected = transports[static_cast<size_t>(rank)]->Connect(SpecOf(transports, rank),
                                                                    kPatience, nullptr);
    return connected.ok() ? (*connected)->Barrier(kPatience) : connected.status();
  });
  for (const absl::Status& status : statuses) CHECK(status.ok());
}

}  // namespace
}  // namespace starling::comm::testing
