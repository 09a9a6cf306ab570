// The driver of the coordinator's core: its lives, its journal, its disk and its outputs.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/world.h"
#include "starling/checkpoint/manifest.h"

namespace starling::sim {

using membership::CoordinatorCore;
using membership::ToString;

void World::StartCoordinator() {
  if (coordinator_) return;
  const auto content = membership::DecodeJournal(journal_);
  if (!content.ok()) {
    Fail(absl::StrCat("the journal cannot be read: ", std::string(content.status().message())));
    return;
  }
  journal_.resize(content->valid_bytes);
  membership::RestoredState restored = content->state;
  for (const auto& [folder, checkpoint] : disk_) {
    const bool known = std::any_of(restored.checkpoints.begin(), restored.checkpoints.end(),
                                   [&name = folder](const auto& c) { return c.folder == name; });
    if (!known && !restored.bad_checkpoints.contains(folder)) {
      restored.checkpoints.push_back({folder, checkpoint.version, true});
    }
  }
  if (!ledger_.empty()) restored.ledger_last = ledger_.back().version;
  ++life_;
  next_registration_ = 1;
  stream_ids_.clear();
  outputs_left_.reset();
  ended_.reset();
  Trace(absl::StrCat("coordinator starts, life ", life_));
  coordinator_ = std::make_unique<CoordinatorCore>(
      options_.protocol, std::move(restored), queue_.time(),
      [](Generation g) { return absl::StrCat("secret-", g.value()); });
  ToCoordinator(membership::Wake{});
}

void World::KillCoordinator() {
  if (!coordinator_) return;
  Trace("coordinator dies");
  coordinator_.reset();
  coordinator_paused_ = false;
  backlog_.clear();
  for (auto& [id, stream] : streams_) {
    if (stream.life == life_ && stream.coordinator_end) CloseEnd(stream, true);
  }
}

void World::PauseCoordinator(Micros duration) {
  if (!coordinator_ || coordinator_paused_) return;
  Trace("coordinator pauses");
  coordinator_paused_ = true;
  const uint64_t life = life_;
  queue_.After(duration, [this, life] {
    if (life != life_ || !coordinator_) return;
    coordinator_paused_ = false;
    std::deque<membership::CoordinatorInput> backlog = std::move(backlog_);
    backlog_.clear();
    ToCoordinator(membership::Wake{});
    for (const auto& input : backlog) ToCoordinator(input);
  });
}

void World::LoseJournal() {
  Trace("the journal is lost");
  journal_.clear();
  Tell([](Checker& c) { c.OnJournalLost(); });
}

void World::SpoilNewestCheckpoint() {
  DiskCheckpoint* newest = nullptr;
  for (auto& [folder, checkpoint] : disk_) {
    if (newest == nullptr || newest->version < checkpoint.version) newest = &checkpoint;
  }
  if (newest != nullptr) newest->readable = false;
}

void World::Request(membership::UserRequest request) { ToCoordinator(std::move(request)); }

void World::ToCoordinator(const membership::CoordinatorInput& input) {
  if (!coordinator_ || ended_) return;
  if (coordinator_paused_) {
    backlog_.push_back(input);
    return;
  }
  membership::CoordinatorOutputs outputs;
  coordinator_->Receive(input, queue_.time(), &outputs);
  const uint64_t life = life_;
  for (const membership::CoordinatorOutput& output : outputs) {
    if (outputs_left_ && (*outputs_left_)-- <= 0) {
      outputs_left_.reset();
      if (const auto* persist = std::get_if<membership::Persist>(&output)) {
        const std::string frame = EncodeRecord(persist->record);  // torn in the middle
        journal_.append(frame, 0,
                        static_cast<size_t>(random_.Below(static_cast<int64_t>(frame.size()))));
      }
      KillCoordinator();
      return;
    }
    Do(output);
    if (after_coordinator_output) after_coordinator_output(output);
    if (!coordinator_ || life != life_ || !failure_.empty()) return;
  }
  ScheduleWake();
}

void World::ScheduleWake() {
  const absl::Time next = coordinator_->NextWake();
  if (next == absl::InfiniteFuture()) return;
  const uint64_t wake = ++wake_;
  const uint64_t life = life_;
  queue_.At(std::max(queue_.now() + 1, absl::ToUnixMicros(next)), [this, wake, life] {
    if (wake == wake_ && life == life_ && coordinator_) ToCoordinator(membership::Wake{});
  });
}

void World::Do(const membership::CoordinatorOutput& output) {
  Hash(output.index() * 977);
  if (const auto* persist = std::get_if<membership::Persist>(&output)) {
    journal_ += EncodeRecord(persist->record);
    Hash(EncodeRecord(persist->record));
    Tell([&](Checker& c) { c.OnRecord(persist->record); });
    if (const auto* form = std::get_if<membership::FormRecord>(&persist->record)) {
      last_view_ = form->view;
      last_timeline_ = form->position.timeline;
      last_position_ = form->position;
      ++forms_;
      if (form->forked_from) ++restores_;
      Trace(absl::StrCat("journals generation ", form->view.generation.value(), " of ",
                         form->view.members.size(), " at ", ToString(form->position), ": ",
                         form->reason));
    }
  } else if (const auto* send = std::get_if<membership::SendToWorker>(&output)) {
    Hash(ToString(*send->message));
    if (const auto* activate = std::get_if<membership::Activate>(send->message.get())) {
      CheckActivate(activate->generation);
    }
    if (SimStream* stream = StreamOf(send->registration)) {
      if (!std::holds_alternative<membership::Settled>(*send->message)) {
        Trace(absl::StrCat("-> ", workers_.at(stream->worker)->member.name, " ",
                           ToString(*send->message)));
      }
      SendDown(*stream, *send->message);
    }
  } else if (const auto* close = std::get_if<membership::CloseStream>(&output)) {
    if (SimStream* stream = StreamOf(close->registration)) CloseEnd(*stream, true);
  } else if (const auto* ledger = std::get_if<membership::WriteLedger>(&output)) {
    ledger_.push_back(ledger->line);
    Trace(absl::StrCat("ledger ", ToString(ledger->line.version), " of generation ",
                       ledger->line.generation.value()));
    Tell([&](Checker& c) { c.OnLedger(ledger->line); });
    CheckSettled(ledger->line);
  } else if (const auto* event = std::get_if<membership::Event>(&output)) {
    Trace(absl::StrCat("event ", event->event, " ", event->worker, " ", event->reason));
    told_.push_back(*event);
    if (event->event == "diverged") Fail(absl::StrCat("I8: ", event->reason));
  } else if (const auto* manifest = std::get_if<membership::WriteManifest>(&output)) {
    WriteManifest(*manifest);
  } else if (const auto* ended = std::get_if<membership::Ended>(&output)) {
    Trace(absl::StrCat("ended ", ended->exit_code, ": ", ended->reason));
    ended_ = *ended;
    for (auto& [id, stream] : streams_) {
      if (stream.life == life_ && stream.coordinator_end) CloseEnd(stream, true);
    }
    if (ended->exit_code == 70) Fail(absl::StrCat("exit 70: ", ended->reason));
  }
}

// I5: a generation begins when all its members are ready, whatever has become of them since.
void World::CheckActivate(Generation generation) {
  if (std::exchange(activated_, generation) == generation) return;
  for (const membership::Member& member : last_view_.members) {
    const SimWorker& worker = *workers_.at(member.incarnation);
    if (worker.ready == generation) continue;
    Fail(absl::StrCat("I5: generation ", generation.value(), " is activated before ", member.name,
                      " is ready"));
  }
}

// I13: a line is written when every member of its view knows the decision, or a later view begins
// with it.
void World::CheckSettled(const membership::LedgerLine& line) {
  if (line.generation != last_view_.generation || line.version <= last_position_.version()) return;
  for (const membership::Member& member : last_view_.members) {
    const SimWorker& worker = *workers_.at(member.incarnation);
    const membership::MemberState& state = worker.core->state();
    if (state.position.version() >= line.version ||
        (state.pending_result && state.pending_result->After().version() >= line.version)) {
      continue;
    }
    Fail(absl::StrCat("I13: a ledger line of ", ToString(line.version), ", which ", member.name,
                      " does not know to be decided"));
  }
}

void World::WriteManifest(const membership::WriteManifest& manifest) {
  if (ledger_.empty() ? manifest.version.step.value() > 0
                      : ledger_.back().version.timeline == manifest.version.timeline &&
                            ledger_.back().version < manifest.version) {
    Fail(absl::StrCat("I13: a manifest of ", ToString(manifest.version), ", which is not settled"));
  }
  const bool ok = !random_.Chance(options_.manifest_failure);
  std::optional<DiskPart> first;
  for (size_t r = 0; ok && r < manifest.parts.size(); ++r) {
    const auto part =
        parts_.find({manifest.version, manifest.generation, Rank(static_cast<int32_t>(r))});
    if (part == parts_.end()) {
      Fail(absl::StrCat("I11: the manifest of ", ToString(manifest.version), " lists part ", r,
                        ", which is not durable"));
      return;
    }
    if (!first) first = part->second;
    if (first->chain != part->second.chain || first->updates != manifest.updates) {
      Fail(absl::StrCat("I8: parts of ", ToString(manifest.version), " hold different bits"));
    }
  }
  const std::string folder = checkpoint::FolderName(manifest.version);
  if (ok && first) {
    disk_[folder] = {manifest.version, first->chain, manifest.updates, true};
  }
  const uint64_t life = life_;
  queue_.After(random_.Between(500, 30'000), [this, folder, version = manifest.version, ok, life] {
    if (life != life_) return;
    ToCoordinator(
        membership::ManifestWritten{folder, version, ok, ok ? "" : "no space left on device"});
  });
}

}  // namespace starling::sim
