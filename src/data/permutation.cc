#include "starling/data/permutation.h"

#include <bit>

#include "starling/base/log.h"
#include "starling/base/rng.h"

namespace starling::data {

Permutation::Permutation(uint64_t seed, uint64_t pass, uint64_t n) : n_(n) {
  STARLING_CHECK(n > 0 && n <= (uint64_t{1} << 62)) << "n " << n;
  half_bits_ = (static_cast<uint32_t>(std::bit_width(n - 1)) + 1) / 2;
  for (int round = 0; round < kRounds; ++round) {
    keys_[round] = Draw({.seed = seed,
                         .step = pass,
                         .purpose = DrawPurpose::kPermutation,
                         .counter = static_cast<uint32_t>(round)});
  }
}

uint64_t Permutation::Encrypt(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (const uint64_t key : keys_) {
    // The high bits of the mixed word: its low ones alone would do for small halves, too.
    const uint64_t mixed = left ^ ((Mix64(right ^ key) >> 20) & mask);
    left = right;
    right = mixed;
  }
  return (left << half_bits_) | right;
}

uint64_t Permutation::operator()(uint64_t index) const {
  STARLING_CHECK(index < n_) << "index " << index << " of " << n_;
  if (half_bits_ == 0) return 0;
  // The cycle through `index` comes back to [0, n): index itself lies there. Four walks at worst on
  // average, for the domain is less than 4·n.
  do {
    index = Encrypt(index);
  } while (index >= n_);
  return index;
}

}  // namespace starling::data
