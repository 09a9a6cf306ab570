// What people ask the coordinator and what they get, as plain values.
#pragma once

#include <cstdint>
#include <string>

#include "starling/membership/coordinator_core.h"

namespace starling::rpc {

// Everything that `starling status` and the status page show.
struct StatusReport {
  std::string run;
  membership::Status status;
  double goodput = 0;         // coordinator/goodput.h
  int64_t total_steps = 0;    // of the run
  int64_t micro_batches = 0;  // M
  std::string http_address;   // of the status page; empty = none
};

// Answer to a request: the coordinator did it (`ok`), or why not. `text` is one sentence.
struct RequestReply {
  bool ok = false;
  std::string text;
};

}  // namespace starling::rpc
