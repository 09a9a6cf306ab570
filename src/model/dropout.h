// Dropout whose masks are functions of an address: (seed of the micro-batch, site, layer, element).
// No generator is consumed, so masks depend neither on the worker nor on its threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace starling::model {

// Where a mask is applied; part of its address. Numbers are final: they decide a run's masks.
enum class DropoutSite : uint32_t {
  kEmbeddings = 1,
  kAttentionProbs = 2,
  kAttentionOut = 3,
  kFfnOut = 4,
  kClassifier = 5,
};

// A place in the network: `block` counts (layer application, inner layer) pairs; 0 outside them.
struct DropoutAddress {
  DropoutSite site = DropoutSite::kEmbeddings;
  uint32_t block = 0;
};

// Returns which elements of a tensor of that shape survive with probability 1 − p: 1 = kept, uint8.
using KeepMaskSource = std::function<at::Tensor(at::IntArrayRef shape, double p, DropoutAddress)>;

// The production source: Philox blocks keyed by `seed`.
KeepMaskSource SeededMasks(uint64_t seed);

// x · keep / (1 − p). Returns x itself when p is 0 or `source` is empty (evaluation).
at::Tensor ApplyDropout(const at::Tensor& x, double p, const KeepMaskSource& source,
                        DropoutAddress address);

}  // namespace starling::model
