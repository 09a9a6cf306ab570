// What `starling status` prints. Pure functions.
#pragma once

#include <string>

#include "starling/rpc/requests.h"

namespace starling::cli {

// One JSON object on one line, as docs/formats.md describes it.
std::string StatusJson(const rpc::StatusReport& report);

// Two lines about the run and a table of its workers, for people.
std::string StatusTable(const rpc::StatusReport& report);

}  // namespace starling::cli
