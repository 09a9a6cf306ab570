// The worker's and the people's ends of the control plane. No gRPC in sight.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "starling/membership/coordinator_core.h"
#include "starling/membership/messages.h"
#include "starling/rpc/requests.h"
#include "starling/rpc/target.h"

namespace starling::rpc {

// All are called on one thread of the client's, one at a time, without a lock held: on_opened,
// on_message …, on_lost, on_opened, … They may call Send, not Stop.
struct ControlCallbacks {
  std::function<void()> on_opened;  // admitted; the first Send must be Register
  std::function<void(membership::CoordinatorMessage)> on_message;
  std::function<void(const absl::Status&)>
      on_lost;  // after on_opened only; it reconnects by itself
  // Trying again is of no use, and it does not: PermissionDenied for a refused token. Optional.
  std::function<void(const absl::Status&)> on_refused;
  // Each failed try to connect, for logs. Optional.
  std::function<void(const absl::Status&)> on_retry;
};

struct ControlOptions {
  Target target;
  ControlCallbacks callbacks;
  absl::Duration heartbeat_interval = absl::Seconds(1);
  std::function<membership::Heartbeat()> heartbeat;  // called on a thread of its own; cheap
};

// A worker's stream to its coordinator, kept open for the worker's life: it reconnects by itself,
// reading the run folder's endpoint again at each try. Owned by the worker's main. Thread-safe.
class ControlClient {
 public:
  // Starts its threads; returns at once. REQUIRES: on_opened, on_message, on_lost, heartbeat.
  static std::unique_ptr<ControlClient> Start(ControlOptions options);
  virtual ~ControlClient() = default;  // as Stop(zero)

  // Queues a message on the open stream; never blocks. False, and the message dropped, while there
  // is none: what matters is said again after Register. A full outbox ends the stream: the
  // coordinator does not read.
  virtual bool Send(membership::WorkerMessage message) = 0;

  // Lets the outbox empty for up to `drain`, ends the stream and joins the threads. No callback
  // runs after it. Idempotent. Not from a callback.
  virtual void Stop(absl::Duration drain) = 0;
};

// One question of a person, blocking. Errors: Unavailable, naming the endpoint, when nobody answers
// within the timeout; PermissionDenied when the token is refused. Thread-safe.
class RequestClient {
 public:
  explicit RequestClient(Target target) : target_(std::move(target)) {}

  absl::StatusOr<StatusReport> Status(absl::Duration timeout) const;
  // request.id is not used.
  absl::StatusOr<RequestReply> Ask(const membership::UserRequest& request,
                                   absl::Duration timeout) const;

 private:
  const Target target_;
};

}  // namespace starling::rpc
