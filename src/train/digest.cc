#include "train/digest.h"

#include <algorithm>
#include <cstring>

#include "starling/base/log.h"
#include "starling/base/sha256.h"

namespace starling::train {
namespace {

// Parts of block `index`, in order.
std::vector<TensorPart> BlockParts(const FlatLayout& layout, int64_t index) {
  const int64_t begin = index * kDigestBlock;
  const comm::Range block = {begin, std::min(begin + kDigestBlock, layout.size)};
  return PartsOf(layout, std::span(&block, 1));
}

void AddBlock(std::span<const float> buffer, uint64_t number, uint64_t index,
              std::span<const TensorPart> parts, Sha256Stream* stream, DigestSum* sum) {
  const uint64_t header[2] = {number, index};
  stream->Update(header, sizeof(header));
  for (const TensorPart& part : parts) {
    const auto count = static_cast<size_t>(part.range.end - part.range.begin);
    stream->Update(buffer.data() + part.range.begin, count * sizeof(float));
  }
  const Sha256Digest digest = stream->Finish();
  for (size_t lane = 0; lane < sum->size(); ++lane) {
    uint64_t value;
    std::memcpy(&value, digest.data() + lane * sizeof(value), sizeof(value));
    (*sum)[lane] += value;
  }
}

}  // namespace

DigestSum DigestOf(const FlatLayout& layout, std::span<const std::span<const float>> buffers,
                   std::span<const comm::Range> ranges) {
  DigestSum sum = {};
  Sha256Stream stream;
  for (const comm::Range& range : ranges) {
    STARLING_CHECK(range.begin % kDigestBlock == 0 &&
                   (range.end % kDigestBlock == 0 || range.end == layout.size))
        << "digest of [" << range.begin << ", " << range.end << ") cuts a block";
    const int64_t last = (range.end + kDigestBlock - 1) / kDigestBlock;
    for (int64_t index = range.begin / kDigestBlock; index < last; ++index) {
      const std::vector<TensorPart> parts = BlockParts(layout, index);
      for (size_t number = 0; number < buffers.size(); ++number) {
        AddBlock(buffers[number], number, static_cast<uint64_t>(index), parts, &stream, &sum);
      }
    }
  }
  return sum;
}

}  // namespace starling::train
