// Tensors out of safetensors files, and comparisons that name the worst element. Include torch
// before Catch2 in every file that uses this (both define CHECK).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Logging.h>

#include <cmath>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "starling/checkpoint/safetensors.h"

namespace starling::testing {

// A copy of `view` with storage of its own.
inline at::Tensor ToTensor(const checkpoint::TensorView& view) {
  at::ScalarType type = at::kFloat;
  if (view.dtype == DType::kFloat64) type = at::kDouble;
  if (view.dtype == DType::kInt64) type = at::kLong;
  if (view.dtype == DType::kUint8) type = at::kByte;
  at::Tensor tensor = at::empty(view.shape, at::TensorOptions().dtype(type));
  if (tensor.nbytes() == view.data.size()) {
    std::memcpy(tensor.mutable_data_ptr(), view.data.data(), view.data.size());
  } else {
    tensor.fill_(std::nan(""));  // a type that the vectors do not use: every comparison fails
  }
  return tensor;
}

// A parity file. Get() of an absent name gives an undefined tensor.
class VectorFile {
 public:
  explicit VectorFile(const std::string& path) : file_(checkpoint::SafetensorsFile::Open(path)) {}

  absl::Status status() const { return file_.status(); }
  bool Has(const std::string& name) const { return file_.ok() && file_->Find(name).ok(); }
  at::Tensor Get(const std::string& name) const {
    if (!file_.ok()) return {};
    const auto view = file_->Find(name);
    return view.ok() ? ToTensor(*view) : at::Tensor();
  }
  // Names that begin with `prefix`, prefix included.
  std::vector<std::string> Names(const std::string& prefix) const {
    std::vector<std::string> names;
    if (!file_.ok()) return names;
    for (const auto& tensor : file_->tensors()) {
      if (tensor.name.starts_with(prefix)) names.push_back(tensor.name);
    }
    return names;
  }

 private:
  absl::StatusOr<checkpoint::SafetensorsFile> file_;
};

// max |x|, 0 for an empty tensor.
inline double MaxAbs(const at::Tensor& x) {
  return x.numel() == 0 ? 0.0 : x.detach().to(at::kDouble).abs().max().item<double>();
}

// Empty when |got − want| ≤ tolerance everywhere; else one line with the worst element. NaN fails.
inline std::string WorstBeyond(const std::string& name, const at::Tensor& got,
                               const at::Tensor& want, const at::Tensor& tolerance) {
  std::ostringstream text;
  if (!got.defined() || !want.defined()) {
    text << name << ": " << (got.defined() ? "no reference" : "nothing computed");
    return text.str();
  }
  const at::Tensor a = got.detach().to(at::kDouble).flatten();
  const at::Tensor b = want.detach().to(at::kDouble).flatten();
  if (a.numel() != b.numel()) {
    text << name << ": shape " << got.sizes() << ", reference " << want.sizes();
    return text.str();
  }
  if (a.numel() == 0) return "";
  const at::Tensor limit = tolerance.to(at::kDouble).expand_as(want).flatten();
  const at::Tensor difference = (a - b).abs();
  const at::Tensor excess = (difference - limit).nan_to_num(1e300);
  const int64_t at = excess.argmax().item<int64_t>();
  if (excess[at].item<double>() <= 0) return "";
  text.precision(9);
  text << name << ": element " << at << " of " << want.sizes() << " is " << a[at].item<double>()
       << ", reference " << b[at].item<double>() << ", difference " << difference[at].item<double>()
       << ", allowed " << limit[at].item<double>();
  return text.str();
}

inline std::string WorstBeyond(const std::string& name, const at::Tensor& got,
                               const at::Tensor& want, double tolerance) {
  return WorstBeyond(name, got, want,
                     at::empty({}, at::TensorOptions().dtype(at::kDouble)).fill_(tolerance));
}

// Model outputs and losses: tolerance · max(1, max |reference|).
inline std::string CompareOutput(const std::string& name, const at::Tensor& got,
                                 const at::Tensor& want, double tolerance = 1e-5) {
  const double scale = want.defined() ? std::max(1.0, MaxAbs(want)) : 1.0;
  return WorstBeyond(name, got, want, tolerance * scale);
}

// Gradients: tolerance · max |reference|.
inline std::string CompareGradient(const std::string& name, const at::Tensor& got,
                                   const at::Tensor& want, double tolerance = 1e-4) {
  return WorstBeyond(name, got, want, want.defined() ? tolerance * MaxAbs(want) : 0.0);
}

}  // namespace starling::testing
