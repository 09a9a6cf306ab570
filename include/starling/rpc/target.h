// Where a coordinator is and how to be let in. Functions; thread-safe; they read small files.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace starling::rpc {

inline constexpr std::string_view kEndpointFile = "endpoint";
inline constexpr std::string_view kTokenFile = "token";
inline constexpr const char* kTokenVariable = "STARLING_TOKEN";

// How a client names its coordinator. `endpoint` wins over the run folder's `endpoint` file; the
// token is, in this order: `token`, the environment's STARLING_TOKEN, the run folder's `token`.
struct Target {
  std::string endpoint;    // HOST:PORT
  std::string run_folder;  // both files are read again at each try
  std::string token;
};

struct Address {
  std::string endpoint;
  std::string token;  // may be empty: the server will refuse it
};

// Unavailable when there is no `endpoint` file (yet); InvalidArgument when the target names nothing
// or the endpoint is not HOST:PORT.
absl::StatusOr<Address> Resolve(const Target& target);

// The token of a run, for its coordinator: STARLING_TOKEN, else the content of the run folder's
// `token` file, else 32 random bytes in hexadecimal. Afterwards the file holds it: one that is
// written here has mode 0600, one that held it already keeps its own. InvalidArgument for a token
// that is shorter than 16 characters or not printable ASCII; the file system's error when the file
// is there and cannot be read: it is never replaced then.
absl::StatusOr<std::string> LoadOrMakeToken(const std::string& run_folder);

}  // namespace starling::rpc
