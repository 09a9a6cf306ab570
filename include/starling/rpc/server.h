// The coordinator's end of the control plane: one bidirectional stream per worker and requests of
// people, over gRPC. It only carries: decisions are the handler's. Thread-safe.
//
// Streams run on gRPC's callback threads, a handful whatever the number of workers; the end of a
// process is noticed when the kernel closes its socket. Nobody is served without the token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "starling/base/ids.h"
#include "starling/membership/coordinator_core.h"
#include "starling/membership/messages.h"
#include "starling/rpc/requests.h"

namespace starling::rpc {

// Called from several threads at once, never with a lock held; for one registration in order, one
// call at a time. Should enqueue and return: a call that blocks holds back its stream only, until
// all of gRPC's threads are held.
class ServerHandler {
 public:
  virtual ~ServerHandler() = default;
  virtual void OnMessage(Registration registration, membership::WorkerMessage message) = 0;
  // Exactly once, after the last OnMessage: the stream is over, for this reason.
  virtual void OnClosed(Registration registration, const std::string& reason) = 0;
  // `reply` must be called exactly once, from any thread, before Shutdown returns. request.id is
  // the handler's to choose.
  virtual void OnRequest(membership::UserRequest request,
                         std::function<void(RequestReply)> reply) = 0;
  virtual void OnStatus(std::function<void(absl::StatusOr<StatusReport>)> reply) = 0;
};

struct ServerOptions {
  std::string bind = "127.0.0.1:0";  // port 0 = any free one
  std::string token;                 // clients must show it; empty is allowed on loopback only
  size_t outbox_limit = 1024;        // messages waiting for one slow worker
};

class Server {
 public:
  // Listens and serves. InvalidArgument for a bad address; FailedPrecondition when the address is
  // not loopback and there is no token; Unavailable, marked with exit code 71, when the address
  // cannot be listened on (in use, or not of this host). `handler` outlives the server.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       ServerHandler* handler);
  virtual ~Server() = default;

  virtual int port() const = 0;

  // Queues a message on a stream; never blocks. A stream whose outbox is full is closed: its worker
  // does not read. One message to many workers is converted once when they share it. Unknown
  // registrations are ignored, because their end is on its way.
  virtual void Send(Registration registration,
                    const std::shared_ptr<const membership::CoordinatorMessage>& message) = 0;

  // Ends a stream at once; what waits in its outbox is dropped. OnClosed still comes.
  virtual void Close(Registration registration) = 0;

  // Refuses new calls and messages, waits up to `grace` for the workers to take what waits for them
  // and to end their streams, cancels the rest, and returns when no handler call runs or will come.
  // Blocks. Not from a handler's call. Idempotent.
  virtual void Shutdown(absl::Duration grace) = 0;
};

}  // namespace starling::rpc
