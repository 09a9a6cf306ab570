// MakeSocketTransport with the listener's limits, for tests.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "comm/listener.h"
#include "starling/comm/transport.h"

namespace starling::comm {

absl::StatusOr<std::unique_ptr<Transport>> MakeSocketTransport(
    const SocketTransportOptions& options, const ListenerLimits& limits);

}  // namespace starling::comm
