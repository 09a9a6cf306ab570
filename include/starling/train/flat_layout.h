// The flat parameter space: every distinct parameter in optimizer order, each starting on a
// multiple of 16 elements (64 bytes). Parameters, moments and gradients all lie in buffers of this
// layout. Padding is zero, and in no norm, digest or checkpoint. Torch-free; plain values;
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "starling/comm/communicator.h"
#include "starling/model/lean_albert_config.h"

namespace starling::train {

// One distinct parameter in the flat space.
struct FlatTensor {
  std::string name;  // its first checkpoint name
  std::vector<int64_t> shape;
  int64_t begin = 0;  // first element; a multiple of 16
  int64_t count = 0;  // elements, without the padding that follows
  bool decay = true;  // weight decay applies
};

struct FlatLayout {
  std::vector<FlatTensor> tensors;  // in optimizer order
  int64_t size = 0;                 // elements of a buffer, padding included; a multiple of 16
};

// The layout for a model; pure. REQUIRES: config.Validate().empty().
FlatLayout MakeFlatLayout(const model::LeanAlbertConfig& config);

// A part of one tensor.
struct TensorPart {
  size_t tensor = 0;  // index into FlatLayout::tensors
  comm::Range range;  // in the flat space, inside the tensor; never empty
  bool operator==(const TensorPart&) const = default;
};

// What `ranges` hold of each tensor, range after range; padding falls away.
// REQUIRES: ranges lie in [0, layout.size).
std::vector<TensorPart> PartsOf(const FlatLayout& layout, std::span<const comm::Range> ranges);

}  // namespace starling::train
