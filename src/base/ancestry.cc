#include "starling/base/ancestry.h"

#include <algorithm>

namespace starling {

bool OnAncestry(const Ancestry& ancestry, Version version) {
  return std::any_of(ancestry.begin(), ancestry.end(), [&](const Version& last) {
    return last.timeline == version.timeline && version.step <= last.step;
  });
}

}  // namespace starling
