// The state (p, m, v): made, loaded, copied between workers, evaluated and saved.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "starling/base/status.h"
#include "starling/checkpoint/reader.h"
#include "starling/plan/assign.h"
#include "starling/worker/executor.h"
#include "worker/executor_common.h"

namespace starling::worker {
namespace {

using comm::FaultPoint;
using membership::Completion;
using membership::Transfer;

constexpr absl::Duration kLastPartWait = absl::Minutes(10);  // for the disk, at the end
// What is read whole at one version, and is on its way at a time: 1 MiB.
constexpr size_t kChunk = size_t{1} << 18;

// Goes before each chunk.
struct ChunkHeader {
  uint64_t timeline = 0;
  int64_t step = 0;
  int64_t updates = 0;

  comm::Buffer buffer() { return {this, sizeof(*this) / sizeof(uint64_t), DType::kUint64}; }
};

// By receiver, its donors in the order in which they send it chunks.
std::map<Rank, std::vector<Rank>> DonorsByReceiver(const std::vector<Transfer>& transfers) {
  std::map<Rank, std::vector<Rank>> donors;
  for (const Transfer& transfer : transfers) donors[transfer.to].push_back(transfer.from);
  return donors;
}

}  // namespace

Completion Executor::Do(const membership::InitializeFromSeed& command) {
  absl::MutexLock lock(&state_mutex_);
  parts_.trainer->InitializeFromSeed([this] { progress_.fetch_add(1, std::memory_order_relaxed); });
  state_ = {command.version, 0};
  return {.updates = 0};
}

Completion Executor::Do(const membership::LoadCheckpoint& command) {
  const std::string folder =
      JoinPath(JoinPath(options_.run_directory, "checkpoints"), command.source.checkpoint);
  absl::StatusOr<checkpoint::Checkpoint> opened = checkpoint::OpenCheckpoint(folder);
  if (!opened.ok()) return Failure(opened.status());
  train::Trainer& trainer = *parts_.trainer;
  absl::MutexLock lock(&state_mutex_);
  const std::pair<checkpoint::TensorKind, std::span<float>> buffers[] = {
      {checkpoint::TensorKind::kParameter, trainer.parameters()},
      {checkpoint::TensorKind::kFirstMoment, trainer.first_moment()},
      {checkpoint::TensorKind::kSecondMoment, trainer.second_moment()}};
  for (const train::FlatTensor& tensor : trainer.layout().tensors) {
    const absl::StatusOr<std::vector<int64_t>> shape = opened->Shape(tensor.name);
    if (!shape.ok()) return Failure(shape.status());
    if (*shape != tensor.shape) {
      return Failure(absl::DataLossError(
          absl::StrCat(folder, ": tensor ", tensor.name, " has another shape than the model")));
    }
    for (const auto& [kind, buffer] : buffers) {
      const absl::Status status =
          opened->ReadInto(tensor.name, kind, 0, tensor.count, buffer.data() + tensor.begin);
      if (!status.ok()) return Failure(status);
    }
    progress_.fetch_add(1, std::memory_order_relaxed);
  }
  state_ = {command.version, opened->manifest().optimizer_steps};
  return {.updates = state_.updates};
}

// The donors' state is constant: nobody applies anything before Activate.
Completion Executor::Do(const membership::CopyState& command) {
  auto communicator = group_.Get(command.generation);
  if (!communicator.ok()) return FromStatus(communicator.status(), command.generation);
  const auto copied = CopyStates(**communicator, command.transfers);
  if (!copied.ok()) return FromStatus(copied.status(), command.generation);
  absl::MutexLock lock(&state_mutex_);
  if (*copied && **copied != command.version) {
    return Failure(
        absl::InternalError(absl::StrCat("copied ", membership::ToString(**copied), " instead of ",
                                         membership::ToString(command.version))));
  }
  return {.updates = state_.updates};
}

absl::Status Executor::GiveChunk(comm::Communicator& communicator, std::span<const float> chunk,
                                 Rank to, std::vector<float>* staging) {
  ChunkHeader header;
  staging->resize(chunk.size());
  {
    absl::MutexLock lock(&state_mutex_);
    header = {state_.version.timeline.value(), state_.version.step.value(), state_.updates};
    std::memcpy(staging->data(), chunk.data(), chunk.size_bytes());
  }
  STARLING_RETURN_IF_ERROR(communicator.Send(header.buffer(), to, kCollectiveTimeout));
  return communicator.Send(FloatBuffer(*staging), to, kCollectiveTimeout);
}

absl::Status Executor::TakeChunk(comm::Communicator& communicator, std::span<float> chunk,
                                 Rank from) {
  ChunkHeader header;
  STARLING_RETURN_IF_ERROR(communicator.Receive(header.buffer(), from, kCollectiveTimeout));
  absl::MutexLock lock(&state_mutex_);
  state_ = {{Timeline(header.timeline), Step(header.step)}, header.updates};
  return communicator.Receive(FloatBuffer(chunk), from, kCollectiveTimeout);
}

absl::StatusOr<std::optional<Version>> Executor::CopyStates(
    comm::Communicator& communicator, const std::vector<Transfer>& transfers) {
  const Rank self = communicator.rank();
  const std::map<Rank, std::vector<Rank>> donors = DonorsByReceiver(transfers);
  std::vector<float> staging;
  std::set<Version> taken;
  size_t number = 0;
  const auto move = [&](std::span<float> chunk, Rank from, Rank to) {
    progress_.fetch_add(1, std::memory_order_relaxed);
    points_.Pass(FaultPoint::kCopy, communicator.generation(), self);
    if (from == self) return GiveChunk(communicator, chunk, to, &staging);
    absl::Status status = TakeChunk(communicator, chunk, from);
    absl::MutexLock lock(&state_mutex_);
    taken.insert(state_.version);
    return status;
  };
  for (const std::span<float> buffer :
       {parts_.trainer->parameters(), parts_.trainer->first_moment(),
        parts_.trainer->second_moment()}) {
    for (size_t begin = 0; begin < buffer.size(); begin += kChunk, ++number) {
      const auto chunk = buffer.subspan(begin, std::min(kChunk, buffer.size() - begin));
      for (const auto& [receiver, givers] : donors) {
        const Rank donor = givers[number % givers.size()];
        if (donor != self && receiver != self) continue;
        STARLING_RETURN_IF_ERROR(move(chunk, donor, receiver));
      }
    }
  }
  if (!donors.empty()) points_.Pass(FaultPoint::kCopied, communicator.generation(), self);
  return taken.size() == 1 ? std::optional<Version>(*taken.begin()) : std::nullopt;
}

Completion Executor::Do(const membership::Evaluate& command) {
  membership::EvaluationPart sum;
  int64_t batches = parts_.evaluation == nullptr ? 0 : parts_.evaluation->batches();
  if (options_.evaluation_batches > 0) batches = std::min(batches, options_.evaluation_batches);
  for (int64_t i = command.rank.value(); i < batches; i += command.members) {
    if (!group_.Get(command.generation).ok()) {
      return {.ok = false, .aborted = true, .reason = "the generation ended"};
    }
    const absl::StatusOr<data::Batch> batch = parts_.evaluation->Make({0, i});
    if (!batch.ok()) return Failure(batch.status());
    const absl::StatusOr<train::EvaluationSums> part = parts_.trainer->Evaluate(*batch);
    if (!part.ok()) return Failure(part.status());
    sum += {part->mlm_loss, part->masked, part->masked_correct,
            part->sop_loss, part->pairs,  part->pairs_correct};
    progress_.fetch_add(1, std::memory_order_relaxed);
  }
  return {.evaluation = sum};
}

Completion Executor::Do(const membership::Snapshot& command) {
  train::Trainer& trainer = *parts_.trainer;
  const plan::Interval owned =
      plan::FirstOwned(trainer.layout().size, command.members, command.rank.value());
  const std::vector<comm::Range> mine{{owned.begin, owned.end}};
  const auto length = static_cast<size_t>(owned.end - owned.begin);
  const std::pair<checkpoint::TensorKind, std::span<float>> buffers[] = {
      {checkpoint::TensorKind::kParameter, trainer.parameters()},
      {checkpoint::TensorKind::kFirstMoment, trainer.first_moment()},
      {checkpoint::TensorKind::kSecondMoment, trainer.second_moment()}};
  auto storage = std::make_shared<std::vector<float>>(3 * length);
  checkpoint::Snapshot snapshot;
  float* copy = storage->data();
  for (const auto& [kind, buffer] : buffers) {
    std::memcpy(copy, buffer.data() + owned.begin, length * sizeof(float));
    for (const train::TensorPart& part : train::PartsOf(trainer.layout(), mine)) {
      const train::FlatTensor& tensor = trainer.layout().tensors[part.tensor];
      checkpoint::TensorSlice slice;
      slice.range = {tensor.name,
                     kind,
                     DType::kFloat32,
                     tensor.shape,
                     part.range.begin - tensor.begin,
                     part.range.end - tensor.begin};
      slice.data = {reinterpret_cast<const char*>(copy + (part.range.begin - owned.begin)),
                    static_cast<size_t>(part.range.end - part.range.begin) * sizeof(float)};
      snapshot.slices.push_back(std::move(slice));
    }
    copy += length;
  }
  membership::PartWritten message{
      command.version, command.generation, command.rank, command.updates, false, ""};
  Pass(FaultPoint::kPart);
  if (snapshot.slices.empty()) {  // more workers than blocks: nothing of it is this rank's
    Pass(FaultPoint::kPartWritten);
    message.ok = true;
    part_done_(std::move(message));
    return {};
  }
  snapshot.storage = storage;
  snapshot.folder = JoinPath(JoinPath(options_.run_directory, "checkpoints"),
                             checkpoint::FolderName(command.version));
  snapshot.spec = {options_.membership.run_id, command.version, command.generation,
                   options_.incarnation,       command.rank,    0};
  if (command.last) Drain(kLastPartWait);
  const absl::Status status = writer_->Submit(
      std::move(snapshot), [message, this](absl::StatusOr<checkpoint::Part> part) mutable {
        points_.Pass(FaultPoint::kPartWritten, message.generation, message.rank);
        message.ok = part.ok();
        message.info =
            part.ok() ? checkpoint::EncodePart(*part) : std::string(part.status().message());
        part_done_(std::move(message));
      });
  if (!status.ok()) {
    message.info = std::string(status.message());
    part_done_(std::move(message));
  }
  return {};
}

}  // namespace starling::worker
