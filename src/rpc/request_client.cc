#include <chrono>

#include "rpc/channel.h"
#include "rpc/coordinator.grpc.pb.h"
#include "starling/base/status.h"
#include "starling/rpc/client.h"

namespace starling::rpc {
namespace {

using membership::UserRequest;

// One unary call by `call(stub, context)`, with its failures put into words.
template <typename Call>
absl::Status Perform(const Target& target, absl::Duration timeout, const Call& call) {
  STARLING_ASSIGN_OR_RETURN(const Address address, Resolve(target));
  const auto stub = pb::Coordinator::NewStub(MakeChannel(address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(timeout));
  context.AddMetadata(kTokenMetadata, address.token);
  const grpc::Status status = call(*stub, &context);
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    return absl::UnavailableError(absl::StrCat("cannot reach the coordinator at ", address.endpoint,
                                               " (", status.error_message(), "): is it running?"));
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return absl::UnavailableError(absl::StrCat("the coordinator at ", address.endpoint,
                                               " did not answer within ",
                                               absl::FormatDuration(timeout)));
  }
  return ToStatus(status);
}

}  // namespace

absl::StatusOr<StatusReport> RequestClient::Status(absl::Duration timeout) const {
  pb::StatusReply reply;
  STARLING_RETURN_IF_ERROR(Perform(target_, timeout, [&](auto& stub, grpc::ClientContext* context) {
    return stub.Status(context, pb::StatusRequest(), &reply);
  }));
  return FromProto(reply);
}

absl::StatusOr<RequestReply> RequestClient::Ask(const UserRequest& request,
                                                absl::Duration timeout) const {
  pb::RequestReply reply;
  const auto call = [&](auto& stub, grpc::ClientContext* context) {
    switch (request.kind) {
      case UserRequest::Kind::kDrain: {
        pb::DrainRequest wire;
        wire.set_worker(request.worker);
        wire.set_reason(CutText(request.reason));
        return stub.Drain(context, wire, &reply);
      }
      case UserRequest::Kind::kResize: {
        pb::ResizeRequest wire;
        wire.set_target_workers(request.target_workers);
        return stub.Resize(context, wire, &reply);
      }
      case UserRequest::Kind::kCheckpoint:
        return stub.Checkpoint(context, pb::CheckpointRequest(), &reply);
      case UserRequest::Kind::kStop: {
        pb::StopRequest wire;
        wire.set_reason(CutText(request.reason));
        return stub.Stop(context, wire, &reply);
      }
      case UserRequest::Kind::kAdopt:
        return stub.Adopt(context, pb::AdoptRequest(), &reply);
    }
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "unknown request");
  };
  STARLING_RETURN_IF_ERROR(Perform(target_, timeout, call));
  return RequestReply{reply.ok(), reply.text()};
}

}  // namespace starling::rpc
