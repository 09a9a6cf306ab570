// The manifest of a checkpoint: what it is the state of, and which part file holds which elements
// of which tensor. A folder without a manifest is no checkpoint. Nothing in it depends on the
// number of workers or the strategy that wrote it, so any other can read it. Plain values and pure
// functions; thread-safe. The file format is described in docs/formats.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "starling/base/dtype.h"
#include "starling/base/ids.h"

namespace starling::checkpoint {

inline constexpr int kManifestVersion = 1;
inline constexpr std::string_view kManifestFile = "manifest.json";

// What is stored for a parameter: the fp32 master copy and the optimizer's two moments.
enum class TensorKind : uint8_t { kParameter = 0, kFirstMoment = 1, kSecondMoment = 2 };

// "parameter", "m", "v", as in manifests.
std::string_view KindName(TensorKind kind);
std::optional<TensorKind> ParseKind(std::string_view name);

// Elements [begin, end) of the row-major flattened tensor `name` of `shape`, as held by one part.
struct TensorRange {
  std::string name;  // of the parameter, also for its moments
  TensorKind kind = TensorKind::kParameter;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;  // of the whole tensor
  int64_t begin = 0;
  int64_t end = 0;

  bool operator==(const TensorRange&) const = default;
};

// The number of elements of a tensor of `shape`; nothing when negative or beyond int64.
std::optional<int64_t> ElementCount(const std::vector<int64_t>& shape);

// InvalidArgument when the range leaves the tensor, is empty although the tensor is not, or the
// name is empty or begins with "m." or "v." (it would pass for a moment).
absl::Status CheckRange(const TensorRange& range);

// Name under which a part's safetensors file stores the range: `<name>`, `m.<name>` or `v.<name>`;
// when it is only a slice of the tensor, followed by `.<begin>-<end>`.
std::string StoredName(const TensorRange& range);
// Shape under which it is stored: the true one for a whole tensor, [end - begin] for a slice.
std::vector<int64_t> StoredShape(const TensorRange& range);

// One file of the checkpoint, as its writer reports it once it is durable.
struct Part {
  std::string file;  // name inside the folder, without slashes
  uint64_t bytes = 0;
  uint32_t crc32c = 0;  // of the whole file
  std::vector<TensorRange> tensors;

  bool operator==(const Part&) const = default;
};

// A part as one line of JSON, for messages and journals.
std::string EncodePart(const Part& part);
// DataLoss naming the key that is wrong.
absl::StatusOr<Part> DecodePart(std::string_view text);

struct Manifest {
  std::string run_id;
  Version version;               // the state after version.step decided steps on its timeline
  Generation generation;         // of the view in which the snapshot was taken
  int64_t optimizer_steps = 0;   // updates really made: skipped steps do not count
  int64_t samples_consumed = 0;  // over the whole history of this timeline
  std::string config_hash;       // what changes the meaning of a step
  std::string model_hash;        // names and shapes of the parameters
  std::string data_hash;         // token files and tokenizer
  uint64_t seed = 0;
  absl::Time created;                        // wall clock, for people; nothing is decided by it
  std::map<std::string, std::string> extra;  // small further state, by name
  std::vector<Part> parts;

  bool operator==(const Manifest&) const = default;
};

// Whether the parts hold every element of every tensor exactly once, with one shape and element
// type per tensor and the same kinds for every parameter. DataLoss naming the first tensor and
// range that is missing, held twice or in contradiction. Cost: O(n log n) in the number of ranges.
absl::Status CheckComplete(const Manifest& manifest);

// The text of manifest.json. InvalidArgument when a string in it is not UTF-8.
absl::StatusOr<std::string> EncodeManifest(const Manifest& manifest);

// The manifest in `text`. DataLoss when the checksum is wrong or a key is missing, unknown or of
// the wrong type; FailedPrecondition when a newer version wrote it. Part names that could leave the
// folder are refused. Completeness is CheckComplete's job.
absl::StatusOr<Manifest> ParseManifest(std::string_view text);

// Folder name `step-<N>.t<timeline>`, and back; nothing for names of any other form.
std::string FolderName(Version version);
std::optional<Version> ParseFolderName(std::string_view name);

}  // namespace starling::checkpoint
