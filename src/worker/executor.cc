#include "starling/worker/executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "starling/base/clock.h"
#include "starling/base/log.h"
#include "starling/base/rng.h"
#include "starling/base/status.h"
#include "starling/checkpoint/reader.h"
#include "starling/optim/step.h"
#include "starling/plan/assign.h"

namespace starling::worker {
namespace {

using comm::FaultPoint;
using membership::Completion;

// Prefetched batches that nobody has taken: enough to hide their making, little to throw away.
constexpr size_t kPrefetch = 4;
// Collectives end by an abort when a peer dies; this bound is the last resort (protocol.md §6).
constexpr absl::Duration kCollectiveTimeout = absl::Minutes(30);
constexpr absl::Duration kLastPartWait = absl::Minutes(10);  // for the disk, at the end
constexpr absl::Duration kConnectTimeout = absl::Seconds(20);

comm::Layout FirstOwners(int64_t size, int members) {
  comm::Layout layout;
  for (int r = 0; r < members; ++r) {
    const plan::Interval range = plan::FirstOwned(size, members, r);
    layout.emplace_back();
    if (range.begin < range.end) layout.back().push_back({range.begin, range.end});
  }
  return layout;
}

comm::Buffer FloatBuffer(std::span<float> values) {
  return {values.data(), static_cast<int64_t>(values.size()), DType::kFloat32};
}

template <typename T>
comm::ReducePart SumOf(std::vector<T>& values, DType dtype) {
  return {{values.data(), static_cast<int64_t>(values.size()), dtype}, comm::ReduceOp::kSum};
}

Completion Failure(const absl::Status& status) {
  return {.ok = false, .reason = std::string(status.message())};
}

// Close was called here, before or during the call.
bool EndedHere(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsFailedPrecondition(status);
}

// What a member does for a step: computes, or takes part in the step's own collectives.
bool IsStepWork(const membership::Command& command) {
  return std::holds_alternative<membership::Compute>(command) ||
         std::holds_alternative<membership::Reduce>(command) ||
         std::holds_alternative<membership::Vote>(command);
}

// Finite checks survive compilers; only an infinite or NaN norm makes a step worthless.
membership::Outcome OutcomeOf(double grad_norm) {
  return std::isfinite(grad_norm) ? membership::Outcome::kCommit : membership::Outcome::kSkip;
}

}  // namespace

Executor::Executor(ExecutorOptions options, ExecutorParts parts,
                   std::function<void(membership::PartWritten)> part_done)
    : options_(std::move(options)),
      parts_(std::move(parts)),
      part_done_(std::move(part_done)),
      all_{{0, parts_.trainer->layout().size}},
      loader_(data::Loader::Create(parts_.training, kPrefetch)),
      points_(options_.faults),
      writer_(std::make_unique<checkpoint::AsyncWriter>(RealFs())) {
  for (const comm::Fault& fault : options_.faults) {
    if (fault.kind == comm::Fault::Kind::kPace) pace_ = fault.duration;
  }
}

Completion Executor::Execute(const membership::Command& command) {
  const bool works = IsStepWork(command);
  if (works) LogStall();
  Completion completion = std::visit([this](const auto& c) { return Do(c); }, command);
  if (works) worked_at_ = SystemClock::Get().Now();
  return completion;
}

void Executor::LogStall() {
  const Generation generation = view_->generation;
  if (generation != worked_in_ && worked_in_ != Generation()) {
    const absl::Duration stall = SystemClock::Get().Now() - worked_at_;
    STARLING_LOG(Info) << "event=switched from_gen=" << worked_in_.value() << " stall_ms="
                       << absl::StrFormat("%.3f", absl::ToDoubleMilliseconds(stall));
  }
  worked_in_ = generation;
}

void Executor::Close(Generation generation, const std::string& reason) {
  parts_.transport->CancelConnect(generation);
  group_.Close(generation, reason);
  absl::MutexLock lock(&hold_mutex_);
  closed_ = std::max(closed_, generation);
}

void Executor::Drain(absl::Duration timeout) {
  if (absl::Status status = writer_->Drain(timeout); !status.ok()) {
    STARLING_LOG(Warning) << "checkpoint parts are still being written: " << status.message();
  }
}

Completion Executor::FromStatus(const absl::Status& status, Generation generation) {
  if (status.ok()) return {};
  Completion completion = Failure(status);
  completion.aborted = EndedHere(status);
  if (absl::StatusOr<std::shared_ptr<comm::Communicator>> current = group_.Get(generation);
      current.ok()) {
    for (Rank suspect : (*current)->suspects()) {
      completion.suspects.push_back(
          view_->members[static_cast<size_t>(suspect.value())].incarnation);
    }
  }
  return completion;
}

train::UpdateScalars Executor::Scalars(double learning_rate, double clip_factor,
                                       int64_t update) const {
  return {learning_rate, 1.0 / static_cast<double>(options_.membership.micro_batches), clip_factor,
          update};
}

// ---- state -------------------------------------------------------------------------------------

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

absl::StatusOr<std::shared_ptr<comm::Communicator>> Executor::ConnectView(
    const membership::View& view, const std::string& secret, Rank rank,
    std::vector<Incarnation>* unreachable) {
  if (auto prepared = group_.Get(view.generation); prepared.ok()) return prepared;
  points_.Pass(FaultPoint::kConnect, view.generation, rank);
  comm::GroupSpec spec{.run_id = options_.membership.run_id,
                       .generation = view.generation,
                       .rank = rank,
                       .peers = {},
                       .secret = secret};
  for (const membership::Member& member : view.members) {
    spec.peers.push_back({member.incarnation, member.data_address, member.host});
  }
  std::vector<Rank> ranks;
  auto communicator = parts_.transport->Connect(spec, kConnectTimeout, &ranks);
  for (Rank missing : ranks) {
    unreachable->push_back(view.members[static_cast<size_t>(missing.value())].incarnation);
  }
  if (!communicator.ok()) return communicator.status();
  group_.Install(comm::WithFaults(*std::move(communicator), options_.faults));
  points_.Pass(FaultPoint::kConnected, view.generation, rank);
  return group_.Get(view.generation);
}

Completion Executor::Do(const membership::Connect& command) {
  view_ = command.view;
  rank_ = command.rank;
  std::vector<Incarnation> unreachable;
  const auto communicator = ConnectView(*command.view, command.secret, command.rank, &unreachable);
  if (communicator.ok()) return {};
  Completion completion = Failure(communicator.status());
  completion.aborted = EndedHere(communicator.status());
  completion.suspects = std::move(unreachable);
  return completion;
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

// ---- a step ------------------------------------------------------------------------------------

void Executor::MeasureSpeed(absl::Duration spent) {
  const double now = 1.0 / std::max(1e-6, absl::ToDoubleSeconds(spent));
  const double before = speed_.load(std::memory_order_relaxed);
  speed_.store(before == 0 ? now : 0.8 * before + 0.2 * now, std::memory_order_relaxed);
}

Completion Executor::Do(const membership::Compute& command) {
  const absl::Time start = SystemClock::Get().Now();
  const int64_t step = command.position.step.value();
  Pass(FaultPoint::kCompute);
  std::vector<data::MicroBatchId> wanted{{step, command.index}};
  for (const plan::Interval& interval : command.upcoming.intervals()) {
    for (int64_t i = interval.begin; i < interval.end && wanted.size() <= kPrefetch; ++i) {
      wanted.push_back({step, i});
    }
  }
  loader_->Request(std::move(wanted));
  absl::StatusOr<data::Batch> batch = loader_->Take({step, command.index});
  if (!batch.ok()) return Failure(batch.status());
  const uint64_t dropout_seed = Draw({.seed = options_.seed,
                                      .step = static_cast<uint64_t>(step),
                                      .micro_batch = static_cast<uint32_t>(command.index),
                                      .purpose = DrawPurpose::kDropout});
  const absl::StatusOr<train::MicroBatchLosses> losses =
      parts_.trainer->Compute(*batch, dropout_seed);
  if (!losses.ok()) return Failure(losses.status());
  losses_.mlm += losses->mlm;
  losses_.sop += losses->sop;
  losses_.tokens += losses->tokens;
  losses_.computed_here = true;
  absl::Duration spent = SystemClock::Get().Now() - start;
  if (spent < pace_) {
    std::this_thread::sleep_for(absl::ToChronoNanoseconds(pace_ - spent));
    spent = pace_;
  }
  MeasureSpeed(spent);
  Pass(FaultPoint::kComputed);
  return {};
}

Completion Executor::Do(const membership::Reduce& command) {
  auto communicator = group_.Get(command.generation);
  if (!communicator.ok()) return FromStatus(communicator.status(), command.generation);
  comm::Communicator& c = **communicator;
  train::Trainer& trainer = *parts_.trainer;
  const comm::Layout layout = FirstOwners(trainer.layout().size, c.size());
  const std::vector<comm::Range>& mine = layout[static_cast<size_t>(c.rank().value())];
  Pass(FaultPoint::kReduce);
  // Each element is summed at its first owner and then forwarded, so all ranks hold the same bits.
  absl::Status status = c.ReduceScatter(FloatBuffer(trainer.accumulator()),
                                        FloatBuffer(trainer.reduced()), layout, kCollectiveTimeout);
  Pass(FaultPoint::kGather);
  if (status.ok()) status = c.AllGather(FloatBuffer(trainer.reduced()), layout, kCollectiveTimeout);
  std::vector<double> square{0.0};
  if (status.ok()) {
    Pass(FaultPoint::kNorm);
    square[0] = trainer.SquaredNorm(mine);
    const comm::ReducePart part = SumOf(square, DType::kFloat64);
    status = c.AllReduce({&part, 1}, kCollectiveTimeout);
  }
  if (!status.ok()) return FromStatus(status, command.generation);
  Pass(FaultPoint::kNormed);
  measured_.position = command.position;
  measured_.grad_norm =
      std::sqrt(square[0]) / static_cast<double>(options_.membership.micro_batches);
  measured_.clip_factor = optim::ClipFactor(measured_.grad_norm, options_.clip);
  measured_.learning_rate =
      options_.learning_rate * options_.schedule.Factor(command.position.step.value());
  measured_.partial = trainer.Measure(
      mine, Scalars(measured_.learning_rate, measured_.clip_factor, command.update));
  return {};
}

Completion Executor::Do(const membership::Vote& command) {
  WaitForCopy(command.generation);
  auto communicator = group_.Get(command.generation);
  if (!communicator.ok()) return FromStatus(communicator.status(), command.generation);
  comm::Communicator& c = **communicator;
  const auto members = static_cast<size_t>(c.size());
  const auto self = static_cast<size_t>(c.rank().value());
  const size_t tensors = parts_.trainer->layout().tensors.size();
  const int64_t step = command.position.step.value();
  const int64_t digest_every = options_.membership.digest_every;
  const bool digest_due = digest_every > 0 && step > 0 && step % digest_every == 0;

  std::vector<double> sums{losses_.mlm, losses_.sop};
  // A partial norm belongs to exactly one rank only when it was measured in this generation's
  // layout; Reduce always runs before Vote in the same generation.
  sums.insert(sums.end(), measured_.partial.weight_squares.begin(),
              measured_.partial.weight_squares.end());
  sums.insert(sums.end(), measured_.partial.update_squares.begin(),
              measured_.partial.update_squares.end());
  std::vector<uint64_t> counts(3 + members + (digest_due ? 4 * members : 0), 0);
  counts[0] = static_cast<uint64_t>(command.count);
  counts[1] = command.mix;
  counts[2] = static_cast<uint64_t>(losses_.tokens);
  if (losses_.computed_here) counts[3 + self] = static_cast<uint64_t>(std::lround(speed() * 1000));
  if (digest_due) {
    const membership::Digest digest = parts_.trainer->Digest(all_);
    std::copy(digest.begin(), digest.end(),
              counts.begin() + static_cast<std::ptrdiff_t>(3 + members + 4 * self));
  }
  std::vector<uint64_t> flags{command.request_checkpoint ? 1u : 0u};
  const comm::ReducePart parts[] = {SumOf(sums, DType::kFloat64),
                                    SumOf(counts, DType::kUint64),
                                    {{flags.data(), 1, DType::kUint64}, comm::ReduceOp::kOr}};
  Pass(FaultPoint::kVote);
  if (absl::Status status = c.AllReduce(parts, kCollectiveTimeout); !status.ok()) {
    return FromStatus(status, command.generation);
  }
  Pass(FaultPoint::kVoted);
  membership::VoteResult result;
  result.generation = command.generation;
  result.at = command.position;
  result.outcome = OutcomeOf(measured_.grad_norm);
  result.count = static_cast<int64_t>(counts[0]);
  result.mix = counts[1];
  result.update =
      result.outcome == membership::Outcome::kCommit ? command.update : command.update - 1;
  result.learning_rate = measured_.learning_rate;
  result.mlm_loss = sums[0];
  result.sop_loss = sums[1];
  result.tokens = static_cast<int64_t>(counts[2]);
  result.grad_norm = measured_.grad_norm;
  result.clip_factor = measured_.clip_factor;
  const auto norms = sums.begin() + 2;
  result.weight_squares.assign(norms, norms + static_cast<std::ptrdiff_t>(tensors));
  result.update_squares.assign(norms + static_cast<std::ptrdiff_t>(tensors), sums.end());
  for (size_t r = 0; r < members; ++r)
    result.speeds.push_back(static_cast<plan::Speed>(counts[3 + r]));
  result.checkpoint_requested = flags[0] != 0;
  for (size_t r = 0; digest_due && r < members; ++r) {
    membership::Digest digest;
    std::copy_n(counts.begin() + static_cast<std::ptrdiff_t>(3 + members + 4 * r), 4,
                digest.begin());
    result.digests.push_back(digest);
  }
  return {.vote = std::move(result)};
}

Completion Executor::Do(const membership::Apply& command) {
  const membership::VoteResult& result = command.result;
  Pass(FaultPoint::kApply);
  absl::MutexLock lock(&state_mutex_);
  state_.version = result.After().version();
  if (result.outcome == membership::Outcome::kCommit) {
    parts_.trainer->Apply(all_, Scalars(result.learning_rate, result.clip_factor, result.update),
                          {result.weight_squares, result.update_squares});
    state_.updates = result.update;
  } else {
    STARLING_LOG(Warning) << "step=" << result.at.step.value() + 1
                          << " outcome=" << membership::ToString(result.outcome)
                          << " grad_norm=" << result.grad_norm;
  }
  Pass(FaultPoint::kApplied);
  return {};
}

Completion Executor::Do(const membership::ClearAccumulator& command) {
  parts_.trainer->ClearAccumulator();
  losses_ = {};
  absl::MutexLock lock(&held_mutex_);
  std::erase_if(held_,
                [&](const auto& held) { return !(held.second.position == command.position); });
  return {};
}

Completion Executor::Do(const membership::MergeHeld& command) {
  absl::MutexLock lock(&held_mutex_);
  const std::span<float> accumulator = parts_.trainer->accumulator();
  for (Incarnation owner : command.owners) {
    const auto it = held_.find(owner);
    if (it == held_.end()) {
      return Failure(
          absl::InternalError(absl::StrCat("no accumulator of ", ToHex(owner), " is held here")));
    }
    const Held& held = it->second;
    for (size_t i = 0; i < held.sums.size(); ++i) accumulator[i] += held.sums[i];
    losses_.mlm += held.losses.mlm;
    losses_.sop += held.losses.sop;
    losses_.tokens += held.losses.tokens;
    held_.erase(it);
  }
  return {};
}

// ---- beside the steps --------------------------------------------------------------------------

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
