#include "rpc/token.h"

#include "starling/base/secret.h"

namespace starling::rpc {

bool Admitted(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata,
              const std::string& token) {
  if (token.empty()) return true;
  const auto it = metadata.find(kTokenMetadata);
  return it != metadata.end() &&
         SameSecret(std::string_view(it->second.data(), it->second.size()), token);
}

}  // namespace starling::rpc
