// Distances and suggestions for mistyped words.
#include "starling/config/nearest.h"

#include <catch2/catch_test_macros.hpp>

namespace starling::config {

TEST_CASE("edit distance: insertions, deletions, replacements and swaps cost one each",
          "[config]") {
  CHECK(EditDistance("", "") == 0);
  CHECK(EditDistance("", "abc") == 3);
  CHECK(EditDistance("steps", "stps") == 1);
  CHECK(EditDistance("steps", "stepss") == 1);
  CHECK(EditDistance("steps", "staps") == 1);
  CHECK(EditDistance("steps", "setps") == 1);
  CHECK(EditDistance("kitten", "sitting") == 3);
}

TEST_CASE("nearest: the closest word wins, nothing like it gives nothing", "[config]") {
  CHECK(Nearest("prepair", {"version", "prepare", "validate"}) == "prepare");
  CHECK(Nearest("valdate", {"version", "prepare", "validate"}) == "validate");
  CHECK(Nearest("zzzzzz", {"version", "prepare", "validate"}).empty());
  CHECK(Nearest("x", {}).empty());
}

}  // namespace starling::config
