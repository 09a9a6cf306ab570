#include "starling/checkpoint/async_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::checkpoint {

AsyncWriter::AsyncWriter(Fs& fs) : fs_(fs), thread_([this] { Run(); }) {}

AsyncWriter::~AsyncWriter() {
  std::optional<Job> dropped;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    dropped = std::exchange(waiting_, std::nullopt);
  }
  thread_.join();
  if (dropped) {
    dropped->snapshot = {};
    dropped->done(absl::CancelledError("the checkpoint writer was stopped before this part"));
  }
}

absl::Status AsyncWriter::Submit(Snapshot snapshot, Callback done) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return absl::FailedPreconditionError("the checkpoint writer is being stopped");
  if (waiting_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("checkpoint of step ", snapshot.spec.version.step.value(), " skipped: step ",
                     waiting_->snapshot.spec.version.step.value(), " still waits for the disk"));
  }
  waiting_.emplace(Job{std::move(snapshot), std::move(done)});
  return absl::OkStatus();
}

absl::Status AsyncWriter::Drain(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  if (mutex_.AwaitWithTimeout(absl::Condition(this, &AsyncWriter::Idle), timeout)) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      absl::StrCat("a checkpoint part was not written within ", absl::FormatDuration(timeout)));
}

void AsyncWriter::Run() {
  for (;;) {
    std::optional<Job> job;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &AsyncWriter::HasWork));
      if (stopping_) return;
      job = std::exchange(waiting_, std::nullopt);
      writing_ = true;
    }
    const Snapshot& snapshot = job->snapshot;
    absl::StatusOr<Part> part = WritePart(fs_, snapshot.folder, snapshot.spec, snapshot.slices);
    job->snapshot = {};
    job->done(std::move(part));
    absl::MutexLock lock(&mutex_);
    writing_ = false;
  }
}

}  // namespace starling::checkpoint
