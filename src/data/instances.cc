#include "starling/data/instances.h"

#include <algorithm>
#include <numeric>

#include "starling/base/log.h"

namespace starling::data {
namespace {

void Append(std::span<const int32_t> ids, uint8_t type, const SpecialIds& special, Instance* to) {
  to->ids.insert(to->ids.end(), ids.begin(), ids.end());
  to->ids.push_back(special.sep);
  to->type_ids.resize(to->ids.size(), type);
  to->special_mask.resize(to->ids.size() - 1, 0);
  to->special_mask.push_back(1);
}

Instance StartWithCls(const SpecialIds& special) {
  Instance instance;
  instance.ids = {special.cls};
  instance.type_ids = {0};
  instance.special_mask = {1};
  return instance;
}

}  // namespace

std::pair<uint64_t, uint64_t> TruncateLongestFirst(uint64_t a, uint64_t b, uint64_t budget) {
  if (a + b <= budget) return {a, b};
  uint64_t x = std::min(a, b);
  uint64_t y = x <= budget ? std::max(x, budget - x) : x;
  if (x + y > budget) {
    x = budget / 2;
    y = budget - x;
  }
  return a <= b ? std::pair(x, y) : std::pair(y, x);
}

Instance MakeSingle(std::span<const int32_t> ids, uint64_t max_length, const SpecialIds& special) {
  STARLING_CHECK(max_length >= 3) << "max_length " << max_length;
  Instance instance = StartWithCls(special);
  Append(ids.first(std::min<uint64_t>(ids.size(), max_length - 2)), 0, special, &instance);
  return instance;
}

Instance MakeInstance(std::span<const int32_t> ids, std::span<const uint32_t> sentence_lengths,
                      PairDraws draws, uint64_t max_length, const SpecialIds& special) {
  if (sentence_lengths.size() < 2) return MakeSingle(ids, max_length, special);
  STARLING_CHECK(draws.a_end >= 1 && draws.a_end < sentence_lengths.size())
      << "a_end " << draws.a_end << " of " << sentence_lengths.size() << " sentences";
  STARLING_CHECK(max_length >= 3) << "max_length " << max_length;
  const uint64_t a_tokens = std::accumulate(sentence_lengths.begin(),
                                            sentence_lengths.begin() + draws.a_end, uint64_t{0});
  std::span<const int32_t> first = ids.first(a_tokens), second = ids.subspan(a_tokens);
  if (draws.swap) std::swap(first, second);
  const auto [kept_first, kept_second] =
      TruncateLongestFirst(first.size(), second.size(), max_length - 3);
  Instance instance = StartWithCls(special);
  Append(first.first(kept_first), 0, special, &instance);
  Append(second.first(kept_second), 1, special, &instance);
  instance.sentence_order = draws.swap ? 1 : 0;
  return instance;
}

}  // namespace starling::data
