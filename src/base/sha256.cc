#include "starling/base/sha256.h"

#include <openssl/evp.h>

#include "starling/base/log.h"

namespace starling {

struct Sha256Stream::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();

  Context() { STARLING_CHECK(evp != nullptr) << "no memory for a SHA-256 context"; }
  ~Context() { EVP_MD_CTX_free(evp); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  void Start() {
    STARLING_CHECK(EVP_DigestInit_ex(evp, EVP_sha256(), nullptr) == 1) << "OpenSSL has no SHA-256";
  }
};

Sha256Stream::Sha256Stream() : context_(std::make_unique<Context>()) { context_->Start(); }
Sha256Stream::~Sha256Stream() = default;

void Sha256Stream::Update(const void* data, size_t bytes) {
  STARLING_CHECK(EVP_DigestUpdate(context_->evp, data, bytes) == 1) << "SHA-256 update failed";
}

Sha256Digest Sha256Stream::Finish() {
  Sha256Digest digest;
  unsigned int bytes = 0;
  STARLING_CHECK(EVP_DigestFinal_ex(context_->evp, digest.data(), &bytes) == 1 &&
                 bytes == digest.size())
      << "SHA-256 gave " << bytes << " bytes";
  context_->Start();
  return digest;
}

Sha256Digest Sha256(std::string_view data) {
  Sha256Stream stream;
  stream.Update(data);
  return stream.Finish();
}

std::string ToHex(const Sha256Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (uint8_t byte : digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace starling
