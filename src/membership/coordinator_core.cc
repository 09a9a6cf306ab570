// Sessions, surveys and views. The bookkeeping of steps, checkpoints and requests is in
// coordinator_books.cc.
#include "starling/membership/coordinator_core.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "starling/base/exit_codes.h"

namespace starling::membership {
namespace {

constexpr int kFenced = static_cast<int>(ExitCode::kFenced);
constexpr int kDrained = static_cast<int>(ExitCode::kDrained);
constexpr int kConfig = static_cast<int>(ExitCode::kConfig);
constexpr int kInternal = static_cast<int>(ExitCode::kInternal);
constexpr int kBadData = static_cast<int>(ExitCode::kBadData);
// Numbers reserved in the journal at a time: proposals need no fsync of their own.
constexpr uint64_t kGenerationBlock = 16;
// A name that died so often, each time within this time of the last, is held off with growing
// delay.
constexpr absl::Duration kFlapWindow = absl::Minutes(1);
constexpr int kFlapDeaths = 5;
constexpr int kFlapDoublings = 4;  // 1 s … 16 s

plan::Speed Quantise(double micro_batches_per_second) {
  return static_cast<plan::Speed>(
      std::clamp(std::lround(micro_batches_per_second * 1000), 0L, 4'000'000'000L));
}

}  // namespace

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

CoordinatorCore::CoordinatorCore(Options options, RestoredState restored, absl::Time now,
                                 SecretSource secrets)
    : options_(std::move(options)),
      secrets_(std::move(secrets)),
      restored_(std::move(restored)),
      term_(restored_.term.Next()),
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
    updates_ = form.updates;
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
  for (const CheckpointRecord& checkpoint : restored_.checkpoints) {
    if (!OnAncestry(checkpoint.version)) continue;
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
  const bool known = restored_.run.has_value();
  const bool same = known && restored_.run->config_hash == options_.config_hash &&
                    restored_.run->model_hash == options_.model_hash;
  if (!known || (!same && options_.accept_config_change)) {
    if (known) Note("config_changed", "", "accepted by --accept-config-change");
    PersistRecord(RunRecord{options_.run_id, options_.config_hash, options_.model_hash,
                            known ? restored_.run->data_hash : 0});
  } else if (!same) {
    EndRun(kConfig, kConfig,
           "the configuration changes the meaning of a step of this run (model, data, seed, batch, "
           "optimizer, schedule or precision differ): use the run's config.resolved.yaml, or say "
           "--accept-config-change");
    return;
  }
  PersistRecord(TermRecord{term_});
  if (restored_.done && restored_.done->step.value() >= options_.total_steps) {
    // Members that were not told before the last life of this process ended still wait for it.
    linger_until_ = now_ + options_.detection;
    Note("ended", "", "training was already complete");
    EndRun(0, 0, "training was already complete");
  }
}

// ---- streams and sessions ----------------------------------------------------------------------

void CoordinatorCore::Handle(const FromWorker& input) {
  if (const auto* message = std::get_if<Register>(&input.message)) {
    OnRegister(input.registration, *message);
    return;
  }
  const auto it = sessions_.find(input.registration);
  if (it == sessions_.end()) return;  // an older connection of somebody, or never admitted
  Session& session = it->second;
  session.last_seen = Effective();
  std::visit(
      [&](const auto& message) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(message)>, Register>)
          On(session, message);
      },
      input.message);
}

void CoordinatorCore::Handle(const StreamClosed& input) {
  const auto it = sessions_.find(input.registration);
  if (it == sessions_.end()) return;
  const Incarnation incarnation = it->second.member.incarnation;
  DropSession(input.registration);
  const auto track = tracks_.find(incarnation);
  if (track == tracks_.end() || track->second.missing_since != absl::InfiniteFuture()) return;
  track->second.missing_since = Effective();
  if (track->second.lost_reason.empty()) track->second.lost_reason = "its control stream ended";
  troubled_.insert(incarnation);
}

void CoordinatorCore::Handle(const ProcessDied& input) {
  if (!view_) return;
  for (const Member& member : view_->members) {
    if (member.host == input.host && member.pid == input.pid) {
      MarkGone(member.incarnation, input.reason);
      return;
    }
  }
}

void CoordinatorCore::Handle(const Wake&) {}

void CoordinatorCore::DropSession(Registration registration) {
  const auto it = sessions_.find(registration);
  if (it == sessions_.end()) return;
  const auto newest = by_incarnation_.find(it->second.member.incarnation);
  if (newest != by_incarnation_.end() && newest->second == registration)
    by_incarnation_.erase(newest);
  sessions_.erase(it);
}

std::optional<Refused> CoordinatorCore::RefusalFor(const Register& m) const {
  if (m.protocol_version != kProtocolVersion) {
    return Refused{kFenced, absl::StrCat("the worker speaks protocol version ", m.protocol_version,
                                         ", the coordinator ", kProtocolVersion,
                                         ": use binaries of one release")};
  }
  if (m.run_id != options_.run_id) {
    return Refused{kConfig, absl::StrCat("the worker belongs to run '", m.run_id,
                                         "', this is run '", options_.run_id, "'")};
  }
  if (fenced_.contains(m.member.incarnation)) {
    return Refused{kFenced, "this incarnation was dropped from the run; start the worker anew"};
  }
  if (m.config_hash != options_.config_hash || m.model_hash != options_.model_hash) {
    return Refused{
        kConfig,
        "the worker's configuration changes the meaning of a step (model, data, seed, batch, "
        "optimizer, schedule or precision differ): use the run's config.resolved.yaml, or "
        "restart the run with --accept-config-change"};
  }
  if (!numerics_version_.empty() && m.numerics_version != numerics_version_) {
    return Refused{kFenced, absl::StrCat("the worker's numerics version '", m.numerics_version,
                                         "' differs from the run's '", numerics_version_,
                                         "': use binaries of one release")};
  }
  const uint64_t known = restored_.run ? restored_.run->data_hash : 0;
  if (known != 0 && m.data_hash != known && !options_.accept_config_change) {
    return Refused{kConfig, "the worker's token files or tokenizer differ from the run's"};
  }
  // The first view that this coordinator makes settles whose history goes on.
  if (m.view && formed_here_ && !IsMember(m.member.incarnation)) {
    return Refused{kFenced, "the run goes on without the view of this incarnation; start it anew"};
  }
  // A member of a view that this journal has superseded; of a newer one it may be a witness.
  if (m.view && view_ && !IsMember(m.member.incarnation) &&
      m.view->generation <= view_->generation) {
    return Refused{kFenced, "this incarnation was dropped from the run; start the worker anew"};
  }
  return std::nullopt;
}

void CoordinatorCore::OnRegister(Registration registration, const Register& m) {
  if (m.highest_term > term_) {  // the journal is older than what workers have seen
    term_ = m.highest_term.Next();
    PersistRecord(TermRecord{term_});
  }
  if (ending_) {
    untold_.erase(m.member.incarnation);
    Emit(SendToWorker{registration, Release{member_code_, end_reason_}});
    return;
  }
  if (const std::optional<Refused> refusal = RefusalFor(m)) {
    Note("refused", m.member.name, refusal->reason);
    Emit(SendToWorker{registration, *refusal});
    return;
  }
  if (restored_.run->data_hash != m.data_hash) {
    RunRecord run = *restored_.run;
    run.data_hash = m.data_hash;
    PersistRecord(run);
  }
  numerics_version_ = m.numerics_version;
  const Incarnation incarnation = m.member.incarnation;
  if (const auto older = by_incarnation_.find(incarnation); older != by_incarnation_.end()) {
    const Registration old = older->second;
    DropSession(old);
    Emit(CloseStream{old});
  }
  EndOlderNamesake(m.member);
  Session session{.registration = registration,
                  .member = m.member,
                  .last_seen = Effective(),
                  .progress_at = Effective(),
                  .moved_at = Effective(),
                  .had_view = m.view != nullptr};
  const bool member = IsMember(incarnation);
  if (!member && !m.view) {
    HoldOffFlapping(session);
    joiner_since_ = std::min(joiner_since_, now_);
    Note("registered", m.member.name, absl::StrCat("pid ", m.member.pid, " on ", m.member.host));
  }
  Session& kept = sessions_[registration] = session;
  by_incarnation_[incarnation] = registration;
  deadlines_.insert({Effective() + options_.detection, registration});
  // The journal is older than what this worker has seen: its view decides (protocol.md §7).
  const bool newer = m.view && (!view_ || m.view->generation > view_->generation);
  const bool go_on = member && m.active && m.view && m.view->generation == view_->generation &&
                     (phase_ == Phase::kReconnecting || phase_ == Phase::kRunning);
  Emit(SendToWorker{registration, Registered{term_, registration, go_on}});
  if (newer) {
    OnNewerView(m);
  } else if (member) {
    OnReconnected(kept, m);
  }
}

void CoordinatorCore::OnNewerView(const Register& m) {
  if (!reported_view_ || reported_view_->generation < m.view->generation) reported_view_ = m.view;
  reported_position_ = std::max(reported_position_, m.state.position);
  for (const std::optional<VoteResult>& result : {m.state.last_result, m.state.pending_result}) {
    const auto known = [&](const VoteResult& r) { return r.at == result->at; };
    if (result && std::none_of(reported_results_.begin(), reported_results_.end(), known))
      reported_results_.push_back(*result);
  }
  next_generation_ = std::max(next_generation_, m.view->generation.Next());
  if (phase_ != Phase::kGathering) {
    SetPhase(Phase::kGathering, "the journal is older than the workers' view");
  }
}

// A name has one life at a time: the newer one is what the launcher means.
void CoordinatorCore::EndOlderNamesake(const Member& member) {
  std::vector<Registration> older;
  for (const auto& [registration, session] : sessions_) {
    if (session.member.name == member.name && session.member.incarnation != member.incarnation) {
      older.push_back(registration);
    }
  }
  for (Registration registration : older) {
    Emit(SendToWorker{registration,
                      Release{kFenced, "a newer incarnation of this worker registered"}});
    fenced_.insert(sessions_.at(registration).member.incarnation);
    DropSession(registration);
  }
  if (!view_) return;
  for (const Member& known : view_->members) {
    if (known.name == member.name && known.incarnation != member.incarnation) {
      MarkGone(known.incarnation, "a newer incarnation of it registered");
    }
  }
}

void CoordinatorCore::HoldOffFlapping(Session& session) {
  const auto it = flaps_.find(session.member.name);
  if (it == flaps_.end() || now_ - it->second.last > kFlapWindow ||
      it->second.deaths < kFlapDeaths) {
    return;
  }
  const int doublings = std::min(it->second.deaths - kFlapDeaths, kFlapDoublings);
  session.held_until = now_ + absl::Seconds(1) * (1 << doublings);
  Note("held_off", session.member.name,
       absl::StrCat("died ", it->second.deaths, " times within a minute; joins in ",
                    absl::FormatDuration(session.held_until - now_)));
}

void CoordinatorCore::OnReconnected(const Session& session, const Register& m) {
  const Incarnation incarnation = session.member.incarnation;
  MemberTrack& track = tracks_.at(incarnation);
  if (track.gone) return;
  track.missing_since = absl::InfiniteFuture();
  track.silent = false;
  track.lost_reason.clear();
  if (!track.draining) troubled_.erase(incarnation);
  AcceptLines(m.unsettled);
  if (m.state.last_result) Witness(*m.state.last_result);
  if (m.state.pending_result) Witness(*m.state.pending_result);
  if (m.state.complete) Reported(track, m.state.position);
  track.active = m.active && m.view && m.view->generation == view_->generation;
  switch (phase_) {
    case Phase::kSurveying:
      if (track.answer) return;
      awaited_.insert(incarnation);  // its answer counts, also when the others' are all there
      Send(incarnation, Revoke{term_, view_->generation, change_reason()});
      return;
    case Phase::kForming:
      track.active = false;
      if (!m.view || m.view->generation < view_->generation) {
        form_->term = term_;  // may have grown since
        Send(incarnation, *form_);
      }
      return;
    case Phase::kGathering:
      // It may hold what the others lack, and it makes one more.
      if (!reported_view_) StartSurvey(absl::StrCat(session.member.name, " came back"));
      return;
    case Phase::kRunning:
      // It may have missed Activate; a member that is not active at all ends the generation.
      if (!track.active) {
        StartSurvey(absl::StrCat(session.member.name, " reconnected and is not active"));
      } else if (!checkpoint_replies_.empty() && view_->RankOf(incarnation) == Rank(0)) {
        Send(incarnation, RequestCheckpoint{});
      }
      return;
    default:
      return;
  }
}

// ---- silence and loss --------------------------------------------------------------------------

void CoordinatorCore::On(Session& session, const Heartbeat& m) {
  session.speed = m.micro_batches_per_second;
  if (m.progress != session.progress) session.moved_at = Effective();
  if (m.progress != session.progress || m.waiting) {
    session.progress = m.progress;
    session.progress_at = Effective();
  } else {
    const double usual = session.speed > 0 ? 10.0 / session.speed : 0.0;
    const absl::Duration limit = std::max(options_.stuck_after, absl::Seconds(usual));
    if (IsMember(session.member.incarnation) && Effective() - session.progress_at > limit) {
      MarkGone(session.member.incarnation,
               absl::StrCat("stuck: no progress for ", absl::FormatDuration(limit)));
      return;
    }
  }
  if (session.settled_sent < settled_) {
    session.settled_sent = settled_;
    Send(session.member.incarnation, Settled{settled_});
  }
}

void CoordinatorCore::CheckSilence() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= Effective()) {
    const Registration registration = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    const auto it = sessions_.find(registration);
    if (it == sessions_.end()) continue;
    const absl::Time due = it->second.last_seen + options_.detection;
    if (due > Effective()) {
      deadlines_.insert({due, registration});
      continue;
    }
    const Incarnation incarnation = it->second.member.incarnation;
    DropSession(registration);
    Emit(CloseStream{registration});
    const auto track = tracks_.find(incarnation);
    if (track == tracks_.end()) continue;
    track->second.missing_since = std::min(track->second.missing_since, Effective());
    track->second.silent = true;
    track->second.lost_reason =
        absl::StrCat("silent for ", absl::FormatDuration(options_.detection));
    troubled_.insert(incarnation);
  }
}

