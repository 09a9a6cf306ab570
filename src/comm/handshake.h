// The four messages that two processes exchange before a connection may carry a collective:
//
//   connector → acceptor   Hello       who calls whom, in which run and generation
//   acceptor  → connector  Challenge   random bytes (or a refusal)
//   connector → acceptor   Proof       HMAC of both under the generation's secret
//   acceptor  → connector  Welcome     HMAC of both under it, labelled differently (or a refusal);
//                                      over a UNIX socket the shared memory comes with it
//
// The connector proves itself first, so a stranger learns nothing to try secrets on. All messages
// have fixed sizes and are little endian. Pure functions; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "starling/base/ids.h"
#include "starling/base/sha256.h"

namespace starling::comm {

// Grows with every change of what is said on connections, the collectives' messages included.
constexpr uint32_t kWireVersion = 1;

enum class ConnectionRole : uint8_t {
  kControl = 0,        // TCP control stream
  kData = 1,           // TCP message channel
  kControlMemory = 2,  // UNIX control stream; the messages go through shared memory
};

enum class Refusal : uint8_t {
  kNone = 0,
  kVersion = 1,    // other wire version
  kRun = 2,        // other run id
  kStale = 3,      // a generation that this process has left behind
  kIdentity = 4,   // rank, incarnation or group size differ from the view
  kSecret = 5,     // wrong proof
  kResources = 6,  // no shared memory to be had
};
const char* Describe(Refusal refusal);

using Bytes32 = std::array<char, 32>;
inline std::string TextOf(const Bytes32& bytes) { return {bytes.data(), bytes.size()}; }

struct Hello {
  uint32_t version = kWireVersion;
  ConnectionRole role = ConnectionRole::kControl;
  Generation generation;
  Incarnation from_incarnation;
  Incarnation to_incarnation;
  int32_t from_rank = 0;
  int32_t to_rank = 0;
  int32_t group_size = 0;
  Sha256Digest run_digest = {};  // of the run id
  Bytes32 nonce = {};
};
constexpr size_t kHelloBytes = 120;
std::string Encode(const Hello& hello);
// Nothing when the bytes are not a Hello at all. A Hello of another version is decoded, to be
// refused by name.
std::optional<Hello> DecodeHello(std::string_view bytes);

// Challenge, Welcome and refusals.
struct Answer {
  enum class Type : uint8_t { kChallenge = 1, kWelcome = 2, kRefused = 3 };
  Type type = Type::kRefused;
  Refusal refusal = Refusal::kNone;
  Bytes32 body = {};  // nonce of a Challenge, HMAC of a Welcome
};
constexpr size_t kAnswerBytes = 40;
std::string Encode(const Answer& answer);
std::optional<Answer> DecodeAnswer(std::string_view bytes);

constexpr size_t kProofBytes = 32;

enum class Side { kConnector, kAcceptor };
// HMAC-SHA256 of `side`, the encoded Hello and the Challenge's nonce.
Bytes32 Prove(Side side, const std::string& secret, std::string_view hello, const Bytes32& nonce);

}  // namespace starling::comm
