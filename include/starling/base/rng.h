// Counter-based random numbers: every draw has an address, none is consumed in order, so any worker
// produces the same numbers for the same micro-batch and there is no state to save. Pure functions;
// the same on every platform.
//
// Philox 4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11).
#pragma once

#include <array>
#include <cstdint>

namespace starling {

// What a draw is for; part of its address. Numbers are final: they decide the data of a run.
enum class DrawPurpose : uint32_t {
  kSentenceSplit = 1,      // a_end of a sentence-order pair
  kSentenceSwap = 2,       // whether A and B change places
  kWordShuffle = 3,        // Fisher–Yates over word groups; counter = k
  kReplaceWithMask = 4,    // 80 % of the chosen tokens; counter = position
  kReplaceWithRandom = 5,  // half of the rest; counter = position
  kRandomToken = 6,        // the random id; counter = position
  kPermutation = 7,        // round keys of the pass permutation
  kDropout = 8,            // seed of a micro-batch's dropout stream
  kParameterInit = 9,      // version 0 of the weights
};

// Address of a draw. `step`, `micro_batch`, `row` are the sample's place; `counter` tells the draws
// of one purpose apart.
struct DrawAddress {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint32_t micro_batch = 0;
  uint32_t row = 0;
  DrawPurpose purpose = DrawPurpose::kDropout;
  uint32_t counter = 0;
};

// One Philox4x32-10 block: 128 random bits from a 64-bit key and a 128-bit counter.
std::array<uint32_t, 4> Philox(uint64_t key, std::array<uint32_t, 4> counter);

// 64 uniform bits for this address.
uint64_t Draw(const DrawAddress& address);

// Uniform in [0, 1) with 53 bits.
double ToUnit(uint64_t bits);

// Uniform in [0, bound) by the high half of a 64 × 64-bit product; the bias is below bound / 2^64.
// REQUIRES: bound > 0.
uint64_t ToBounded(uint64_t bits, uint64_t bound);

// Bijective mixing of 64 bits (the finaliser of SplitMix64, Steele et al., OOPSLA'14).
uint64_t Mix64(uint64_t x);

}  // namespace starling
