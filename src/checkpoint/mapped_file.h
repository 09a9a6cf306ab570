// A file's bytes, mapped read-only. Immutable; copies share the mapping, which lives as long as one
// of them. The file must not be cut while it is mapped; checkpoint files never are.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace starling::checkpoint {

struct MappedFile {
  std::shared_ptr<const void> owner;  // keeps `bytes` alive
  std::string_view bytes;
};

// NotFound when absent; DataLoss when it is no regular file; else the system's error.
absl::StatusOr<MappedFile> MapFile(const std::string& path);

}  // namespace starling::checkpoint
