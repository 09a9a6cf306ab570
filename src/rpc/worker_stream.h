// One worker's stream on the server, as a gRPC reactor. Owned by itself while the call lives and by
// the server's table. Thread-safe.
//
// At most one read and one write are under way. Finish is called once, when reading has ended and
// neither a write nor a Close is under way; after OnDone nothing of gRPC's is touched.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/synchronization/mutex.h"
#include "rpc/coordinator.grpc.pb.h"
#include "starling/base/ids.h"
#include "starling/rpc/server.h"

namespace starling::rpc {

class WorkerStream final
    : public grpc::ServerBidiReactor<pb::WorkerMessage, pb::CoordinatorMessage>,
      public std::enable_shared_from_this<WorkerStream> {
 public:
  using Message = std::shared_ptr<const pb::CoordinatorMessage>;

  // `on_done` is called last, with no lock held.
  WorkerStream(Registration registration, size_t outbox_limit, ServerHandler* handler,
               grpc::CallbackServerContext* context, std::function<void(Registration)> on_done);

  void Begin();  // once, right after construction
  void Send(Message message);
  // At once: what waits is dropped.
  void Close(const std::string& reason);
  // In order: nothing new is sent, what waits is; the worker ends the stream when it has read it.
  void End();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  bool TakeFinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndReading(grpc::Status status, const std::string& reason);

  const Registration registration_;
  const size_t outbox_limit_;
  ServerHandler* const handler_;
  grpc::CallbackServerContext* const context_;  // gone after OnDone
  const std::function<void(Registration)> on_done_;
  std::shared_ptr<WorkerStream> self_;  // set by Begin, cleared by OnDone
  pb::WorkerMessage incoming_;          // of the read under way

  absl::Mutex mutex_;
  std::deque<Message> outbox_ ABSL_GUARDED_BY(mutex_);  // front is being written if writing_
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelling_ ABSL_GUARDED_BY(mutex_) = false;  // a Close is inside gRPC
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;      // End was called
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;      // nothing is sent any more
  bool read_ended_ ABSL_GUARDED_BY(mutex_) = false;  // and so closed_
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;    // Finish was called, or is about to be
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
  std::string reason_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::rpc
