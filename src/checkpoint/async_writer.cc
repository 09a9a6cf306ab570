#include "starling/checkpoint/async_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::checkpoint {
namespace {

constexpr size_t kMaxJobs = 2;  // one being written, one waiting

}  // namespace

AsyncWriter::AsyncWriter(Fs& fs) : fs_(fs), thread_([this] { Run(); }) {}

AsyncWriter::~AsyncWriter() {
  std::deque<Job> dropped;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    dropped.swap(waiting_);
  }
  thread_.join();
  for (Job& job : dropped) {
    job.snapshot = {};
    job.done(absl::CancelledError("the checkpoint writer was stopped before this part"));
  }
}

absl::Status AsyncWriter::Submit(Snapshot snapshot, Callback done) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return absl::FailedPreconditionError("the checkpoint writer is being stopped");
  if (waiting_.size() + (writing_ ? 1 : 0) >= kMaxJobs) {
    return absl::ResourceExhaustedError(
        absl::StrCat("checkpoint of step ", snapshot.spec.version.step.value(),
                     " skipped: ", kMaxJobs, " earlier parts are not written yet"));
  }
  waiting_.push_back({std::move(snapshot), std::move(done)});
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
    Job job;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &AsyncWriter::HasWork));
      if (stopping_) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
      writing_ = true;
    }
    const Snapshot& snapshot = job.snapshot;
    absl::StatusOr<Part> part = WritePart(fs_, snapshot.folder, snapshot.spec, snapshot.slices);
    job.snapshot = {};
    job.done(std::move(part));
    job = {};  // whatever the callback holds is let go before Drain returns
    absl::MutexLock lock(&mutex_);
    writing_ = false;
  }
}

}  // namespace starling::checkpoint
