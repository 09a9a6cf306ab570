// Known answers of FIPS 180-4's examples pin the digest down.
#include "starling/base/sha256.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

namespace starling {

TEST_CASE("sha256: known answers", "[base]") {
  CHECK(ToHex(Sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(ToHex(Sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("sha256: pieces give the digest of the whole, and the stream can be used again",
          "[base]") {
  const std::string text(100000, 'x');
  Sha256Stream stream;
  for (int round = 0; round < 2; ++round) {
    for (size_t at = 0; at < text.size(); at += 777) {
      stream.Update(std::string_view(text).substr(at, 777));
    }
    CHECK(stream.Finish() == Sha256(text));
  }
}

}  // namespace starling
