// CRC32C against the check values of RFC 3720, appendix B.4, and against splitting.
#include "starling/base/crc32c.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

namespace starling {

TEST_CASE("crc32c: known vectors", "[base]") {
  CHECK(Crc32c("123456789") == 0xE3069283u);
  CHECK(Crc32c(std::string(32, '\0')) == 0x8A9136AAu);
  CHECK(Crc32c(std::string(32, '\xff')) == 0x62A8AB43u);
  CHECK(Crc32c("") == 0u);
}

TEST_CASE("crc32c: continuing equals the whole", "[base]") {
  const std::string text = "Скажи-ка, дядя, ведь не даром";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    CHECK(Crc32c(text.substr(cut), Crc32c(text.substr(0, cut))) == Crc32c(text));
  }
}

}  // namespace starling
