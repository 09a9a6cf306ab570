// What gRPC and protobuf would print goes to our log. Thread-safe.
#pragma once

namespace starling::rpc {

// Once a process is enough; more calls do nothing. Lines come out at level debug: every failure
// that matters is returned as a status too.
void RouteLibraryLogs();

}  // namespace starling::rpc
