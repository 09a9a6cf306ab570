#include "rpc/token.h"

#include <openssl/crypto.h>

namespace starling::rpc {

bool SameToken(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool Admitted(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata,
              const std::string& token) {
  if (token.empty()) return true;
  const auto it = metadata.find(kTokenMetadata);
  return it != metadata.end() &&
         SameToken(std::string_view(it->second.data(), it->second.size()), token);
}

}  // namespace starling::rpc
