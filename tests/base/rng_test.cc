// The random numbers decide the data of every run: known answers pin them down for good.
#include "starling/base/rng.h"

#include <catch2/catch_test_macros.hpp>
#include <set>

namespace starling {

TEST_CASE("philox: known answers of the Random123 distribution", "[base]") {
  CHECK(Philox(0, {0, 0, 0, 0}) ==
        std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(Philox(~0ull, {~0u, ~0u, ~0u, ~0u}) ==
        std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(Philox(0x299f31d0a4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}) ==
        std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("draw: every part of the address matters", "[base]") {
  std::set<uint64_t> seen;
  for (uint64_t seed : {1, 2})
    for (uint64_t step : {0, 1})
      for (uint32_t micro_batch : {0, 1})
        for (uint32_t row : {0, 1})
          for (auto purpose : {DrawPurpose::kDropout, DrawPurpose::kWordShuffle})
            for (uint32_t counter : {0, 1})
              seen.insert(Draw({seed, step, micro_batch, row, purpose, counter}));
  CHECK(seen.size() == 64);
}

TEST_CASE("bounded and unit draws stay inside", "[base]") {
  CHECK(ToBounded(0, 7) == 0);
  CHECK(ToBounded(~0ull, 7) == 6);
  CHECK(ToUnit(0) == 0.0);
  CHECK(ToUnit(~0ull) < 1.0);
}

}  // namespace starling
