// Which histories of steps a timeline continues. Plain values and a pure function; thread-safe.
#pragma once

#include <vector>

#include "starling/base/ids.h"

namespace starling {

// (timeline, last step taken over from it), newest first. A run that was restored from step 40 of
// timeline 1 has {(2, largest), (1, 40)}.
using Ancestry = std::vector<Version>;

// Whether `version` lies on the ancestry.
bool OnAncestry(const Ancestry& ancestry, Version version);

}  // namespace starling
