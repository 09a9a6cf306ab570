#include "starling/base/secret.h"

#include <sys/random.h>

#include <cerrno>

#include "absl/strings/escaping.h"
#include "starling/base/log.h"

namespace starling {

void FillRandom(void* out, size_t bytes) {
  auto* next = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = getrandom(next, bytes, 0);
    STARLING_CHECK(got > 0 || errno == EINTR) << "no random bytes";
    if (got <= 0) continue;
    next += got;
    bytes -= static_cast<size_t>(got);
  }
}

std::string RandomHex(size_t bytes) {
  std::string random(bytes, '\0');
  FillRandom(random.data(), random.size());
  return absl::BytesToHexString(random);
}

bool SameSecret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;  // volatile: every byte is looked at
  for (size_t i = 0; i < a.size(); ++i) {
    difference = difference | static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

}  // namespace starling
