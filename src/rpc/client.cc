#include "starling/rpc/client.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "rpc/channel.h"
#include "rpc/coordinator.grpc.pb.h"
#include "starling/base/bounded_queue.h"
#include "starling/base/log.h"
#include "starling/base/status.h"

namespace starling::rpc {
namespace {

using membership::CoordinatorMessage;
using membership::WorkerMessage;

constexpr size_t kOutboxLimit = 1024;  // messages waiting for the wire
constexpr absl::Duration kConnectTimeout = absl::Seconds(1);
// The wait between tries doubles, up to the one limit in the first minute and the other after it.
constexpr absl::Duration kBackoffMin = absl::Milliseconds(20);
constexpr absl::Duration kBackoffMax = absl::Milliseconds(800);
constexpr absl::Duration kBackoffMaxLater = absl::Seconds(5);

// One connection: gRPC's objects and the messages that wait for the wire.
struct Connection {
  grpc::ClientContext context;
  std::unique_ptr<pb::Coordinator::Stub> stub;
  std::unique_ptr<grpc::ClientReaderWriter<pb::WorkerMessage, pb::CoordinatorMessage>> stream;
  BoundedQueue<WorkerMessage> outbox{kOutboxLimit};
};

class GrpcControlClient final : public ControlClient {
 public:
  explicit GrpcControlClient(ControlOptions options)
      : options_(std::move(options)),
        connect_thread_([this] { Run(); }),
        heartbeat_thread_([this] { Beat(); }) {}
  ~GrpcControlClient() override { Stop(absl::ZeroDuration()); }

  bool Send(WorkerMessage message) override;
  void Stop(absl::Duration drain) override;

 private:
  void Run();
  void Beat();
  absl::StatusOr<std::shared_ptr<Connection>> Open();
  absl::Status Serve(const std::shared_ptr<Connection>& connection);
  absl::Duration Backoff(int failures);
  bool WaitToStop(absl::Duration timeout);  // true = stop

  const ControlOptions options_;
  absl::Time trying_since_ = absl::Now();            // of the connecting thread only
  std::minstd_rand jitter_{std::random_device{}()};  // of the connecting thread only

  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool joined_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<Connection> pending_ ABSL_GUARDED_BY(mutex_);  // being opened: to be cancelled
  std::shared_ptr<Connection> open_ ABSL_GUARDED_BY(mutex_);     // admitted, not yet lost
  std::thread connect_thread_;                                   // last: they use all of the above
  std::thread heartbeat_thread_;
};

bool GrpcControlClient::Send(WorkerMessage message) {
  std::shared_ptr<Connection> connection;
  {
    absl::MutexLock lock(&mutex_);
    connection = open_;
  }
  if (connection == nullptr) return false;
  if (connection->outbox.TryPush(std::move(message))) return true;
  if (!connection->outbox.closed()) {
    STARLING_LOG(Warning) << "control stream: " << kOutboxLimit
                          << " messages wait and the coordinator does not read; reconnecting";
    connection->context.TryCancel();
  }
  return false;
}

bool GrpcControlClient::WaitToStop(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&stopping_), timeout);
}

void GrpcControlClient::Beat() {
  while (!WaitToStop(options_.heartbeat_interval)) Send(options_.heartbeat());
}

// Half of each wait is random, so that a thousand workers do not come back in one moment.
absl::Duration GrpcControlClient::Backoff(int failures) {
  const absl::Duration limit =
      absl::Now() - trying_since_ < absl::Minutes(1) ? kBackoffMax : kBackoffMaxLater;
  const absl::Duration full =
      std::min(limit, kBackoffMin * static_cast<double>(1 << std::min(failures, 16)));
  return full * std::uniform_real_distribution<double>(0.5, 1.0)(jitter_);
}

