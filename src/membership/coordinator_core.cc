// The life of a run: how it starts, which phase follows which, and when to look again. Streams and
// members are in coordinator_sessions.cc, the making of views in coordinator_views.cc, the books of
// steps, checkpoints and requests in coordinator_books.cc.
#include "starling/membership/coordinator_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "membership/codes.h"
#include "membership/mutation.h"
#include "starling/base/exit_codes.h"
#include "starling/base/status.h"

namespace starling::membership {

std::string ToString(CoordinatorCore::Phase phase) {
  switch (phase) {
    case CoordinatorCore::Phase::kReconnecting:
      return "reconnecting";
    case CoordinatorCore::Phase::kGathering:
      return "gathering";
    case CoordinatorCore::Phase::kSurveying:
      return "surveying";
    case CoordinatorCore::Phase::kForming:
      return "forming";
    case CoordinatorCore::Phase::kRunning:
      return "running";
    case CoordinatorCore::Phase::kEnded:
      return "ended";
  }
  return "?";
}

namespace {

// Whether the journal's run takes steps as `options` say.
bool SameMeaning(const Options& options, const RestoredState& restored) {
  return restored.run && restored.run->config_hash == options.config_hash &&
         restored.run->model_hash == options.model_hash;
}

}  // namespace

absl::Status CheckIdentity(const Options& options, const RestoredState& restored) {
  if (!restored.run) return absl::OkStatus();
  if (restored.run->run_id != options.run_id) {
    return WithExitCode(
        absl::InvalidArgumentError(absl::StrCat(
            "the folder holds run '", restored.run->run_id, "', the config names run '",
            options.run_id, "': use another run.directory or the old run.name")),
        ExitCode::kConfig);
  }
  if (!SameMeaning(options, restored) && !options.accept_config_change) {
    return WithExitCode(
        absl::InvalidArgumentError(
            "the config changes the meaning of a step (model, data, seed, batch, optimizer, "
            "schedule or precision differ): use the run's config.resolved.yaml, or say "
            "--accept-config-change"),
        ExitCode::kConfig);
  }
  return absl::OkStatus();
}

CoordinatorCore::CoordinatorCore(Options options, RestoredState restored, absl::Time now,
                                 SecretSource secrets)
    : options_(std::move(options)),
      secrets_(std::move(secrets)),
      restored_(std::move(restored)),
      term_(Mutated(Mutation::kTermNotRaised) && restored_.term.value() > 0
                ? restored_.term
                : restored_.term.Next()),
      now_(now),
      phase_since_(now),
      next_generation_(restored_.generations_up_to.Next()),
      started_at_(now) {
  fenced_ = restored_.fenced;
  for (const auto& [timeline, fork] : restored_.forks) {
    highest_timeline_ = std::max(highest_timeline_, timeline);
  }
  if (restored_.ledger_last) {
    highest_timeline_ = std::max(highest_timeline_, restored_.ledger_last->timeline);
  }
  for (const CheckpointRecord& checkpoint : restored_.checkpoints) {
    highest_timeline_ = std::max(highest_timeline_, checkpoint.version.timeline);
  }
  if (restored_.ledger_last) settled_ = *restored_.ledger_last;
  if (restored_.form) {
    const FormRecord& form = *restored_.form;
    view_ = std::make_shared<View>(form.view);
    position_ = form.position;
    timeline_ = form.position.timeline;
    highest_timeline_ = std::max(highest_timeline_, timeline_);
    for (const Member& member : view_->members) {
      MemberTrack track;
      track.missing_since = now;
      track.reported = position_.step;
      track.draining = restored_.draining.contains(member.incarnation);
      tracks_[member.incarnation] = track;
      troubled_.insert(member.incarnation);
    }
    report_counts_[position_.step] = static_cast<int>(tracks_.size());
    latest_evaluation_ = form.latest_evaluation;
    if (form.result) witnessed_.push_back(*form.result);  // decided: nobody may be left behind it
    // The journal that told how this timeline began was lost, and its ledger does not reach it.
    books_adopted_ = timeline_.value() > 1 && settled_.timeline != timeline_ &&
                     !restored_.forks.contains(timeline_);
    SetPhase(Phase::kReconnecting, "waits for the members of the journalled view");
  } else {
    SetPhase(Phase::kGathering, "waits for workers");
  }
  const Ancestry ancestry = CurrentAncestry();
  for (const CheckpointRecord& checkpoint : restored_.checkpoints) {
    if (!OnAncestry(ancestry, checkpoint.version)) continue;
    if (!latest_checkpoint_ || *latest_checkpoint_ < checkpoint.version) {
      latest_checkpoint_ = checkpoint.version;
    }
  }
}

void CoordinatorCore::Receive(const CoordinatorInput& input, absl::Time now,
                              CoordinatorOutputs* out) {
  out_ = out;
  // A pause of this process is nobody else's silence.
  if (started_ && now > expected_wake_ + options_.detection / 8) paused_ += now - expected_wake_;
  now_ = now;
  if (!started_) {
    started_ = true;
    Begin();
  }
  std::visit([this](const auto& value) { Handle(value); }, input);
  Progress();
  expected_wake_ = NextWake();
  out_ = nullptr;
}

void CoordinatorCore::Begin() {
  if (!SameMeaning(options_, restored_)) {
    const bool known = restored_.run.has_value();
    if (known) Note("config_changed", "", "accepted by --accept-config-change");
    PersistRecord(RunRecord{options_.run_id, options_.config_hash, options_.model_hash,
                            known ? restored_.run->data_hash : 0});
  }
  PersistRecord(TermRecord{term_});
  if (restored_.done && restored_.done->step.value() >= options_.total_steps) {
    // Members that were not told before the last life of this process ended still wait for it.
    linger_until_ = now_ + options_.detection;
    Note("ended", "", "training was already complete");
    EndRun(0, 0, "training was already complete");
  }
}

void CoordinatorCore::SetPhase(Phase phase, std::string reason) {
  phase_ = phase;
  phase_reason_ = std::move(reason);
  phase_since_ = now_;
}

void CoordinatorCore::Progress() {
  CheckSilence();
  // A phase that ends may let the next one end at once.
  for (int turns = 0; turns < 8 && !ending_; ++turns) {
    const Phase before = phase_;
    switch (phase_) {
      case Phase::kReconnecting:
        CheckReconnecting();
        break;
      case Phase::kGathering:
        CheckGathering();
        break;
      case Phase::kRunning:
        CheckRunning();
        break;
      case Phase::kSurveying:
        CheckSurvey();
        break;
      case Phase::kForming:
        CheckForming();
        break;
      case Phase::kEnded:
        return;
    }
    if (phase_ == before) break;
  }
  Settle();
  TryManifests();
  MaybeEnd();
}

void CoordinatorCore::CheckReconnecting() {
  const bool window_over = now_ - phase_since_ >= options_.reconnect_window();
  bool all_active = true;
  for (const auto& [incarnation, track] : tracks_) {
    if (track.missing_since == absl::InfiniteFuture() && !track.gone) {
      all_active = all_active && track.active;
      continue;
    }
    all_active = false;
    if (!track.gone && !window_over) return;
  }
  if (all_active) {
    SetPhase(Phase::kRunning, "all members came back");
    AdoptBooks();
    if (restored_.form->purpose == Purpose::kStop) {  // it goes on stopping
      stopping_view_ = true;
      BeginStop("the stop that was under way goes on");
    }
    Note("resumed", "", "the coordinator is back; training had gone on");
  } else {
    StartSurvey("not all members came back after the coordinator's restart");
  }
}

void CoordinatorCore::CheckRunning() {
  if (force_restore_) return StartSurvey("copies of the state differ");
  bool leavers = false;
  for (Incarnation incarnation : troubled_) {
    const MemberTrack& track = tracks_.at(incarnation);
    if (!track.draining || !track.lost_reason.empty()) {
      return StartSurvey(absl::StrCat(NameOf(incarnation), " ", track.lost_reason));
    }
    leavers = leavers || !stopping_view_;  // which they all leave anyway
  }
  if (stop_requested_ && !stopping_view_) return StartSurvey(stop_reason_);
  CheckPlannedChange(leavers);
}

void CoordinatorCore::StartSurvey(const std::string& reason) {
  if (phase_ == Phase::kRunning || phase_ == Phase::kReconnecting || phase_ == Phase::kGathering) {
    absl::Time first_sign = now_;
    for (Incarnation incarnation : troubled_) {
      first_sign = std::min(first_sign, tracks_.at(incarnation).missing_since + paused_);
    }
    phase_ms_ = {{"detect", absl::ToDoubleMilliseconds(now_ - first_sign)}};
  }
  SetPhase(Phase::kSurveying, reason);
  if (proposal_ && !proposal_->ready) proposal_.reset();
  form_.reset();
  awaited_.clear();
  for (auto& [incarnation, track] : tracks_) {
    track.active = false;
    track.shunned = false;
    track.answer.reset();
    if (!track.gone) awaited_.insert(incarnation);
  }
  Broadcast(Revoke{term_, view_->generation, reason});
}

void CoordinatorCore::CheckSurvey() {
  for (Incarnation incarnation : troubled_) {
    if (Lost(tracks_.at(incarnation))) awaited_.erase(incarnation);
  }
  if (awaited_.size() > (Mutated(Mutation::kSurveyCutShort) ? 1 : 0)) return;
  DropUnreachable();
  FormNext();
}

void CoordinatorCore::CheckForming() {
  for (Incarnation incarnation : troubled_) {
    const MemberTrack& track = tracks_.at(incarnation);
    if (Lost(track)) return StartSurvey(absl::StrCat(NameOf(incarnation), " ", track.lost_reason));
  }
  if (awaited_.size() <= (Mutated(Mutation::kActivatedUnready) ? 1 : 0)) return ActivateView();
  absl::Time moved = absl::InfinitePast();
  for (Incarnation incarnation : awaited_) {
    const Session* session = SessionOf(incarnation);
    if (session == nullptr) continue;
    moved = std::max(moved, session->moved_at);
    if (now_ - phase_since_ > options_.stuck_after &&
        Effective() - session->progress_at > options_.stuck_after) {
      MarkGone(incarnation, absl::StrCat("not ready for generation ", view_->generation.value(),
                                         " after ", absl::FormatDuration(options_.stuck_after)));
      return StartSurvey("a member does not get ready");
    }
  }
  // All wait for each other and nothing moves: a message was lost. Another generation sends anew.
  if (now_ - phase_since_ > 2 * options_.stuck_after &&
      Effective() - moved > 2 * options_.stuck_after) {
    StartSurvey("forming does not get on");
  }
}

void CoordinatorCore::CheckGathering() {
  if (reported_view_) {
    size_t present = 0;
    for (const Member& member : reported_view_->members) {
      present += by_incarnation_.contains(member.incarnation) ? 1 : 0;
    }
    // The others are given their time to reconnect, too.
    const bool window_over = now_ - started_at_ >= options_.reconnect_window();
    const size_t members = reported_view_->members.size();
    if (present == members || (window_over && 2 * present > members) ||
        (adopt_ && window_over && present > 0)) {
      AdoptReportedView();
      return;
    }
    if (!adopt_ || !window_over || present > 0) return;
    // A person says that its members will not come back.
    highest_timeline_ = std::max(highest_timeline_, reported_position_.timeline);
    reported_view_.reset();
  }
  // Survivors of a view that was too small wait with their state; the newest change decides anew.
  if (view_) {
    bool survivor = false;
    bool leaver = false;
    bool shunned = false;
    for (auto& [incarnation, track] : tracks_) {
      if (Lost(track)) track.answer.reset();
      survivor = survivor || track.answer.has_value();
      leaver = leaver || (track.answer.has_value() && track.draining);
      shunned = shunned || (track.answer.has_value() && track.shunned);
    }
    // The way to a member may have healed.
    if (shunned && now_ - phase_since_ >= options_.reconnect_window())
      return StartSurvey("tries again to reach all members");
    const size_t newcomers = Newcomers().size();
    if (survivor ? (newcomers > 0 || leaver || stop_requested_)
                 : (EnoughToStart(newcomers) || stop_requested_)) {
      FormNext();
    }
    return;
  }
  if (stop_requested_) return EndRun(kDrained, kDrained, stop_reason_);
  if (EnoughToStart(Newcomers().size())) FormNext();
}

absl::Time CoordinatorCore::NextWake() const {
  if (phase_ == Phase::kEnded) return absl::InfiniteFuture();
  // The tick bounds how long a pause of this process can go unmeasured.
  absl::Time wake = now_ + options_.detection / 4;
  const auto at = [&](absl::Time time) {
    if (time > now_) wake = std::min(wake, time);
  };
  if (!deadlines_.empty()) at(deadlines_.begin()->first + paused_);
  for (Incarnation incarnation : troubled_) {
    const MemberTrack& track = tracks_.at(incarnation);
    at(AwaitedUntil(track) + paused_);
    if (phase_ == Phase::kSurveying) at(track.missing_since + options_.patience + paused_);
  }
  if (proposal_) {
    at(proposal_->since + options_.stuck_after + paused_);
    at(LeaveBy() - options_.detection + paused_);
    at(LeaveBy() + paused_);
  }
  if (joiner_since_ != absl::InfiniteFuture()) {
    at(joiner_since_ + options_.join_settle());
    at(joiner_since_ + options_.gather_after);
  }
  if (phase_ == Phase::kReconnecting) at(phase_since_ + options_.reconnect_window());
  if (phase_ == Phase::kGathering) at(started_at_ + options_.reconnect_window());
  return wake;
}

}  // namespace starling::membership