void CoordinatorCore::MarkGone(Incarnation incarnation, const std::string& reason) {
  const auto it = tracks_.find(incarnation);
  if (it == tracks_.end() || it->second.gone) return;
  it->second.gone = true;
  it->second.lost_reason = reason;
  it->second.answer.reset();
  troubled_.insert(incarnation);
  awaited_.erase(incarnation);
}

void CoordinatorCore::MarkDraining(Incarnation incarnation, const std::string& reason) {
  MemberTrack& track = tracks_.at(incarnation);
  if (track.draining) return;
  track.draining = true;
  troubled_.insert(incarnation);
  PersistRecord(DrainRecord{incarnation});
  Note("draining", NameOf(incarnation), reason);
}

// When a missing member's grace ends: shortest when its death is plain, longest after a restart of
// this process, when everybody's stream is new.
absl::Time CoordinatorCore::AwaitedUntil(const MemberTrack& track) const {
  if (track.missing_since == absl::InfiniteFuture()) return absl::InfiniteFuture();
  if (track.silent || track.accused) return track.missing_since;
  return track.missing_since + options_.reconnect_grace();
}

bool CoordinatorCore::StillAwaited(const MemberTrack& track) const {
  return !track.gone && !track.answer && AwaitedUntil(track) > Effective();
}