absl::StatusOr<std::shared_ptr<Connection>> GrpcControlClient::Open() {
  STARLING_ASSIGN_OR_RETURN(const Address address, Resolve(options_.target));
  auto connection = std::make_shared<Connection>();
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError("stopping");
    pending_ = connection;
  }
  const auto channel = MakeChannel(address);
  const auto deadline =
      std::chrono::system_clock::now() + absl::ToChronoNanoseconds(kConnectTimeout);
  if (!channel->WaitForConnected(deadline)) {
    return absl::UnavailableError(
        absl::StrCat("cannot connect to the coordinator at ", address.endpoint));
  }
  connection->stub = pb::Coordinator::NewStub(channel);
  connection->context.AddMetadata(kTokenMetadata, address.token);
  connection->stream = connection->stub->Connect(&connection->context);
  connection->stream->WaitForInitialMetadata();
  if (!connection->context.GetServerInitialMetadata().contains(kAcceptedMetadata)) {
    const absl::Status status = ToStatus(connection->stream->Finish());
    return status.ok() ? absl::UnavailableError("the stream was not admitted") : status;
  }
  return connection;
}

// From OnOpened to the stream's end.
absl::Status GrpcControlClient::Serve(const std::shared_ptr<Connection>& connection) {
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) connection->context.TryCancel();
    open_ = connection;
  }
  std::thread writer([connection] {
    pb::WorkerMessage wire;
    while (auto message = connection->outbox.Pop()) {
      wire.Clear();
      ToProto(*message, &wire);
      if (!connection->stream->Write(wire)) return;
    }
    connection->stream->WritesDone();
  });
  options_.callbacks.on_opened();
  absl::Status bad;
  pb::CoordinatorMessage wire;
  while (connection->stream->Read(&wire)) {
    absl::StatusOr<CoordinatorMessage> message = FromProto(wire);
    if (!message.ok()) {
      bad = Annotate(message.status(), "bad message of the coordinator");
      break;
    }
    options_.callbacks.on_message(*std::move(message));
  }
  {
    absl::MutexLock lock(&mutex_);
    open_.reset();
  }
  connection->outbox.Close();
  connection->context.TryCancel();  // wakes a writer that waits for room on a dead stream
  writer.join();
  const absl::Status end = ToStatus(connection->stream->Finish());
  return !bad.ok() ? bad : end.ok() ? absl::UnavailableError("the coordinator ended it") : end;
}

void GrpcControlClient::Run() {
  int failures = 0;
  while (!WaitToStop(absl::ZeroDuration())) {
    const absl::StatusOr<std::shared_ptr<Connection>> connection = Open();
    absl::Status status = connection.status();
    if (connection.ok()) {
      status = Serve(*connection);
      failures = 0;
      trying_since_ = absl::Now();
      options_.callbacks.on_lost(status);
    } else if (options_.callbacks.on_retry) {
      options_.callbacks.on_retry(status);
    }
    {
      absl::MutexLock lock(&mutex_);
      pending_.reset();
      if (stopping_) return;
    }
    if (status.code() == absl::StatusCode::kPermissionDenied) {
      if (options_.callbacks.on_refused) options_.callbacks.on_refused(status);
      return;
    }
    if (WaitToStop(Backoff(failures++))) return;
  }
}

void GrpcControlClient::Stop(absl::Duration drain) {
  std::shared_ptr<Connection> connection;
  {
    absl::MutexLock lock(&mutex_);
    if (joined_) return;
    joined_ = true;
    stopping_ = true;
    connection = open_ ? open_ : pending_;
  }
  if (connection != nullptr) {
    connection->outbox.Close();  // the writer ends the stream when it has sent what waits
    if (drain > absl::ZeroDuration()) {
      absl::MutexLock lock(&mutex_);
      const auto lost = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return open_ == nullptr; };
      mutex_.AwaitWithTimeout(absl::Condition(&lost), drain);
    }
    connection->context.TryCancel();
  }
  connect_thread_.join();
  heartbeat_thread_.join();
}

}  // namespace

std::unique_ptr<ControlClient> ControlClient::Start(ControlOptions options) {
  return std::make_unique<GrpcControlClient>(std::move(options));
}

}  // namespace starling::rpc
