#include "comm/handshake.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <bit>
#include <cstring>

#include "starling/base/log.h"

namespace starling::comm {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kHelloMagic = 0x314c454853524154;  // "TARSHEL1"
constexpr uint32_t kAnswerMagic = 0x31534e41;         // "ANS1"

template <typename T>
void Put(std::string* out, const T& value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T Get(std::string_view* in) {
  T value;
  std::memcpy(&value, in->data(), sizeof(value));
  in->remove_prefix(sizeof(value));
  return value;
}

}  // namespace

const char* Describe(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      return "no reason";
    case Refusal::kVersion:
      return "it speaks another version of the protocol";
    case Refusal::kRun:
      return "it belongs to another run";
    case Refusal::kStale:
      return "it has left this generation behind";
    case Refusal::kIdentity:
      return "it expects another rank, incarnation or group size";
    case Refusal::kSecret:
      return "it does not accept our proof of the generation's secret";
    case Refusal::kResources:
      return "it cannot get shared memory";
  }
  return "an unknown reason";
}

std::string Encode(const Hello& hello) {
  std::string out;
  Put(&out, kHelloMagic);
  Put(&out, hello.version);
  Put(&out, static_cast<uint32_t>(hello.role));
  Put(&out, hello.generation.value());
  Put(&out, hello.from_incarnation.value());
  Put(&out, hello.to_incarnation.value());
  Put(&out, hello.from_rank);
  Put(&out, hello.to_rank);
  Put(&out, hello.group_size);
  Put(&out, uint32_t{0});
  Put(&out, hello.run_digest);
  Put(&out, hello.nonce);
  return out;
}

std::optional<Hello> DecodeHello(std::string_view bytes) {
  if (bytes.size() != kHelloBytes || Get<uint64_t>(&bytes) != kHelloMagic) return std::nullopt;
  Hello hello;
  hello.version = Get<uint32_t>(&bytes);
  const uint32_t role = Get<uint32_t>(&bytes);
  if (role > static_cast<uint32_t>(ConnectionRole::kControlMemory)) return std::nullopt;
  hello.role = static_cast<ConnectionRole>(role);
  hello.generation = Generation(Get<uint64_t>(&bytes));
  hello.from_incarnation = Incarnation(Get<uint64_t>(&bytes));
  hello.to_incarnation = Incarnation(Get<uint64_t>(&bytes));
  hello.from_rank = Get<int32_t>(&bytes);
  hello.to_rank = Get<int32_t>(&bytes);
  hello.group_size = Get<int32_t>(&bytes);
  Get<uint32_t>(&bytes);
  hello.run_digest = Get<Sha256Digest>(&bytes);
  hello.nonce = Get<Bytes32>(&bytes);
  return hello;
}

std::string Encode(const Answer& answer) {
  std::string out;
  Put(&out, kAnswerMagic);
  Put(&out, answer.type);
  Put(&out, answer.refusal);
  Put(&out, uint16_t{0});
  Put(&out, answer.body);
  return out;
}

std::optional<Answer> DecodeAnswer(std::string_view bytes) {
  if (bytes.size() != kAnswerBytes || Get<uint32_t>(&bytes) != kAnswerMagic) return std::nullopt;
  const uint8_t type = Get<uint8_t>(&bytes);
  const uint8_t refusal = Get<uint8_t>(&bytes);
  if (type < 1 || type > 3 || refusal > static_cast<uint8_t>(Refusal::kResources)) {
    return std::nullopt;
  }
  Get<uint16_t>(&bytes);
  return Answer{static_cast<Answer::Type>(type), static_cast<Refusal>(refusal),
                Get<Bytes32>(&bytes)};
}

Bytes32 Prove(Side side, const std::string& secret, std::string_view hello, const Bytes32& nonce) {
  std::string message = side == Side::kConnector ? "connector" : "acceptor";
  message.append(hello);
  message.append(nonce.data(), nonce.size());
  Bytes32 mac;
  unsigned int bytes = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(message.data()), message.size(),
       reinterpret_cast<unsigned char*>(mac.data()), &bytes);
  STARLING_CHECK(bytes == mac.size());
  return mac;
}

}  // namespace starling::comm
