// Commits checkpoints on a thread of its own, because a manifest waits for the disk and the driver
// must not. Thread-safe; bounded: a few waiting ones.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "starling/base/bounded_queue.h"
#include "starling/base/fs.h"
#include "starling/checkpoint/writer.h"
#include "starling/comm/fault.h"
#include "starling/membership/coordinator_core.h"

namespace starling::coordinator {

// The manifest of a version, without its parts and its time, and what commits it.
struct ManifestJob {
  membership::WriteManifest order;
  checkpoint::Manifest manifest;
  checkpoint::CommitOptions options;
};

class ManifestWriter {
 public:
  // `done` is called on this object's thread, once for each accepted job.
  ManifestWriter(Fs* fs, std::string checkpoints, const std::vector<comm::Fault>& faults,
                 std::function<void(membership::ManifestWritten)> done);
  // Finishes the job under way, drops waiting ones.
  ~ManifestWriter();

  // Never blocks. False when too many wait: the disk is slower than checkpoints are frequent.
  bool Submit(ManifestJob job) { return jobs_.TryPush(std::move(job)); }

 private:
  void Run();

  Fs* const fs_;
  const std::string checkpoints_;
  const std::function<void(membership::ManifestWritten)> done_;
  comm::FaultPoints points_;
  BoundedQueue<ManifestJob> jobs_{4};
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace starling::coordinator
