// Keeps gRPC and protobuf from printing. Thread-safe.
#pragma once

namespace starling::rpc {

// Once a process is enough; more calls do nothing. Their lines go to our log at level debug: every
// failure that matters is returned as a status too.
void RouteLibraryLogs();

}  // namespace starling::rpc