// ---- reactions to members ----------------------------------------------------------------------

void CoordinatorCore::On(Session& session, const CommFailed& m) {
  if (!view_ || m.generation != view_->generation) return;
  for (Incarnation suspect : m.suspects) {
    const auto track = tracks_.find(suspect);
    if (track != tracks_.end() && suspect != session.member.incarnation)
      track->second.accused = true;
  }
  if (phase_ == Phase::kRunning || phase_ == Phase::kForming) {
    StartSurvey(absl::StrCat(session.member.name, ": ", m.reason));
  }
}

void CoordinatorCore::On(Session& session, const ConnectFailed& m) {
  // Reports that come after the first one of this generation count too, but as the same attempt.
  if (!view_ || m.generation != view_->generation) return;
  if (phase_ != Phase::kForming && phase_ != Phase::kSurveying) return;
  const Incarnation reporter = session.member.incarnation;
  if (!IsMember(reporter)) return;
  for (Incarnation peer : m.unreachable) {
    if (!IsMember(peer) || peer == reporter) continue;
    unreachable_.insert(std::minmax(peer, reporter));
    tracks_.at(peer).accused = true;
  }
  if (phase_ != Phase::kForming) return;
  ++connect_attempts_;
  // It blames nobody and fails again and again: the fault is its own.
  if (m.unreachable.empty() && connect_attempts_ >= 3) {
    MarkGone(reporter, absl::StrCat("cannot connect: ", m.reason));
  }
  StartSurvey(absl::StrCat(session.member.name, " cannot connect: ", m.reason));
}

