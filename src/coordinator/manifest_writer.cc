#include "coordinator/manifest_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "starling/base/log.h"
#include "starling/base/status.h"

namespace starling::coordinator {
namespace {

absl::Status Commit(Fs& fs, const std::string& checkpoints, ManifestJob job) {
  for (const std::string& text : job.order.parts) {
    if (text.empty()) continue;  // a rank that owns nothing
    STARLING_ASSIGN_OR_RETURN(checkpoint::Part part, checkpoint::DecodePart(text));
    job.manifest.parts.push_back(std::move(part));
  }
  job.manifest.created = absl::Now();
  STARLING_ASSIGN_OR_RETURN(const checkpoint::CommitReport report,
                            checkpoint::CommitManifest(fs, checkpoints, job.manifest, job.options));
  for (const std::string& warning : report.warnings) STARLING_LOG(Warning) << warning;
  return absl::OkStatus();
}

}  // namespace

ManifestWriter::ManifestWriter(Fs* fs, std::string checkpoints,
                               const std::vector<comm::Fault>& faults,
                               std::function<void(membership::ManifestWritten)> done)
    : fs_(fs),
      checkpoints_(std::move(checkpoints)),
      done_(std::move(done)),
      points_(faults),
      thread_([this] { Run(); }) {}

ManifestWriter::~ManifestWriter() {
  jobs_.Close();
  while (jobs_.TryPop()) {
  }
  thread_.join();
}

void ManifestWriter::Run() {
  while (std::optional<ManifestJob> job = jobs_.Pop()) {
    const Version version = job->order.version;
    membership::ManifestWritten written{checkpoint::FolderName(version), version, true, ""};
    points_.Pass(comm::FaultPoint::kManifest, Generation(), Rank());
    const absl::Status status = Commit(*fs_, checkpoints_, *std::move(job));
    points_.Pass(comm::FaultPoint::kManifestWritten, Generation(), Rank());
    written.ok = status.ok();
    written.error = std::string(status.message());
    done_(std::move(written));
  }
}

}  // namespace starling::coordinator
