// gRPC channels of clients, and what their failures mean. Pure; thread-safe.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "rpc/convert.h"
#include "rpc/library_log.h"
#include "rpc/token.h"
#include "starling/rpc/target.h"

namespace starling::rpc {

// A connection of its own (no sharing, no back-off inherited from an earlier try, no proxy).
inline std::shared_ptr<grpc::Channel> MakeChannel(const Address& address) {
  RouteLibraryLogs();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  return grpc::CreateCustomChannel(address.endpoint, grpc::InsecureChannelCredentials(), arguments);
}

inline absl::Status ToStatus(const grpc::Status& status) {
  // An identity that is refused has one meaning for us, and one exit code.
  const auto code = status.error_code() == grpc::StatusCode::UNAUTHENTICATED
                        ? absl::StatusCode::kPermissionDenied
                        : static_cast<absl::StatusCode>(status.error_code());
  return absl::Status(code, status.error_message());
}

}  // namespace starling::rpc