// Two live members that cannot reach each other: after the second failed attempt the one that fewer
// can reach goes, ties: the newest. Pairs with a dead member say nothing about the other.
void CoordinatorCore::DropUnreachable() {
  if (connect_attempts_ < 2) return;
  std::map<Incarnation, int> failed;
  const auto answered = [&](Incarnation i) {
    const auto track = tracks_.find(i);
    return track != tracks_.end() && !track->second.gone && track->second.answer &&
           track->second.missing_since == absl::InfiniteFuture();
  };
  for (const auto& [a, b] : unreachable_) {
    if (!answered(a) || !answered(b)) continue;
    ++failed[a];
    ++failed[b];
  }
  int holders = 0;
  const auto holds = [&](Incarnation i) {
    const std::optional<MemberState>& answer = tracks_.at(i).answer;
    return answer && answer->complete && answer->position.timeline == timeline_;
  };
  for (const auto& [incarnation, track] : tracks_) {
    holders += answered(incarnation) && holds(incarnation) ? 1 : 0;
  }
  Incarnation worst;
  int most = 0;
  for (const Member& member : view_->members) {
    const auto it = failed.find(member.incarnation);
    if (it == failed.end() || it->second < most) continue;
    if (holders == 1 && holds(member.incarnation)) continue;  // the only copy stays
    most = it->second;
    worst = member.incarnation;
  }
  if (most == 0) return;
  MemberTrack& track = tracks_.at(worst);
  track.shunned = true;
  track.lost_reason = absl::StrCat("cannot be reached by ", most, " live member(s)");
  std::erase_if(unreachable_,
                [&](const auto& pair) { return pair.first == worst || pair.second == worst; });
}

void CoordinatorCore::On(Session& session, const FormProgress&) {
  session.progress_at = session.moved_at = Effective();
}

void CoordinatorCore::On(Session& session, const RestoreFailed& m) {
  Note("checkpoint_bad", session.member.name, absl::StrCat(m.checkpoint, ": ", m.reason));
  PersistRecord(CheckpointRecord{m.checkpoint, {}, false});
  if (latest_checkpoint_ && view_ && restored_.form->restore &&
      restored_.form->restore->checkpoint == m.checkpoint &&
      latest_checkpoint_ == restored_.form->restore->version) {
    latest_checkpoint_.reset();
  }
  if (view_ && m.generation == view_->generation && phase_ == Phase::kForming) {
    StartSurvey(absl::StrCat("checkpoint ", m.checkpoint, " cannot be read"));
  }
}

void CoordinatorCore::On(Session& session, const DrainNotice& m) {
  if (IsMember(session.member.incarnation)) {
    MarkDraining(session.member.incarnation,
                 absl::StrCat(m.reason, ", leaves within ", m.deadline_ms, " ms"));
  } else if (session.had_view) {
    session.drains = true;  // a member of a view that is not adopted yet: it may hold the state
  } else {
    Send(session.member.incarnation, Release{kDrained, "drained before it was a member"});
  }
}

void CoordinatorCore::On(Session& session, const Leaving& m) {
  Note("leaving", session.member.name, m.reason);
  MarkGone(session.member.incarnation, m.reason);
  if (m.exit_code == kInternal) EndRun(kInternal, kInternal, m.reason);
}

void CoordinatorCore::On(Session& session, const SurveyAnswer& m) {
  // Only members of the last journalled view are survivors; what others say does not count.
  const auto it = tracks_.find(session.member.incarnation);
  if (it == tracks_.end() || it->second.gone || m.generation != view_->generation) return;
  AcceptLines(m.unsettled);
  if (m.state.last_result) Witness(*m.state.last_result);
  if (m.state.pending_result) Witness(*m.state.pending_result);
  if (phase_ != Phase::kSurveying) return;
  it->second.answer = m.state;
  awaited_.erase(session.member.incarnation);
}

