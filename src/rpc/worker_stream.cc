#include "rpc/worker_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/convert.h"
#include "rpc/token.h"
#include "starling/base/log.h"

namespace starling::rpc {

WorkerStream::WorkerStream(Registration registration, size_t outbox_limit, ServerHandler* handler,
                           grpc::CallbackServerContext* context,
                           std::function<void(Registration)> on_done)
    : registration_(registration),
      outbox_limit_(outbox_limit),
      handler_(handler),
      context_(context),
      on_done_(std::move(on_done)) {}

void WorkerStream::Begin() {
  self_ = shared_from_this();
  context_->AddInitialMetadata(kAcceptedMetadata, "1");
  StartSendInitialMetadata();
  StartRead(&incoming_);
}

void WorkerStream::Send(Message message) {
  {
    absl::MutexLock lock(&mutex_);
    if (closed_ || ending_) return;
    if (outbox_.size() < outbox_limit_) {
      outbox_.push_back(message);
      if (writing_) return;
      writing_ = true;
    } else {
      message = nullptr;
    }
  }
  if (message != nullptr) {
    StartWrite(message.get());
  } else {
    Close(absl::StrCat("it did not read: ", outbox_limit_, " messages waited for it"));
  }
}

void WorkerStream::Close(const std::string& reason) {
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
    closed_ = true;
    cancelling_ = true;  // keeps Finish, and so OnDone, away while the context is used
    if (reason_.empty()) reason_ = reason;
    outbox_.resize(writing_ ? 1 : 0);
  }
  context_->TryCancel();
  bool finish = false;
  grpc::Status status;
  {
    absl::MutexLock lock(&mutex_);
    cancelling_ = false;
    finish = TakeFinishLocked();
    status = status_;
  }
  if (finish) Finish(status);
}

// Only the peer ends the stream from here on: a Finish of ours would overtake, on its side,
// messages that it has not read yet.
void WorkerStream::End() {
  absl::MutexLock lock(&mutex_);
  if (closed_) return;
  ending_ = true;
  if (reason_.empty()) reason_ = "the coordinator ends";
}

bool WorkerStream::TakeFinishLocked() {
  if (finished_ || !read_ended_ || writing_ || cancelling_) return false;
  finished_ = true;
  return true;
}

void WorkerStream::OnReadDone(bool ok) {
  if (!ok) {
    EndReading(grpc::Status::OK, "its control stream ended");
    return;
  }
  absl::StatusOr<membership::WorkerMessage> message = FromProto(incoming_);
  if (!message.ok()) {
    const std::string what(message.status().message());
    STARLING_LOG(Warning) << "registration=" << registration_.value()
                          << " bad message, closing the stream: " << what;
    EndReading(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, what),
               absl::StrCat("it sent a bad message: ", what));
    return;
  }
  handler_->OnMessage(registration_, *std::move(message));
  StartRead(&incoming_);
}

// Tells the handler first: a lost worker must be known before gRPC has tidied up.
void WorkerStream::EndReading(grpc::Status status, const std::string& reason) {
  std::string first_reason;
  {
    absl::MutexLock lock(&mutex_);
    if (reason_.empty()) reason_ = reason;
    first_reason = reason_;
  }
  handler_->OnClosed(registration_, first_reason);
  bool finish = false;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    read_ended_ = true;
    status_ = status;
    outbox_.resize(writing_ ? 1 : 0);
    finish = TakeFinishLocked();
  }
  if (finish) Finish(status);
}

void WorkerStream::OnWriteDone(bool ok) {
  Message next;
  bool finish = false;
  grpc::Status status;
  {
    absl::MutexLock lock(&mutex_);
    outbox_.pop_front();
    if (!ok || closed_) outbox_.clear();
    writing_ = !outbox_.empty();
    if (writing_) {
      next = outbox_.front();
    } else {
      finish = TakeFinishLocked();
      status = status_;
    }
  }
  if (next != nullptr) StartWrite(next.get());
  if (finish) Finish(status);
}

void WorkerStream::OnDone() {
  on_done_(registration_);
  const std::shared_ptr<WorkerStream> last = std::move(self_);
}

}  // namespace starling::rpc
