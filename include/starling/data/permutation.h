// A shuffled order without a list: a bijection of [0, n) for every (seed, pass), by a Feistel
// network over the next power of four with cycle walking. Plain value, no state; thread-safe.
#pragma once

#include <array>
#include <cstdint>

namespace starling::data {

class Permutation {
 public:
  // REQUIRES: 0 < n <= 2^62. The order depends on the three arguments alone.
  Permutation(uint64_t seed, uint64_t pass, uint64_t n);

  // Where `index` goes. REQUIRES: index < size().
  uint64_t operator()(uint64_t index) const;
  uint64_t size() const { return n_; }

 private:
  static constexpr int kRounds = 8;
  uint64_t Encrypt(uint64_t value) const;  // bijection of [0, 4^half_bits)

  const uint64_t n_;
  uint32_t half_bits_ = 0;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace starling::data
