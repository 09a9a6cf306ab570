#include "starling/train/flat_layout.h"

#include <algorithm>

#include "starling/base/log.h"
#include "starling/model/lean_albert_layout.h"

namespace starling::train {
namespace {

constexpr int64_t kAlignment = 16;  // elements; 64 bytes

}  // namespace

FlatLayout MakeFlatLayout(const model::LeanAlbertConfig& config) {
  const model::ParameterLayout parameters = model::MakeParameterLayout(config);
  FlatLayout layout;
  for (size_t i = 0; i < parameters.parameter_count(); ++i) {
    const model::LayoutEntry& entry = parameters.parameter(i);
    const int64_t count = entry.element_count();
    layout.tensors.push_back(
        {entry.name, entry.shape, layout.size, count, model::HasWeightDecay(entry.name)});
    layout.size += (count + kAlignment - 1) / kAlignment * kAlignment;
  }
  return layout;
}

std::vector<TensorPart> PartsOf(const FlatLayout& layout, std::span<const comm::Range> ranges) {
  std::vector<TensorPart> parts;
  for (const comm::Range& range : ranges) {
    STARLING_CHECK(range.begin >= 0 && range.begin <= range.end && range.end <= layout.size)
        << "range [" << range.begin << ", " << range.end << ") of a flat space of " << layout.size;
    // The first tensor that ends after the range begins.
    auto tensor =
        std::partition_point(layout.tensors.begin(), layout.tensors.end(),
                             [&](const FlatTensor& t) { return t.begin + t.count <= range.begin; });
    for (; tensor != layout.tensors.end() && tensor->begin < range.end; ++tensor) {
      const comm::Range part = {std::max(range.begin, tensor->begin),
                                std::min(range.end, tensor->begin + tensor->count)};
      if (part.begin < part.end) {
        parts.push_back({static_cast<size_t>(tensor - layout.tensors.begin()), part});
      }
    }
  }
  return parts;
}

}  // namespace starling::train
