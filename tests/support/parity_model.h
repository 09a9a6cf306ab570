// A model whose weights come from a parity file. Include torch before Catch2.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "starling/model/lean_albert.h"
#include "support/tensors.h"

namespace starling::testing {

// The distinct parameters of `config`, filled with "param.<name>" of `file`. Empty, with the reason
// in `error`, when a name is absent, has another shape, or an alias differs from what it aliases.
inline std::vector<at::Tensor> LoadParameters(const model::LeanAlbertConfig& config,
                                              const VectorFile& file, std::string* error) {
  const model::ParameterLayout layout = model::MakeParameterLayout(config);
  std::vector<at::Tensor> parameters = model::AllocateParameters(layout);
  for (const model::LayoutEntry& entry : layout.entries) {
    const at::Tensor value = file.Get("param." + entry.name);
    if (entry.is_buffer && !value.defined()) continue;
    if (!value.defined() || value.sizes() != at::IntArrayRef(entry.shape)) {
      *error = "param." + entry.name + " is absent or has another shape";
      return {};
    }
    if (entry.is_buffer) continue;
    at::Tensor target = parameters[static_cast<size_t>(entry.parameter)].detach();
    if (entry.alias_of.empty()) {
      target.copy_(value);
    } else if (!target.equal(value)) {
      *error = "param." + entry.name + " differs from " + entry.alias_of;
      return {};
    }
  }
  return parameters;
}

}  // namespace starling::testing
