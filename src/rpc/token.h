// The shared secret of a run on the wire: metadata of every call. Pure; thread-safe.
#pragma once

#include <grpcpp/support/string_ref.h>

#include <map>
#include <string>

namespace starling::rpc {

inline constexpr char kTokenMetadata[] = "starling-token";
// The server's word that a stream was admitted; a client is connected once it has seen it.
inline constexpr char kAcceptedMetadata[] = "starling-accepted";

// Whether the call's metadata hold `token`; an empty one admits everybody.
bool Admitted(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata,
              const std::string& token);

}  // namespace starling::rpc