void CoordinatorCore::On(Session& session, const Ready& m) {
  const auto it = tracks_.find(session.member.incarnation);
  if (it == tracks_.end() || it->second.gone || m.generation != view_->generation) return;
  AcceptLines(m.unsettled);
  session.progress_at = session.moved_at = Effective();
  if (phase_ == Phase::kForming) {
    it->second.active = true;
    awaited_.erase(session.member.incarnation);
  } else if (phase_ == Phase::kRunning) {
    Send(session.member.incarnation, Activate{term_, view_->generation});  // it was lost on the way
  }
}

void CoordinatorCore::On(Session&, const HandedOver&) {}

// ---- the phases --------------------------------------------------------------------------------

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
  for (Incarnation incarnation : troubled_) {
    const MemberTrack& track = tracks_.at(incarnation);
    if (stopping_view_ && track.draining && track.lost_reason.empty())
      continue;  // it leaves anyway
    const std::string why =
        track.draining && track.lost_reason.empty() ? "drains" : track.lost_reason;
    return StartSurvey(absl::StrCat(NameOf(incarnation), " ", why));
  }
  if (stop_requested_ && form_purpose() != Purpose::kStop) return StartSurvey(stop_reason_);
  if (position_.step.value() >= options_.total_steps || stop_requested_) return;
  const size_t room = static_cast<size_t>(
      std::max<int>(0, options_.max_workers - static_cast<int>(tracks_.size())));
  const size_t newcomers = std::min(Newcomers().size(), room);
  if (newcomers == 0) return;
  const int target = restored_.target_workers.value_or(options_.expected_workers);
  if (now_ - joiner_since_ >= options_.join_settle() ||
      static_cast<int>(tracks_.size() + newcomers) >= target) {
    StartSurvey(newcomers == 1 ? "a worker joins" : absl::StrCat(newcomers, " workers join"));
  }
}

void CoordinatorCore::StartSurvey(const std::string& reason) {
  if (phase_ == Phase::kRunning || phase_ == Phase::kReconnecting || phase_ == Phase::kGathering) {
    change_since_ = now_;
    phase_ms_.clear();
    for (Incarnation incarnation : troubled_) {
      const absl::Time since = tracks_.at(incarnation).missing_since + paused_;
      if (since < change_since_) change_since_ = since;
    }
    phase_ms_["detect"] = absl::ToDoubleMilliseconds(now_ - change_since_);
  }
  SetPhase(Phase::kSurveying, reason);
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
    if (awaited_.contains(incarnation) && !StillAwaited(tracks_.at(incarnation))) {
      awaited_.erase(incarnation);
    }
  }
  if (!awaited_.empty()) return;
  DropUnreachable();
  FormNext();
}

