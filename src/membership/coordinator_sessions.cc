// Streams and members: who is connected, who is silent, lost, draining or held off, and what
// members say about each other.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "membership/codes.h"
#include "membership/mutation.h"
#include "starling/membership/coordinator_core.h"

namespace starling::membership {
namespace {

// A name that died so often, each time within this time of the last, is held off with growing
// delay.
constexpr absl::Duration kFlapWindow = absl::Minutes(1);
constexpr int kFlapDeaths = 5;
constexpr int kFlapDoublings = 4;  // 1 s … 16 s

}  // namespace

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
  if (track->second.lost_reason.empty()) track->second.lost_reason = input.reason;
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
  if (outsiders_.erase(registration) > 0 && proposal_ &&
      proposal_->view->RankOf(it->second.member.incarnation)) {
    proposal_->stale = true;
  }
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
  if (Mutated(Mutation::kFencedReturns)) return std::nullopt;
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
    SendTo(registration, Release{member_code_, end_reason_});
    return;
  }
  if (const std::optional<Refused> refusal = RefusalFor(m)) {
    Note("refused", m.member.name, refusal->reason);
    SendTo(registration, *refusal);
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
  if (!member) outsiders_.insert(registration);
  by_incarnation_[incarnation] = registration;
  deadlines_.insert({Effective() + options_.detection, registration});
  // The journal is older than what this worker has seen: its view decides (protocol.md §7).
  const bool newer = m.view && (!view_ || m.view->generation > view_->generation);
  const bool go_on = member && m.active && m.view && m.view->generation == view_->generation &&
                     (phase_ == Phase::kReconnecting || phase_ == Phase::kRunning);
  SendTo(registration, Registered{term_, registration, go_on});
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
  if (Mutated(Mutation::kNameCountedTwice)) return;
  std::vector<Registration> older;
  for (const auto& [registration, session] : sessions_) {
    if (session.member.name == member.name && session.member.incarnation != member.incarnation) {
      older.push_back(registration);
    }
  }
  for (Registration registration : older) {
    SendTo(registration, Release{kFenced, "a newer incarnation of this worker registered"});
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

void CoordinatorCore::CountDeath(const std::string& name) {
  Flap& flap = flaps_[name];
  flap.deaths = now_ - flap.last > kFlapWindow ? 1 : flap.deaths + 1;
  flap.last = now_;
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
      Send(incarnation, Revoke{term_, view_->generation, phase_reason_});
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
      if (proposal_) proposal_->stale = true;  // what it was told may have gone with its stream
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
  if (proposal_) proposal_->stale = true;
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

bool CoordinatorCore::Lost(const MemberTrack& track) const {
  return track.gone || AwaitedUntil(track) <= Effective();
}

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
    absl::Time& leave_by = tracks_.at(session.member.incarnation).leave_by;
    leave_by = std::min(leave_by, Effective() + absl::Milliseconds(m.deadline_ms));
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

std::vector<Incarnation> CoordinatorCore::Newcomers() const {
  // Holding off protects a run that goes on well without the flapping ones: not one that waits for
  // workers, and not one that has lost half of them.
  const auto lost = std::count_if(troubled_.begin(), troubled_.end(),
                                  [&](Incarnation i) { return Lost(tracks_.at(i)); });
  const bool may_hold_off =
      phase_ != Phase::kGathering &&
      2 * (static_cast<int>(tracks_.size()) - static_cast<int>(lost)) > TargetWorkers();
  std::vector<Incarnation> found;
  for (Registration registration : outsiders_) {
    const Session& session = sessions_.at(registration);
    const Incarnation incarnation = session.member.incarnation;
    const bool held = (session.held_until > now_ && may_hold_off) ||
                      (session.put_off_until > now_ && phase_ != Phase::kGathering);
    const bool fenced = fenced_.contains(incarnation) && !Mutated(Mutation::kFencedReturns);
    if (IsMember(incarnation) || fenced || held) continue;
    if (reported_view_ && reported_view_->RankOf(incarnation)) continue;
    found.push_back(incarnation);
  }
  return found;
}

}  // namespace starling::membership
