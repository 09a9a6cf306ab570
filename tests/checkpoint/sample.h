// A small model state whose every element is known, cut and written in any number of parts. Shared
// by the checkpoint tests.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "starling/base/fs.h"
#include "starling/base/status.h"
#include "starling/checkpoint/reader.h"
#include "starling/checkpoint/writer.h"

namespace starling::checkpoint::testing {

inline const std::map<std::string, std::vector<int64_t>>& SampleShapes() {
  static const auto& shapes = *new std::map<std::string, std::vector<int64_t>>{
      {"albert.embeddings.word_embeddings.weight", {13, 7}},
      {"albert.encoder.layer.0.bias", {17}},
      {"bias", {}},
      {"nothing", {0, 4}}};
  return shapes;
}

inline constexpr TensorKind kKinds[] = {TensorKind::kParameter, TensorKind::kFirstMoment,
                                        TensorKind::kSecondMoment};

// The elements of a tensor at a version: every one differs from every other.
inline std::vector<float> SampleValues(const std::string& name, TensorKind kind, Version version) {
  std::vector<float> values(static_cast<size_t>(*ElementCount(SampleShapes().at(name))));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i) + 0.25f * static_cast<float>(kind) +
                1000.f * static_cast<float>(version.step.value()) +
                0.5f * static_cast<float>(version.timeline.value()) +
                200.f * static_cast<float>(name.size() % 4);
  }
  return values;
}

inline PartSpec SampleSpec(Version version, int rank, const std::string& run_id = "run-1") {
  return {run_id,     version, Generation(7), Incarnation(0xabc0 + static_cast<uint64_t>(rank)),
          Rank(rank), 0};
}

inline Manifest SampleManifest(Version version, const std::string& run_id = "run-1") {
  Manifest manifest;
  manifest.run_id = run_id;
  manifest.version = version;
  manifest.generation = Generation(7);
  manifest.optimizer_steps = version.step.value();
  manifest.samples_consumed = 64 * version.step.value();
  manifest.config_hash = "c0ffee";
  manifest.model_hash = "beef";
  manifest.data_hash = "da7a";
  manifest.seed = 0xffffffffffffffff;
  manifest.created = absl::FromUnixMillis(1717171717171);
  manifest.extra = {{"skipped_steps", "2"}};
  return manifest;
}

// Writes version `version` below `checkpoints` in `parts` parts cut at random places, without a
// manifest; returns the manifest that would complete it.
inline absl::StatusOr<Manifest> WriteSampleParts(Fs& fs, const std::string& checkpoints,
                                                 Version version, int parts, uint64_t seed = 1,
                                                 const std::string& run_id = "run-1") {
  std::mt19937_64 random(seed);
  std::vector<std::vector<float>> storage;
  std::vector<std::vector<TensorSlice>> slices(static_cast<size_t>(parts));
  for (const auto& [name, shape] : SampleShapes()) {
    for (const TensorKind kind : kKinds) {
      storage.push_back(SampleValues(name, kind, version));
      const auto& values = storage.back();
      const auto count = static_cast<int64_t>(values.size());
      const auto* bytes = reinterpret_cast<const char*>(values.data());
      for (int64_t begin = 0, end = 0; begin < count || count == 0; begin = end) {
        end = parts == 1 ? count : std::min<int64_t>(count, begin + 1 + random() % 20);
        slices[random() % slices.size()].push_back(
            {{name, kind, DType::kFloat32, shape, begin, end},
             {bytes + begin * 4, static_cast<size_t>(end - begin) * 4}});
        if (count == 0) break;
      }
    }
  }
  Manifest manifest = SampleManifest(version, run_id);
  for (int rank = 0; rank < parts; ++rank) {
    if (slices[rank].empty()) continue;
    STARLING_ASSIGN_OR_RETURN(manifest.parts.emplace_back(),
                              WritePart(fs, JoinPath(checkpoints, FolderName(version)),
                                        SampleSpec(version, rank, run_id), slices[rank]));
  }
  return manifest;
}

// The whole checkpoint, manifest included.
inline absl::StatusOr<CommitReport> WriteSample(Fs& fs, const std::string& checkpoints,
                                                Version version, int parts,
                                                const CommitOptions& options = {.keep = 0},
                                                const std::string& run_id = "run-1") {
  STARLING_ASSIGN_OR_RETURN(const Manifest manifest,
                            WriteSampleParts(fs, checkpoints, version, parts, 1, run_id));
  return CommitManifest(fs, checkpoints, manifest, options);
}

// OK when every element of `checkpoint` is that of `version`, read in pieces of several lengths.
inline absl::Status CheckSample(const Checkpoint& checkpoint, Version version) {
  if (checkpoint.manifest().version != version) return absl::InternalError("another version");
  for (const auto& [name, shape] : SampleShapes()) {
    STARLING_ASSIGN_OR_RETURN(const auto stored_shape, checkpoint.Shape(name));
    if (stored_shape != shape) return absl::InternalError("another shape");
    for (const TensorKind kind : kKinds) {
      const std::vector<float> expected = SampleValues(name, kind, version);
      const auto count = static_cast<int64_t>(expected.size());
      for (const int64_t stride : {int64_t{1}, int64_t{5}, count + 1}) {
        std::vector<float> got(expected.size(), -1);
        for (int64_t begin = 0; begin < count; begin += stride) {
          const int64_t end = std::min(count, begin + stride);
          STARLING_RETURN_IF_ERROR(checkpoint.ReadInto(name, kind, begin, end, got.data() + begin));
        }
        if (got != expected) return absl::InternalError("another content: " + name);
      }
    }
  }
  return absl::OkStatus();
}

// The newest checkpoint that can be loaded, found as a run finds it: one after the other is tried.
inline absl::StatusOr<Checkpoint> NewestGood(const std::string& checkpoints) {
  STARLING_ASSIGN_OR_RETURN(const auto versions, ListCheckpoints(RealFs(), checkpoints));
  for (const Version version : versions) {
    auto checkpoint = OpenCheckpoint(JoinPath(checkpoints, FolderName(version)));
    if (checkpoint.ok()) return checkpoint;
  }
  return absl::NotFoundError("no checkpoint can be loaded");
}

inline constexpr Version At(int64_t step, uint64_t timeline = 1) {
  return {Timeline(timeline), Step(step)};
}

}  // namespace starling::checkpoint::testing
