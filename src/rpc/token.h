// The shared secret of a run on the wire: metadata of every call. Pure; thread-safe.
#pragma once

#include <grpcpp/support/string_ref.h>

#include <map>
#include <string>
#include <string_view>

namespace starling::rpc {

inline constexpr char kTokenMetadata[] = "starling-token";
// The server's word that a stream was admitted; a client is connected once it has seen it.
inline constexpr char kAcceptedMetadata[] = "starling-accepted";

// Compares without telling by its time where the first difference is.
bool SameToken(std::string_view a, std::string_view b);

// Whether the call's metadata hold `token`; an empty one admits everybody.
bool Admitted(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata,
              const std::string& token);

}  // namespace starling::rpc
