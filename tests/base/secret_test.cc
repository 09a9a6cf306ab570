// Random bytes and the comparison of secrets.
#include "starling/base/secret.h"

#include <catch2/catch_test_macros.hpp>

namespace starling {

TEST_CASE("secret: random digits, of the wanted number and never the same", "[base]") {
  const std::string first = RandomHex(32);
  CHECK(first.size() == 64);
  CHECK(first.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(first != RandomHex(32));
  CHECK(RandomHex(0).empty());
}

TEST_CASE("secret: equal only when every byte is", "[base]") {
  CHECK(SameSecret("", ""));
  CHECK(SameSecret("abc", "abc"));
  CHECK_FALSE(SameSecret("abc", "abd"));
  CHECK_FALSE(SameSecret("abc", "ab"));
  CHECK_FALSE(SameSecret(std::string("a\0b", 3), std::string("a\0c", 3)));
}

}  // namespace starling