void CoordinatorCore::CheckForming() {
  for (Incarnation incarnation : troubled_) {
    MemberTrack& track = tracks_.at(incarnation);
    if (track.gone || AwaitedUntil(track) <= Effective()) {
      StartSurvey(absl::StrCat(NameOf(incarnation), " ", track.lost_reason));
      return;
    }
  }
  if (awaited_.empty()) return ActivateView();
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

std::vector<Incarnation> CoordinatorCore::Newcomers() const {
  // Holding off protects a run that goes on well without the flapping ones: not one that waits for
  // workers, and not one that has lost half of them.
  const auto lost = std::count_if(troubled_.begin(), troubled_.end(), [&](Incarnation incarnation) {
    return tracks_.at(incarnation).gone || AwaitedUntil(tracks_.at(incarnation)) <= now_;
  });
  const int target = restored_.target_workers.value_or(options_.expected_workers);
  const bool may_hold_off =
      phase_ != Phase::kGathering &&
      2 * (static_cast<int>(tracks_.size()) - static_cast<int>(lost)) > target;
  std::vector<Incarnation> found;
  for (const auto& [registration, session] : sessions_) {
    const Incarnation incarnation = session.member.incarnation;
    const bool held = session.held_until > now_ && may_hold_off;
    if (IsMember(incarnation) || fenced_.contains(incarnation) || held) continue;
    if (reported_view_ && reported_view_->RankOf(incarnation)) continue;
    found.push_back(incarnation);
  }
  return found;
}

// Whether a run without surviving members may start with these newcomers.
bool CoordinatorCore::EnoughToStart(size_t newcomers) const {
  // A ledger without a journal: the run has gone on before, and its members may still be alive.
  if (!restored_.journal_found && restored_.ledger_last && !view_) {
    if (now_ - started_at_ < options_.reconnect_window()) return false;
    if (!NewestCheckpoint() && !adopt_) return false;  // never from step 0 by itself
  }
  const int count = static_cast<int>(newcomers);
  const int wanted = restored_.target_workers.value_or(options_.expected_workers);
  if (count >= std::clamp(wanted, options_.min_workers, options_.max_workers)) return true;
  return count >= options_.min_workers && now_ - joiner_since_ >= options_.gather_after;
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
      if (track.answer && (track.gone || AwaitedUntil(track) <= Effective())) track.answer.reset();
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

// The journal is gone or stale: a strict majority of the newest reported view is proof enough.
void CoordinatorCore::AdoptReportedView() {
  FormRecord record;
  record.view = *reported_view_;
  record.position = reported_position_;
  record.reason = "adopted from its members, because the journal lacked it";
  view_ = reported_view_;
  reported_view_.reset();
  position_ = reported_position_;
  timeline_ = position_.timeline;
  highest_timeline_ = std::max(highest_timeline_, timeline_);
  books_adopted_ = settled_.timeline != timeline_;
  tracks_.clear();
  troubled_.clear();
  awaited_.clear();
  lines_.clear();
  witnessed_.clear();
  report_counts_.clear();
  report_counts_[Step(0)] = static_cast<int>(view_->members.size());
  for (const Member& member : view_->members) {
    MemberTrack track;
    if (!by_incarnation_.contains(member.incarnation)) {
      track.missing_since = Effective();
      troubled_.insert(member.incarnation);
    }
    tracks_[member.incarnation] = track;
  }
  // What they said when they registered counts, also when they are gone by now.
  std::sort(reported_results_.begin(), reported_results_.end(),
            [](const VoteResult& a, const VoteResult& b) { return a.at < b.at; });
  for (const VoteResult& result : reported_results_) Witness(result);
  reported_results_.clear();
  record.position = position_;
  if (!witnessed_.empty() && witnessed_.back().After() == position_)
    record.result = witnessed_.back();
  // Members of older views were dropped by the one that is adopted.
  for (const auto& [registration, session] : sessions_) {
    if (!session.had_view || IsMember(session.member.incarnation)) continue;
    fenced_.insert(session.member.incarnation);
    Emit(SendToWorker{registration, Release{kFenced, "dropped from the run by a newer view"}});
  }
  Note("adopted", "", record.reason);
  PersistRecord(std::move(record));
  for (const Member& member : view_->members) {
    const Session* session = SessionOf(member.incarnation);
    if (session != nullptr && session->drains)
      MarkDraining(member.incarnation, "it asked to leave");
  }
  StartSurvey("the view was adopted from its members");
}

// ---- the next view -----------------------------------------------------------------------------

bool CoordinatorCore::WaitForSilentHolders() const {
  return std::any_of(tracks_.begin(), tracks_.end(), [&](const auto& entry) {
    const MemberTrack& track = entry.second;
    return !track.gone && !track.answer && track.missing_since + options_.patience > Effective() &&
           track.missing_since != absl::InfiniteFuture();
  });
}

void CoordinatorCore::FormNext() {
  DecideInput input;
  input.timeline = timeline_;
  input.witnessed = witnessed_;
  if (view_) {
    for (const auto& [incarnation, track] : tracks_) {
      if (track.answer && !track.gone && !track.shunned)
        input.survivors[incarnation] = *track.answer;
    }
  }
  Decision decision = Decide(input);
  if (decision.kind == Decision::Kind::kRestore && view_) {
    // Better an unreachable copy than none: who was left out for that is asked in again.
    bool again = false;
    for (auto& [incarnation, track] : tracks_) {
      if (!track.shunned || !track.answer || track.gone) continue;
      track.shunned = false;
      input.survivors[incarnation] = *track.answer;
      again = true;
    }
    if (again) decision = Decide(input);
  }
  if (force_restore_) decision = Decision{};
  const bool restore = decision.kind == Decision::Kind::kRestore;
  if (restore && view_ && !force_restore_ && WaitForSilentHolders()) {
    phase_reason_ = "waits for a silent member that holds the only copy of the state";
    return;
  }
  if (stop_requested_ && input.survivors.empty()) return EndRun(kDrained, kDrained, stop_reason_);
  // Losing all progress is for a person to decide.
  if (restore && !restored_.bad_checkpoints.empty() && !NewestCheckpoint()) {
    return EndRun(
        kBadData, kBadData,
        absl::StrCat("no member holds the state and no checkpoint of this run can be read (",
                     absl::StrJoin(restored_.bad_checkpoints, ", "),
                     "); to begin again at step 0, move the run folder away"));
  }
  const auto holds = [&](Incarnation i) {
    return std::find(decision.holders.begin(), decision.holders.end(), i) != decision.holders.end();
  };
  // Survivors keep their order, leavers go, newcomers follow.
  View next;
  std::vector<Member> leavers;
  bool holder_stays = restore;
  for (size_t r = 0; view_ && r < view_->members.size(); ++r) {
    const Member& member = view_->members[r];
    if (!input.survivors.contains(member.incarnation)) continue;
    if (tracks_.at(member.incarnation).draining && !stop_requested_) {
      leavers.push_back(member);
      continue;
    }
    holder_stays = holder_stays || holds(member.incarnation);
    next.members.push_back(member);
  }
  const size_t survivors = next.members.size();
  if (!stop_requested_ && (position_.step.value() < options_.total_steps || survivors == 0)) {
    for (Incarnation newcomer : Newcomers()) {
      if (static_cast<int>(next.members.size()) >= options_.max_workers) break;
      next.members.push_back(SessionOf(newcomer)->member);
    }
  }
  // What is left at the end is a checkpoint and an evaluation: any number can do that.
  const bool finished = survivors > 0 && position_.step.value() >= options_.total_steps;
  const bool enough =
      static_cast<int>(next.members.size()) >= options_.min_workers || stop_requested_ || finished;
  if (!enough && !leavers.empty()) {
    // Nobody to go on with: the version is checkpointed by the leavers and all leave.
    BeginStop("fewer than elastic.min_workers would remain");
    return FormNext();
  }
  // The only copies are with leavers: one of them stays until the others have theirs.
  const auto donor = std::find_if(leavers.begin(), leavers.end(),
                                  [&](const Member& m) { return holds(m.incarnation); });
  const bool handed = !holder_stays && donor != leavers.end();
  const bool may_start = survivors > 0 || handed || EnoughToStart(next.members.size());
  if (handed) next.members.insert(next.members.begin(), *donor);
  if (!enough || next.members.empty() || !may_start) {
    SetPhase(Phase::kGathering, absl::StrCat("waits for workers: ", next.members.size(),
                                             " of at least ", options_.min_workers));
    return;
  }
  next.generation = TakeGeneration();
  Form form;
  FormRecord record;
  form.purpose = stop_requested_ ? Purpose::kStop : Purpose::kTrain;
  FillBeginning(decision, next, &form, &record);
  record.reason = phase_reason_ + "; " + decision.reason;
  FillWork(decision, next, &form);
  form.term = term_;
  form.secret = secrets_(next.generation);
  form.view = std::make_shared<View>(std::move(next));
  form.latest_checkpoint = latest_checkpoint_;
  form.latest_evaluation = latest_evaluation_;
  EnterView(form, std::move(record));
}

void CoordinatorCore::FillBeginning(const Decision& decision, const View& view, Form* form,
                                    FormRecord* record) {
  if (decision.kind == Decision::Kind::kRestore) {
    FillRestore(view, form, record);
  } else {
    form->position = decision.position;
    form->updates = decision.updates;
    form->result = decision.result;
    std::vector<Rank> donors, receivers;
    for (size_t r = 0; r < view.members.size(); ++r) {
      const bool holds = std::find(decision.holders.begin(), decision.holders.end(),
                                   view.members[r].incarnation) != decision.holders.end();
      (holds ? donors : receivers).push_back(Rank(static_cast<int32_t>(r)));
    }
    for (size_t i = 0; i < receivers.size(); ++i) {
      form->transfers.push_back({donors[i % donors.size()], receivers[i]});
    }
  }
  record->position = form->position;
  record->updates = form->updates;
  record->purpose = form->purpose;
  record->restore = form->restore;
  record->result = form->result;
}

void CoordinatorCore::FillRestore(const View& view, Form* form, FormRecord* record) {
  form->restore = NewestCheckpoint();
  form->from_seed = !form->restore;
  const Version base = form->restore ? form->restore->version : Version{};
  const bool first = !view_ && !form->restore && highest_timeline_ == Timeline();
  if (!first) record->forked_from = base;
  highest_timeline_ = highest_timeline_.Next();
  form->position = {highest_timeline_, base.step, Attempt(0)};
  force_restore_ = false;
  if (form->restore) {
    for (size_t r = 1; r < view.members.size(); ++r) {
      form->transfers.push_back({Rank(0), Rank(static_cast<int32_t>(r))});
    }
  }
  if (!first) {
    Note("restore", "",
         form->restore
             ? absl::StrCat("no member holds the state: continues from checkpoint ",
                            form->restore->checkpoint)
             : "no member holds the state and there is no checkpoint: starts from step 0");
  }
}

void CoordinatorCore::FillWork(const Decision& decision, const View& view, Form* form) const {
  plan::IntervalSet pending = plan::IntervalSet::Whole(options_.micro_batches);
  std::vector<plan::Speed> speeds;
  for (const Member& member : view.members) {
    const auto claim = decision.claims.find(member.incarnation);
    form->claims.push_back(claim == decision.claims.end() ? plan::IntervalSet{} : claim->second);
    pending.Remove(form->claims.back());
    const Session* session = SessionOf(member.incarnation);
    speeds.push_back(session == nullptr ? 0 : Quantise(session->speed));
  }
  form->assignment = plan::Assign(pending, speeds);
}

void CoordinatorCore::EnterView(const Form& form, FormRecord record) {
  formed_here_ = true;
  record.view = *form.view;
  record.latest_evaluation = form.latest_evaluation;
  record.claims = form.claims;
  record.assignment = form.assignment;
  const std::shared_ptr<const View> old_view = view_;
  const std::map<Incarnation, MemberTrack> old_tracks = std::move(tracks_);
  PersistRecord(std::move(record));
  if (old_view) FailAttemptsOfLost(*old_view);
  failed_attempts_.clear();

  AdoptBooks();
  if (form.position.timeline != timeline_) {  // a new history: what was not settled is run again
    // All members of a view took part in its checkpoint: what led to it is settled.
    const bool ancestor = form.restore && form.restore->version.timeline == timeline_;
    WriteSettled(ancestor ? std::max(AllReported(), form.restore->version.step) : AllReported(),
                 /*wait_for_digest=*/false);
    lines_.clear();
    witnessed_.clear();
    settled_ = {form.position.timeline, form.position.step};
  }
  const bool same_step = form.position == position_;  // else what the lost had computed is in
  timeline_ = form.position.timeline;
  position_ = form.position;
  updates_ = form.updates;
  view_ = form.view;
  form_ = form;
  tracks_.clear();
  troubled_.clear();
  awaited_.clear();
  report_counts_.clear();
  report_counts_[position_.step] = static_cast<int>(view_->members.size());
  for (const Member& member : view_->members) {
    MemberTrack track;
    track.reported = position_.step;
    if (const auto old = old_tracks.find(member.incarnation); old != old_tracks.end()) {
      track.draining = old->second.draining;
      track.missing_since = old->second.missing_since;
      if (track.draining) troubled_.insert(member.incarnation);
    } else {
      Note("joined", member.name, absl::StrCat("incarnation ", ToHex(member.incarnation)));
    }
    if (SessionOf(member.incarnation) == nullptr) {
      track.missing_since = std::min(track.missing_since, Effective());
      track.lost_reason = "its control stream ended";
      troubled_.insert(member.incarnation);
    }
    tracks_[member.incarnation] = track;
    awaited_.insert(member.incarnation);
  }
  for (const auto& [incarnation, track] : old_tracks) {
    if (IsMember(incarnation)) continue;
    fenced_.insert(incarnation);
    if (same_step) micro_batches_lost_ += planned_[incarnation];
    const auto gone =
        std::find_if(old_view->members.begin(), old_view->members.end(),
                     [id = incarnation](const Member& m) { return m.incarnation == id; });
    if (track.draining && track.answer) {
      Note("drained", gone->name, "left in order");
      Send(incarnation, Release{kDrained, "drained"});
    } else {
      Flap& flap = flaps_[gone->name];
      flap.deaths = now_ - flap.last > kFlapWindow ? 1 : flap.deaths + 1;
      flap.last = now_;
      Note("lost", gone->name, track.lost_reason);
      Send(incarnation,
           Release{kFenced, absl::StrCat("dropped from the run: ", track.lost_reason)});
    }
  }
  joiner_since_ = Newcomers().empty() ? absl::InfiniteFuture() : now_;
  phase_ms_["survey"] = absl::ToDoubleMilliseconds(now_ - phase_since_);
  SetPhase(Phase::kForming, phase_reason_);
  for (Incarnation incarnation : awaited_) Send(incarnation, form);
}

void CoordinatorCore::ActivateView() {
  phase_ms_["form"] = absl::ToDoubleMilliseconds(now_ - phase_since_);
  Note("view", "", phase_reason_, phase_ms_, micro_batches_lost_);
  micro_batches_lost_ = 0;
  planned_.clear();
  for (size_t r = 0; r < view_->members.size(); ++r) {
    planned_[view_->members[r].incarnation] =
        form_->claims[r].count() + form_->assignment[r].count();
  }
  unreachable_.clear();
  connect_attempts_ = 0;
  SetPhase(Phase::kRunning,
           form_->purpose == Purpose::kStop ? "checkpoints, then stops" : "training");
  stopping_view_ = form_->purpose == Purpose::kStop;
  form_.reset();
  for (auto& [incarnation, track] : tracks_) track.accused = false;
  Broadcast(Activate{term_, view_->generation});
  if (!checkpoint_replies_.empty()) Send(view_->members.front().incarnation, RequestCheckpoint{});
}

Generation CoordinatorCore::TakeGeneration() {
  if (next_generation_ > restored_.generations_up_to) {
    PersistRecord(GenerationsRecord{Generation(next_generation_.value() + kGenerationBlock - 1)});
  }
  const Generation taken = next_generation_;
  next_generation_ = taken.Next();
  return taken;
}

std::optional<RestoreSource> CoordinatorCore::NewestCheckpoint() const {
  std::optional<RestoreSource> newest;
  for (const CheckpointRecord& checkpoint : restored_.checkpoints) {
    if (restored_.bad_checkpoints.contains(checkpoint.folder) || !OnAncestry(checkpoint.version))
      continue;
    if (!newest || newest->version.step <= checkpoint.version.step) {
      newest = RestoreSource{checkpoint.folder, checkpoint.version};
    }
  }
  return newest;
}

// Whether `version` lies on the history that the current timeline continues.
bool CoordinatorCore::OnAncestry(const Version& version) const {
  if (!view_) return true;  // no journal: what is on the disk is all there is
  Timeline timeline = timeline_;
  Step limit(std::numeric_limits<int64_t>::max());
  for (;;) {
    if (version.timeline == timeline) return version.step <= limit;
    const auto fork = restored_.forks.find(timeline);
    // A later history whose beginning went with the journal: what is older is all there is.
    if (fork == restored_.forks.end()) return timeline.value() > 1 && version.timeline < timeline;
    limit = std::min(limit, fork->second.step);
    timeline = fork->second.timeline;
  }
}

// ---- time --------------------------------------------------------------------------------------

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
  if (joiner_since_ != absl::InfiniteFuture()) {
    at(joiner_since_ + options_.join_settle());
    at(joiner_since_ + options_.gather_after);
  }
  if (phase_ == Phase::kReconnecting) at(phase_since_ + options_.reconnect_window());
  if (phase_ == Phase::kGathering) at(started_at_ + options_.reconnect_window());
  return wake;
}

}  // namespace starling::membership
