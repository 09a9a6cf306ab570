#include "starling/base/ids.h"

#include "absl/strings/str_format.h"

namespace starling {

std::string ToHex(uint64_t value) { return absl::StrFormat("%016x", value); }

}  // namespace starling
