#include "starling/rpc/server.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "rpc/convert.h"
#include "rpc/coordinator.grpc.pb.h"
#include "rpc/library_log.h"
#include "rpc/token.h"
#include "rpc/worker_stream.h"
#include "starling/base/exit_codes.h"
#include "starling/base/host_port.h"
#include "starling/base/status.h"

namespace starling::rpc {
namespace {

using membership::UserRequest;
using Message = std::shared_ptr<const membership::CoordinatorMessage>;

const grpc::Status& Unauthenticated() {
  static const grpc::Status& status = *new grpc::Status(
      grpc::StatusCode::UNAUTHENTICATED,
      "the token is missing or wrong: it stands in the run folder's file `token`, and clients "
      "elsewhere give it in STARLING_TOKEN");
  return status;
}

// Ends a stream before it has begun.
class RefusedStream final
    : public grpc::ServerBidiReactor<pb::WorkerMessage, pb::CoordinatorMessage> {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

class GrpcServer final : public Server, public pb::Coordinator::CallbackService {
 public:
  GrpcServer(const ServerOptions& options, ServerHandler* handler)
      : options_(options), handler_(handler) {}
  ~GrpcServer() override { Shutdown(absl::ZeroDuration()); }

  absl::Status Listen();
  int port() const override { return port_; }
  void Send(Registration registration, const Message& message) override;
  void Close(Registration registration) override;
  void Shutdown(absl::Duration grace) override;

  grpc::ServerBidiReactor<pb::WorkerMessage, pb::CoordinatorMessage>* Connect(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context, const pb::StatusRequest*,
                                   pb::StatusReply* reply) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const pb::DrainRequest* request,
                                  pb::RequestReply* reply) override {
    UserRequest wanted{.kind = UserRequest::Kind::kDrain};
    wanted.worker = request->worker();
    wanted.reason = request->reason();
    return Ask(context, std::move(wanted), reply);
  }
  grpc::ServerUnaryReactor* Resize(grpc::CallbackServerContext* context,
                                   const pb::ResizeRequest* request,
                                   pb::RequestReply* reply) override {
    UserRequest wanted{.kind = UserRequest::Kind::kResize};
    wanted.target_workers = request->target_workers();
    return Ask(context, std::move(wanted), reply);
  }
  grpc::ServerUnaryReactor* Checkpoint(grpc::CallbackServerContext* context,
                                       const pb::CheckpointRequest*,
                                       pb::RequestReply* reply) override {
    return Ask(context, UserRequest{.kind = UserRequest::Kind::kCheckpoint}, reply);
  }
  grpc::ServerUnaryReactor* Stop(grpc::CallbackServerContext* context,
                                 const pb::StopRequest* request, pb::RequestReply* reply) override {
    UserRequest wanted{.kind = UserRequest::Kind::kStop};
    wanted.reason = request->reason();
    return Ask(context, std::move(wanted), reply);
  }
  grpc::ServerUnaryReactor* Adopt(grpc::CallbackServerContext* context, const pb::AdoptRequest*,
                                  pb::RequestReply* reply) override {
    return Ask(context, UserRequest{.kind = UserRequest::Kind::kAdopt}, reply);
  }

 private:
  grpc::ServerUnaryReactor* Ask(grpc::CallbackServerContext* context, UserRequest request,
                                pb::RequestReply* reply);
  WorkerStream::Message Converted(const Message& message);
  std::shared_ptr<WorkerStream> Find(Registration registration);
  std::vector<std::shared_ptr<WorkerStream>> All();
  void Forget(Registration registration);

  const ServerOptions options_;
  ServerHandler* const handler_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;

  absl::Mutex mutex_;
  std::map<Registration, std::shared_ptr<WorkerStream>> streams_ ABSL_GUARDED_BY(mutex_);
  Registration last_ ABSL_GUARDED_BY(mutex_);
  bool shut_ ABSL_GUARDED_BY(mutex_) = false;
  // What is said to all members of a view is converted once.
  std::weak_ptr<const membership::CoordinatorMessage> last_message_ ABSL_GUARDED_BY(mutex_);
  WorkerStream::Message last_converted_ ABSL_GUARDED_BY(mutex_);
};

absl::Status GrpcServer::Listen() {
  STARLING_ASSIGN_OR_RETURN(const HostPort bind, ParseHostPort(options_.bind));
  if (options_.token.empty() && !IsLoopback(bind.host)) {
    return absl::FailedPreconditionError(absl::StrCat("will not listen on ", options_.bind,
                                                      ", which others can reach, without a token"));
  }
  RouteLibraryLogs();
  grpc::ServerBuilder builder;
  builder.AddListeningPort(options_.bind, grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(this);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Half-open connections of hosts that vanished are found in the end; detection is not theirs.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port_ == 0) {
    return WithExitCode(
        absl::UnavailableError(absl::StrCat(
            "cannot listen on ", options_.bind,
            ": the port is in use or the address is not of this host (coordinator.bind)")),
        ExitCode::kOsError);
  }
  return absl::OkStatus();
}

grpc::ServerBidiReactor<pb::WorkerMessage, pb::CoordinatorMessage>* GrpcServer::Connect(
    grpc::CallbackServerContext* context) {
  if (!Admitted(context->client_metadata(), options_.token)) {
    return new RefusedStream(Unauthenticated());
  }
  std::shared_ptr<WorkerStream> stream;
  {
    absl::MutexLock lock(&mutex_);
    if (!shut_ && streams_.size() < static_cast<size_t>(kMaxMembers)) {
      last_ = last_.Next();
      stream = std::make_shared<WorkerStream>(last_, options_.outbox_limit, handler_, context,
                                              [this](Registration r) { Forget(r); });
      streams_[last_] = stream;
    }
  }
  if (stream == nullptr) {
    return new RefusedStream(
        grpc::Status(grpc::StatusCode::UNAVAILABLE, "the coordinator ends or is full"));
  }
  stream->Begin();
  return stream.get();
}

grpc::ServerUnaryReactor* GrpcServer::Status(grpc::CallbackServerContext* context,
                                             const pb::StatusRequest*, pb::StatusReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (!Admitted(context->client_metadata(), options_.token)) {
    reactor->Finish(Unauthenticated());
    return reactor;
  }
  handler_->OnStatus([reactor, reply](absl::StatusOr<StatusReport> report) {
    if (report.ok()) {
      ToProto(*report, reply);
      reactor->Finish(grpc::Status::OK);
    } else {
      reactor->Finish(grpc::Status(static_cast<grpc::StatusCode>(report.status().code()),
                                   std::string(report.status().message())));
    }
  });
  return reactor;
}

grpc::ServerUnaryReactor* GrpcServer::Ask(grpc::CallbackServerContext* context, UserRequest request,
                                          pb::RequestReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (!Admitted(context->client_metadata(), options_.token)) {
    reactor->Finish(Unauthenticated());
    return reactor;
  }
  handler_->OnRequest(std::move(request), [reactor, reply](RequestReply answer) {
    reply->set_ok(answer.ok);
    reply->set_text(CutText(answer.text));
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

WorkerStream::Message GrpcServer::Converted(const Message& message) {
  absl::MutexLock lock(&mutex_);
  if (message != last_message_.lock()) {
    auto converted = std::make_shared<pb::CoordinatorMessage>();
    ToProto(*message, converted.get());
    last_message_ = message;
    last_converted_ = std::move(converted);
  }
  return last_converted_;
}

std::shared_ptr<WorkerStream> GrpcServer::Find(Registration registration) {
  absl::MutexLock lock(&mutex_);
  const auto it = streams_.find(registration);
  return it == streams_.end() ? nullptr : it->second;
}

void GrpcServer::Send(Registration registration, const Message& message) {
  if (const auto stream = Find(registration)) stream->Send(Converted(message));
}

void GrpcServer::Close(Registration registration) {
  if (const auto stream = Find(registration)) stream->Close("closed by the coordinator");
}

void GrpcServer::Forget(Registration registration) {
  absl::MutexLock lock(&mutex_);
  streams_.erase(registration);
}

std::vector<std::shared_ptr<WorkerStream>> GrpcServer::All() {
  absl::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<WorkerStream>> all;
  for (const auto& [registration, stream] : streams_) all.push_back(stream);
  return all;
}

void GrpcServer::Shutdown(absl::Duration grace) {
  {
    absl::MutexLock lock(&mutex_);
    if (shut_) return;
    shut_ = true;
  }
  if (server_ == nullptr) return;
  for (const auto& stream : All()) stream->End();
  server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoNanoseconds(grace));
  server_->Wait();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      ServerHandler* handler) {
  auto server = std::make_unique<GrpcServer>(options, handler);
  STARLING_RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace starling::rpc
