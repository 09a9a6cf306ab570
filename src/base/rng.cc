#include "starling/base/rng.h"

namespace starling {

std::array<uint32_t, 4> Philox(uint64_t key, std::array<uint32_t, 4> counter) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

uint64_t Draw(const DrawAddress& a) {
  // 64 + 32 + 32 + 32 + 32 bits of address do not fit a Philox counter: the step and the purpose go
  // through Mix64 into the key. Distinct (step, purpose) give independent streams.
  const uint64_t key =
      Mix64(a.seed) ^ Mix64(Mix64(a.step) + static_cast<uint64_t>(a.purpose) * 0x9E3779B97F4A7C15);
  const auto block =
      Philox(key, {a.counter, a.row, a.micro_batch, static_cast<uint32_t>(a.purpose)});
  return (static_cast<uint64_t>(block[1]) << 32) | block[0];
}

double ToUnit(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }

uint64_t ToBounded(uint64_t bits, uint64_t bound) {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * bound) >> 64);
}

uint64_t Mix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

}  // namespace starling
