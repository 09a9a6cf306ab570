// Addresses as text.
#include "starling/base/host_port.h"

#include <catch2/catch_test_macros.hpp>

namespace starling {

TEST_CASE("address: host and port, read or refused", "[base]") {
  CHECK(ParseHostPort("127.0.0.1:80")->port == 80);
  CHECK(ParseHostPort("[::1]:0")->host == "::1");
  CHECK(JoinHostPort("::1", 7) == "[::1]:7");
  CHECK(JoinHostPort("host", 7) == "host:7");
  for (const char* bad : {"", "host", "host:", ":80", "host:65536", "host:1x", "host:-1"}) {
    INFO(bad);
    CHECK(absl::IsInvalidArgument(ParseHostPort(bad).status()));
  }
}

TEST_CASE("address: a name that looks like a loopback address, is none", "[base]") {
  for (const char* here : {"localhost", "127.0.0.1", "127.1.2.3", "::1"}) {
    INFO(here);
    CHECK(IsLoopback(here));
  }
  for (const char* elsewhere : {"127.example.com", "127.0.0.1.example.com", "localhost.example.com",
                                "0.0.0.0", "128.0.0.1", "::", "fe80::1", ""}) {
    INFO(elsewhere);
    CHECK_FALSE(IsLoopback(elsewhere));
  }
}

}  // namespace starling
