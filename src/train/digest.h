// Digest of a version (protocol.md §8), which tells whether two workers hold the same bits. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "starling/train/flat_layout.h"

namespace starling::train {

inline constexpr int64_t kDigestBlock = 4096;  // elements of the flat space

using DigestSum = std::array<uint64_t, 4>;

// Σ with wrap-around, over `buffers` (numbered 0, 1, …) and the blocks in `ranges`, of
// SHA-256(number of the buffer, number of the block, elements without padding), taken as four
// little-endian 64-bit lanes; both numbers enter as little-endian uint64. The sums of disjoint
// ranges add up to the sum of their union. REQUIRES: ranges begin and end on multiples of
// kDigestBlock or at the end of the flat space.
DigestSum DigestOf(const FlatLayout& layout, std::span<const std::span<const float>> buffers,
                   std::span<const comm::Range> ranges);

}  // namespace starling::train
