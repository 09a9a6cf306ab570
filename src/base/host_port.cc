#include "starling/base/host_port.h"

#include <arpa/inet.h>

#include <charconv>

#include "absl/strings/str_cat.h"

namespace starling {

absl::StatusOr<HostPort> ParseHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  HostPort parsed;
  if (colon != std::string_view::npos) {
    parsed.host = std::string(text.substr(0, colon));
    const std::string_view port = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), parsed.port);
    if (parsed.host.size() > 2 && parsed.host.front() == '[' && parsed.host.back() == ']') {
      parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
    }
    if (error == std::errc() && end == port.data() + port.size() && parsed.port >= 0 &&
        parsed.port <= 65535 && !parsed.host.empty()) {
      return parsed;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", std::string(text), "' is no address: HOST:PORT is wanted"));
}

std::string JoinHostPort(const std::string& host, int port) {
  const bool brackets = host.find(':') != std::string::npos;
  return brackets ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

bool IsLoopback(const std::string& host) {
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return host == "localhost";
}

}  // namespace starling
