// The coordinator's books: which steps are settled, which checkpoints are complete, what people
// asked for, and when the run is over.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "membership/codes.h"
#include "membership/mutation.h"
#include "starling/membership/coordinator_core.h"

namespace starling::membership {

// ---- steps -------------------------------------------------------------------------------------

void CoordinatorCore::On(Session& session, const Report& m) {
  const auto it = tracks_.find(session.member.incarnation);
  if (it == tracks_.end() || it->second.gone) return;
  session.progress_at = Effective();
  if (m.line) AcceptLines({*m.line});
  Witness(m.result);
  if (m.result.at.timeline == timeline_) Reported(it->second, m.result.After());
}

void CoordinatorCore::AcceptLines(const std::vector<LedgerLine>& lines) {
  for (const LedgerLine& line : lines) {
    if (line.version.timeline != timeline_ || (!books_adopted_ && line.version <= settled_))
      continue;
    const auto [it, added] = lines_.emplace(line.version, line);
    // A step that was redone belongs to the later view.
    if (!added && it->second.generation < line.generation) it->second = line;
  }
  for (const VoteResult& seen : witnessed_) NoteDigest(seen);
}

// The digest of a version comes with the next vote.
void CoordinatorCore::NoteDigest(const VoteResult& result) {
  if (result.digests.empty()) return;
  const auto line = lines_.find(result.at.version());
  if (line != lines_.end() && !line->second.digest) line->second.digest = result.digests.front();
}

// A vote result seen for the first time is shown; the newest two are kept for decisions.
void CoordinatorCore::Witness(const VoteResult& result) {
  if (result.at.timeline != timeline_) return;
  NoteDigest(result);
  CompareDigests(result);
  const bool known = std::any_of(witnessed_.begin(), witnessed_.end(),
                                 [&](const VoteResult& seen) { return seen.at == result.at; });
  if (known || result.After() < position_) return;
  witnessed_.push_back(result);
  if (witnessed_.size() > 2) witnessed_.erase(witnessed_.begin());
  position_ = result.After();
  if (view_ && result.generation == view_->generation && !result.speeds.empty()) {
    const auto plan = plan::Assign(plan::IntervalSet::Whole(options_.micro_batches), result.speeds);
    for (size_t r = 0; r < std::min(plan.size(), view_->members.size()); ++r) {
      planned_[view_->members[r].incarnation] = plan[r].count();
    }
  }
  if (result.outcome != Outcome::kRepeat) {
    Emit(WriteMetrics{result, view_ ? static_cast<int>(view_->members.size()) : 0});
  }
}

void CoordinatorCore::CompareDigests(const VoteResult& result) {
  std::string diverged;
  for (size_t r = 1; r < result.digests.size(); ++r) {
    if (result.digests[r] != result.digests[0])
      absl::StrAppend(&diverged, diverged.empty() ? "" : ",", r);
  }
  if (diverged.empty() || force_restore_) return;
  force_restore_ = true;
  Note("diverged", "",
       absl::StrCat("at version ", ToString(result.at.version()), " of generation ",
                    result.generation.value(), " ranks ", diverged,
                    " hold other bits than rank 0; restoring"));
}

void CoordinatorCore::Reported(MemberTrack& track, const Position& position) {
  if (position.timeline != timeline_ || position.step <= track.reported) return;
  const auto old = report_counts_.find(track.reported);
  if (old != report_counts_.end() && --old->second == 0) report_counts_.erase(old);
  track.reported = position.step;
  ++report_counts_[position.step];
}

// Without a ledger to continue it begins with the oldest line that is known.
void CoordinatorCore::AdoptBooks() {
  if (!books_adopted_) return;
  const Step first = lines_.empty() ? position_.step.Next() : lines_.begin()->first.step;
  settled_ = {timeline_, Step(first.value() - 1)};
  books_adopted_ = false;
}

// Writes the lines of all settled steps, in order: those that every member of the view reported, or
// that the decision of an active view includes.
void CoordinatorCore::Settle() {
  if (!view_ || phase_ == Phase::kReconnecting || books_adopted_) return;
  if (settled_.timeline != timeline_) {
    const auto fork = restored_.forks.find(timeline_);
    settled_ = {timeline_, fork == restored_.forks.end() ? Step(0) : fork->second.step};
  }
  WriteSettled(AllReported(), /*wait_for_digest=*/true);
}

// The newest step that every member of the view reported, or that the view began with.
Step CoordinatorCore::AllReported() const {
  if (Mutated(Mutation::kSettledEarly)) return position_.step;
  return report_counts_.empty() ? position_.step : report_counts_.begin()->first;
}

void CoordinatorCore::WriteSettled(Step up_to, bool wait_for_digest) {
  while (!lines_.empty() && lines_.begin()->first.step <= up_to) {
    const LedgerLine& line = lines_.begin()->second;
    const int64_t step = line.version.step.value();
    // A line waits for its digest, which comes with the next vote; the last step has no next vote.
    // It waits only while all members know it: those who join have a version, not its line.
    const bool digest_due = options_.digest_every > 0 && step % options_.digest_every == 0 &&
                            !line.digest && step == position_.step.value() &&
                            line.generation == view_->generation && step < options_.total_steps &&
                            !stopping_view_;
    if (digest_due && wait_for_digest && !ending_) return;
    if (line.version > settled_) {
      if (line.version.step != settled_.step.Next()) return;  // a line is still on its way
      Emit(WriteLedger{line});
      settled_ = line.version;
    }
    lines_.erase(lines_.begin());
  }
}

// ---- checkpoints and evaluation ----------------------------------------------------------------

void CoordinatorCore::On(Session& session, const PartWritten& m) {
  session.progress_at = Effective();
  // Parts are said again after a reconnect.
  if (!view_ || (latest_checkpoint_ && m.version <= *latest_checkpoint_)) return;
  if (!m.ok) {
    const auto it = attempts_.find(m.version);
    // All parts of an earlier view are durable: what a later one could not add does not matter.
    if (it != attempts_.end() && it->second.writing) return;
    const bool stale = it == attempts_.end() ? m.generation != view_->generation
                                             : m.generation < it->second.generation;
    if (!stale && !failed_attempts_.contains(m.version)) {
      FailAttempt(m.version, session.member.name, m.info);
    }
    return;
  }
  CheckpointAttempt& attempt = attempts_[m.version];
  if (attempt.generation < m.generation) {
    if (m.generation != view_->generation) {
      attempts_.erase(m.version);
      return;
    }
    attempt = CheckpointAttempt{.generation = m.generation,
                                .members = static_cast<int>(view_->members.size())};
  }
  if (attempt.generation != m.generation || attempt.writing) return;
  attempt.updates = m.updates;
  attempt.parts[m.rank] = m.info;
}

void CoordinatorCore::TryManifests() {
  if (books_adopted_) return;  // what is settled shows at the next view
  for (auto& [version, attempt] : attempts_) {
    const bool complete =
        static_cast<int>(attempt.parts.size()) == attempt.members && !attempt.writing;
    if (!complete) continue;
    // Only a settled step's: its ledger line is on the disk first. All its members took part, so it
    // waits for nothing but a digest, which comes while training goes on.
    if (settled_ < version && phase_ != Phase::kRunning && version.timeline == timeline_) {
      WriteSettled(version.step, /*wait_for_digest=*/false);
    }
    if (settled_ < version && !Mutated(Mutation::kManifestUnsettled)) continue;
    attempt.writing = true;
    WriteManifest manifest{.version = version,
                           .generation = attempt.generation,
                           .updates = attempt.updates,
                           .parts = {},
                           .data_hash = restored_.run->data_hash,
                           .ancestry = CurrentAncestry()};
    for (const auto& [rank, info] : attempt.parts) manifest.parts.push_back(info);
    Emit(std::move(manifest));
  }
}

void CoordinatorCore::Handle(const ManifestWritten& input) {
  if (!input.ok) {
    FailAttempt(input.version, "", input.error);
    return;
  }
  PersistRecord(CheckpointRecord{input.folder, input.version, true});
  latest_checkpoint_ = std::max(latest_checkpoint_.value_or(input.version), input.version);
  attempts_.erase(attempts_.begin(), attempts_.upper_bound(input.version));
  Note("checkpoint", "", absl::StrCat("complete: ", input.folder));
  for (uint64_t id : checkpoint_replies_)
    Answer(id, true, absl::StrCat("checkpoint ", input.folder));
  checkpoint_replies_.clear();
}

// Loud, and training goes on: the previous checkpoint is untouched.
void CoordinatorCore::FailAttempt(const Version& version, const std::string& worker,
                                  const std::string& error) {
  attempts_.erase(version);
  failed_attempts_.insert(version);
  Note("checkpoint_failed", worker, absl::StrCat("version ", ToString(version), ": ", error));
  for (uint64_t id : checkpoint_replies_) {
    Answer(id, false, absl::StrCat("checkpoint of ", ToString(version), " failed: ", error));
  }
  checkpoint_replies_.clear();
}

void CoordinatorCore::FailAttemptsOfLost(const View& old_view) {
  std::vector<std::pair<Version, std::string>> failed;
  for (const auto& [version, attempt] : attempts_) {
    if (attempt.writing || attempt.generation != old_view.generation) continue;
    for (size_t r = 0; r < old_view.members.size(); ++r) {
      const Member& member = old_view.members[r];
      if (attempt.parts.contains(Rank(static_cast<int32_t>(r))) ||
          restored_.form->view.RankOf(member.incarnation)) {
        continue;
      }
      failed.emplace_back(version, member.name);
      break;
    }
  }
  for (const auto& [version, name] : failed) {
    FailAttempt(version, name, "the worker was lost before its part was durable");
  }
}

void CoordinatorCore::On(Session& session, const Evaluated& m) {
  session.progress_at = Effective();
  if (!view_ || m.generation != view_->generation || latest_evaluation_ == m.version) return;
  auto& [generation, parts] = evaluations_[m.version];
  if (generation != m.generation) {
    generation = m.generation;
    parts.clear();
  }
  parts[m.rank] = m.part;
  if (parts.size() < view_->members.size()) return;
  EvaluationPart sum;
  for (const auto& [rank, part] : parts) sum += part;
  Emit(WriteEvaluation{m.version, sum});
  latest_evaluation_ = m.version;
  evaluations_.erase(evaluations_.begin(), evaluations_.upper_bound(m.version));
}

// ---- requests ----------------------------------------------------------------------------------

void CoordinatorCore::Handle(const UserRequest& input) {
  switch (input.kind) {
    case UserRequest::Kind::kDrain: {
      for (const auto& [registration, session] : sessions_) {
        if (session.member.name != input.worker) continue;
        const Incarnation incarnation = session.member.incarnation;
        if (IsMember(incarnation)) {
          MarkDraining(incarnation, input.reason);
        } else {
          Send(incarnation, Release{kDrained, "drained before it was a member"});
        }
        return Answer(input.id, true, absl::StrCat("draining ", input.worker));
      }
      return Answer(
          input.id, false,
          absl::StrCat("no worker is named '", input.worker, "'; `starling status` lists them"));
    }
    case UserRequest::Kind::kResize: {
      if (input.target_workers < options_.min_workers ||
          input.target_workers > options_.max_workers) {
        return Answer(
            input.id, false,
            absl::StrCat(input.target_workers, " is outside elastic.min_workers ",
                         options_.min_workers, " … elastic.max_workers ", options_.max_workers));
      }
      const int before = TargetWorkers();
      PersistRecord(TargetRecord{input.target_workers});
      Emit(TargetChanged{input.target_workers});
      int staying = 0;  // the newest ranks leave first
      if (view_) {
        for (const Member& member : view_->members) {
          if (tracks_.at(member.incarnation).draining) continue;
          if (++staying > input.target_workers) MarkDraining(member.incarnation, "resize");
        }
      }
      Note("resize", "", absl::StrCat("target ", before, " to ", input.target_workers));
      return Answer(input.id, true,
                    absl::StrCat("target workers: ", before, " → ", input.target_workers));
    }
    case UserRequest::Kind::kCheckpoint:
      if (!view_)
        return Answer(input.id, false, "training has not begun: there is nothing to checkpoint");
      checkpoint_replies_.push_back(input.id);
      if (phase_ == Phase::kRunning) Send(view_->members.front().incarnation, RequestCheckpoint{});
      return;
    case UserRequest::Kind::kStop:
      BeginStop(input.reason);
      return Answer(input.id, true, "stopping after a checkpoint");
    case UserRequest::Kind::kAdopt:
      adopt_ = true;
      return Answer(input.id, true, "the reported view will be adopted");
  }
}

void CoordinatorCore::BeginStop(const std::string& reason) {
  if (stop_requested_) return;
  stop_requested_ = true;
  stop_reason_ = reason;
  Note("stopping", "", reason);
}

// ---- the end -----------------------------------------------------------------------------------

void CoordinatorCore::MaybeEnd() {
  if (ending_) {
    if ((sessions_.empty() && untold_.empty() && now_ >= linger_until_) ||
        now_ - phase_since_ > options_.detection) {
      if (phase_ != Phase::kEnded) {
        SetPhase(Phase::kEnded, end_reason_);
        Emit(Ended{end_code_, end_reason_});
      }
    }
    return;
  }
  if (phase_ != Phase::kRunning) return;
  const bool finished = position_.step.value() >= options_.total_steps;
  if (!finished && !stopping_view_) return;
  const Version version = position_.version();
  // Every member has reported, so nobody is left behind; then the books must be complete.
  const bool all_reported =
      !report_counts_.empty() && report_counts_.begin()->first == position_.step;
  if (!all_reported || settled_ != version) return;
  const bool checkpoint_wanted = stopping_view_ || options_.final_checkpoint;
  if (checkpoint_wanted && latest_checkpoint_ != version) {
    if (failed_attempts_.contains(version)) {
      EndRun(kIoError, kIoError,
             "the last checkpoint could not be written; the one before is intact");
    }
    return;
  }
  const bool evaluated = !options_.evaluation || latest_evaluation_ == version;
  // Nobody evaluates in a view that only checkpoints: the next start does it.
  if (stopping_view_ && !(finished && evaluated)) return EndRun(kDrained, kDrained, stop_reason_);
  if (!evaluated) return;
  PersistRecord(DoneRecord{version});
  Note("done", "", absl::StrCat("training is complete at step ", version.step.value()));
  EndRun(0, 0, "training is complete");
}

void CoordinatorCore::EndRun(int member_code, int exit_code, const std::string& reason) {
  if (ending_) return;
  ending_ = true;
  end_code_ = exit_code;
  end_reason_ = reason;
  if (exit_code != 0) Note("ended", "", reason);
  phase_since_ = now_;
  phase_reason_ = reason;
  member_code_ = member_code;
  for (const auto& [incarnation, track] : tracks_) {
    if (!track.gone && SessionOf(incarnation) == nullptr) untold_.insert(incarnation);
  }
  for (const auto& [registration, session] : sessions_) {
    SendTo(registration, Release{member_code, reason});
  }
}

// ---- plumbing ----------------------------------------------------------------------------------

void CoordinatorCore::PersistRecord(JournalRecord record) {
  restored_.Fold(record);
  Emit(Persist{std::move(record)});
}

CoordinatorCore::Session* CoordinatorCore::SessionOf(Incarnation incarnation) {
  const auto it = by_incarnation_.find(incarnation);
  return it == by_incarnation_.end() ? nullptr : &sessions_.at(it->second);
}
const CoordinatorCore::Session* CoordinatorCore::SessionOf(Incarnation incarnation) const {
  return const_cast<CoordinatorCore*>(this)->SessionOf(incarnation);
}

std::string CoordinatorCore::NameOf(Incarnation incarnation) const {
  if (const Session* session = SessionOf(incarnation)) return session->member.name;
  if (view_) {
    for (const Member& member : view_->members) {
      if (member.incarnation == incarnation) return member.name;
    }
  }
  return ToHex(incarnation);
}

void CoordinatorCore::Send(Incarnation to, CoordinatorMessage message) {
  if (const Session* session = SessionOf(to)) {
    SendTo(session->registration, std::move(message));
  }
}

void CoordinatorCore::SendTo(Registration registration, CoordinatorMessage message) {
  Emit(SendToWorker{registration, std::make_shared<const CoordinatorMessage>(std::move(message))});
}

void CoordinatorCore::Tell(const std::vector<Member>& members, CoordinatorMessage message) {
  const auto shared = std::make_shared<const CoordinatorMessage>(std::move(message));
  for (const Member& member : members) {
    const Session* session = SessionOf(member.incarnation);
    if (session == nullptr) continue;
    const auto track = tracks_.find(member.incarnation);
    if (track != tracks_.end() && track->second.gone) continue;
    Emit(SendToWorker{session->registration, shared});
  }
}

void CoordinatorCore::Note(std::string event, std::string worker, std::string reason,
                           std::map<std::string, double> phase_ms, int64_t micro_batches_lost) {
  Emit(Event{std::move(event), std::move(worker), std::move(reason),
             view_ ? view_->generation : Generation(0),
             view_ ? static_cast<int>(view_->members.size()) : 0, std::move(phase_ms),
             micro_batches_lost});
}

Status CoordinatorCore::GetStatus(absl::Time now) const {
  Status status;
  status.term = term_;
  status.generation = view_ ? view_->generation : Generation(0);
  status.phase = ToString(phase_);
  status.phase_reason = phase_reason_;
  status.position = position_;
  status.settled = settled_;
  status.target_workers = TargetWorkers();
  status.latest_checkpoint = latest_checkpoint_;
  if (!witnessed_.empty()) status.last_result = witnessed_.back();
  const auto add = [&](const Member& member, std::optional<Rank> rank, std::string state) {
    WorkerStatus worker{.member = member, .rank = rank, .state = std::move(state)};
    if (const Session* session = SessionOf(member.incarnation)) {
      worker.micro_batches_per_second = session->speed;
      worker.last_seen = now - paused_ - session->last_seen;
    } else {
      worker.last_seen = now - paused_ - tracks_.at(member.incarnation).missing_since;
    }
    status.workers.push_back(std::move(worker));
  };
  if (view_) {
    for (size_t r = 0; r < view_->members.size(); ++r) {
      const MemberTrack& track = tracks_.at(view_->members[r].incarnation);
      const bool missing = track.missing_since != absl::InfiniteFuture();
      add(view_->members[r], Rank(static_cast<int32_t>(r)),
          track.gone || missing ? "lost"
          : track.draining      ? "draining"
                                : "active");
    }
  }
  std::map<std::string, const Session*> others;
  for (const auto& [registration, session] : sessions_) {
    if (!IsMember(session.member.incarnation)) others[session.member.name] = &session;
  }
  const bool full = static_cast<int>(tracks_.size()) >= options_.max_workers;
  for (const auto& [name, session] : others) {
    add(session->member, std::nullopt, full ? "spare" : "joining");
  }
  return status;
}

}  // namespace starling::membership
