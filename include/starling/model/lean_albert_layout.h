// Names, shapes and aliases of a LeanALBERT state dict, derived from its config alone: whoever
// plans, counts, checks or writes parameters needs no tensor. Torch-free; plain values;
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "starling/model/lean_albert_config.h"

namespace starling::model {

// How version 0 of a tensor is drawn (FillInitialValues).
struct InitRule {
  enum class Kind { kZeros, kOnes, kNormal, kUniform };
  Kind kind = Kind::kZeros;
  double scale = 0;       // standard deviation of kNormal; kUniform is over [−scale, scale)
  int64_t zero_row = -1;  // row set to zero afterwards (the word embedding's padding row), or −1
};

// One entry of the state dict.
struct LayoutEntry {
  std::string name;
  std::vector<int64_t> shape;
  bool is_buffer = false;  // position_ids: int64, not trained
  std::string alias_of;    // name of the first entry with the same storage; empty for that one
  int64_t parameter = -1;  // index into ParameterLayout::parameters; −1 for a buffer
  InitRule init;

  int64_t element_count() const;  // product of `shape`
};

struct ParameterLayout {
  // The whole state dict in the reference's order: aliases and buffers too, which our checkpoints
  // leave out.
  std::vector<LayoutEntry> entries;
  // Indices into `entries` of the distinct parameters, in gradient and optimizer order.
  std::vector<size_t> parameters;

  const LayoutEntry& parameter(size_t i) const { return entries[parameters[i]]; }
  size_t parameter_count() const { return parameters.size(); }
  int64_t total_values() const;     // over all entries, aliases counted again; buffers included
  int64_t distinct_values() const;  // over the distinct parameters: what is stored and trained
};

// REQUIRES: config.Validate().empty().
ParameterLayout MakeParameterLayout(const LeanAlbertConfig& config);

// Whether weight decay applies: not to a name that ends in "bias" or "norm.weight".
bool HasWeightDecay(std::string_view name);

// Writes elements [first, first + values.size()) of version 0 of parameter number `parameter`. Each
// value is a function of (seed, parameter, element) by IEEE additions, products, quotients and
// square roots only, so every worker builds the same bits, however the elements are cut among
// threads.
void FillInitialValues(const ParameterLayout& layout, size_t parameter, uint64_t seed,
                       int64_t first, std::span<float> values);

// The standard normal's inverse distribution function for p in (0, 1), to about 1e-15 (Wichura,
// algorithm AS 241, 1988). The same bits on every platform.
double InverseNormal(double p);

}  // namespace starling::model
