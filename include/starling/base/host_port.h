// HOST:PORT, as people write addresses and as files and messages carry them; an IPv6 host stands in
// brackets. Pure; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace starling {

struct HostPort {
  std::string host;  // a name or a numeric address, without brackets
  int port = 0;      // 0 … 65535
};

// InvalidArgument, with the text in it, for anything else.
absl::StatusOr<HostPort> ParseHostPort(std::string_view text);
std::string JoinHostPort(const std::string& host, int port);

// Whether only this host can reach `host`: "localhost" or a numeric loopback address. Other names
// are not looked up: "127.example.com" may be anywhere.
bool IsLoopback(const std::string& host);

}  // namespace starling
