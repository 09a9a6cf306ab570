// The safetensors container: an 8-byte little-endian header length, a JSON header, raw tensors.
// Reading maps the file; names, shapes and offsets are checked before anything is handed out, since
// files are untrusted. Immutable after Open; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "starling/base/dtype.h"

namespace starling::checkpoint {

// One tensor inside a file or about to be written. `data` is little-endian, contiguous and owned by
// somebody else (for a reader: by the SafetensorsFile).
struct TensorView {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  std::string_view data;

  int64_t element_count() const;  // product of `shape`; 1 for a scalar
};

class SafetensorsFile {
 public:
  // Maps `path`. NotFound when absent; DataLoss, naming the file, tensor and rule, when the header
  // is malformed, a tensor leaves the file, tensors overlap or leave holes, or a size contradicts
  // the shape.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  // The same over bytes in memory, which must outlive the object.
  static absl::StatusOr<SafetensorsFile> Parse(std::string_view bytes, const std::string& name);

  // The tensor of that name, or NotFound.
  absl::StatusOr<TensorView> Find(std::string_view name) const;
  // All tensors in the order of their data.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  // Free-form strings under "__metadata__".
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  std::shared_ptr<const void> mapping_;  // keeps the bytes behind `tensors_` alive
  std::vector<TensorView> tensors_;
  std::map<std::string, size_t, std::less<>> index_;  // name → place in `tensors_`
  std::map<std::string, std::string> metadata_;
};

// Header bytes (length prefix included, padded with spaces to 8) for `tensors`, whose data follows
// in the given order without gaps. Fails with InvalidArgument on duplicate names or wrong sizes.
absl::StatusOr<std::string> SafetensorsHeader(std::span<const TensorView> tensors,
                                              const std::map<std::string, std::string>& metadata);

// A tensor whose data is written by somebody else, perhaps from several places.
struct TensorLayout {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
};

// As above, with the sizes of the data that the shapes demand.
absl::StatusOr<std::string> SafetensorsHeader(std::span<const TensorLayout> tensors,
                                              const std::map<std::string, std::string>& metadata);

}  // namespace starling::checkpoint
