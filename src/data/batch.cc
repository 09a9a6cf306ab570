#include "starling/data/batch.h"

#include <algorithm>

#include "starling/base/log.h"

namespace starling::data {

int64_t PaddedLength(uint64_t longest, uint64_t multiple, uint64_t cap) {
  STARLING_CHECK(multiple > 0);
  const uint64_t rounded = (longest + multiple - 1) / multiple * multiple;
  return static_cast<int64_t>(std::max(longest, std::min(rounded, cap)));
}

Batch AssembleBatch(std::span<const MaskedInstance> rows, int64_t length, int32_t pad_id) {
  Batch batch;
  batch.rows = static_cast<int64_t>(rows.size());
  batch.length = length;
  const size_t elements = rows.size() * static_cast<size_t>(length);
  batch.input_ids.assign(elements, pad_id);
  batch.token_type_ids.assign(elements, 0);
  batch.attention_mask.assign(elements, 0);
  batch.labels.assign(elements, kIgnoredLabel);
  for (size_t r = 0; r < rows.size(); ++r) {
    const Instance& instance = rows[r].instance;
    const size_t tokens = instance.ids.size();
    STARLING_CHECK(static_cast<int64_t>(tokens) <= length) << tokens << " tokens in " << length;
    const auto at = static_cast<std::ptrdiff_t>(r * static_cast<size_t>(length));
    std::copy(instance.ids.begin(), instance.ids.end(), batch.input_ids.begin() + at);
    std::copy(instance.type_ids.begin(), instance.type_ids.end(),
              batch.token_type_ids.begin() + at);
    std::fill_n(batch.attention_mask.begin() + at, tokens, 1);
    std::copy(rows[r].labels.begin(), rows[r].labels.end(), batch.labels.begin() + at);
    batch.sentence_order_labels.push_back(instance.sentence_order);
    batch.tokens += static_cast<int64_t>(tokens);
  }
  batch.predicted = static_cast<int64_t>(elements) -
                    std::count(batch.labels.begin(), batch.labels.end(), kIgnoredLabel);
  return batch;
}

}  // namespace starling::data
