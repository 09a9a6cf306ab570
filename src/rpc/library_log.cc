#include "rpc/library_log.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <mutex>
#include <string>

#include "starling/base/log.h"

namespace starling::rpc {
namespace {

void FromGrpc(gpr_log_func_args* args) {
  WriteLog(LogLevel::kDebug, std::string("grpc: ") + args->message);
}

void FromProtobuf(google::protobuf::LogLevel, const char*, int, const std::string& message) {
  WriteLog(LogLevel::kDebug, "protobuf: " + message);
}

}  // namespace

void RouteLibraryLogs() {
  static std::once_flag once;
  std::call_once(once, [] {
    gpr_set_log_function(&FromGrpc);
    google::protobuf::SetLogHandler(&FromProtobuf);
  });
}

}  // namespace starling::rpc
