// The next view: from the answers to a survey to members, decision, state and work, journalled and
// sent.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "membership/codes.h"
#include "membership/mutation.h"
#include "starling/membership/coordinator_core.h"

namespace starling::membership {
namespace {

// Numbers reserved in the journal at a time: proposals need no fsync of their own.
constexpr uint64_t kGenerationBlock = 16;

plan::Speed Quantise(double micro_batches_per_second) {
  return static_cast<plan::Speed>(
      std::clamp(std::lround(micro_batches_per_second * 1000), 0L, 4'000'000'000L));
}

}  // namespace

// Whether a run without surviving members may start with these newcomers.
bool CoordinatorCore::EnoughToStart(size_t newcomers) const {
  // A ledger without a journal: the run has gone on before, and its members may still be alive.
  if (!restored_.journal_found && restored_.ledger_last && !view_) {
    if (now_ - started_at_ < options_.reconnect_window()) return false;
    if (!NewestCheckpoint() && !adopt_) return false;  // never from step 0 by itself
  }
  const int count = static_cast<int>(newcomers);
  if (count >= std::clamp(TargetWorkers(), options_.min_workers, options_.max_workers)) return true;
  return count >= options_.min_workers && now_ - joiner_since_ >= options_.gather_after;
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
  SortSessions();
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
    SendTo(registration, Release{kFenced, "dropped from the run by a newer view"});
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

bool CoordinatorCore::WaitForSilentHolders() const {
  return std::any_of(tracks_.begin(), tracks_.end(), [&](const auto& entry) {
    const MemberTrack& track = entry.second;
    return !track.gone && !track.answer && track.missing_since + options_.patience > Effective() &&
           track.missing_since != absl::InfiniteFuture();
  });
}

// What the answers of the survivors and the witnessed votes decide.
Decision CoordinatorCore::DecideFromAnswers() {
  const auto decide = [&] {
    DecideInput input;
    input.timeline = timeline_;
    input.witnessed = witnessed_;
    for (const auto& [incarnation, track] : tracks_) {
      if (Survives(track)) input.survivors[incarnation] = *track.answer;
    }
    return Decide(input);
  };
  if (force_restore_) return Decision{};
  Decision decision = decide();
  if (decision.kind == Decision::Kind::kContinue) return decision;
  // Better an unreachable copy than none: who was left out for that is asked in again.
  for (auto& [incarnation, track] : tracks_) {
    if (track.answer && !track.gone) track.shunned = false;
  }
  return decide();
}

void CoordinatorCore::FormNext() {
  const Decision decision = DecideFromAnswers();
  const bool restore = decision.kind == Decision::Kind::kRestore;
  if (restore && view_ && !force_restore_ && WaitForSilentHolders()) {
    phase_reason_ = "waits for a silent member that holds the only copy of the state";
    return;
  }
  const bool any_survives = std::any_of(tracks_.begin(), tracks_.end(),
                                        [](const auto& entry) { return Survives(entry.second); });
  if (stop_requested_ && !any_survives) return EndRun(kDrained, kDrained, stop_reason_);
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
    const MemberTrack& track = tracks_.at(member.incarnation);
    if (!Survives(track)) continue;
    if (track.draining && !stop_requested_) {
      leavers.push_back(member);
      continue;
    }
    holder_stays = holder_stays || holds(member.incarnation);
    next.members.push_back(member);
  }
  const size_t survivors = next.members.size();
  if (proposal_ && (restore || stop_requested_ || !Fits(*proposal_, next.members))) {
    proposal_.reset();  // what was prepared is of no use, but for the copies
  }
  if (!stop_requested_ && (position_.step.value() < options_.total_steps || survivors == 0)) {
    const std::vector<Incarnation> newcomers = proposal_ ? NewcomersOf(*proposal_) : Newcomers();
    for (Incarnation newcomer : newcomers) {
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
  const bool prepared = proposal_ && next.members == proposal_->view->members;
  next.generation = prepared ? proposal_->view->generation : TakeGeneration();
  Form form;
  FormRecord record;
  form.purpose = stop_requested_ ? Purpose::kStop : Purpose::kTrain;
  FillBeginning(decision, next, &form, &record);
  record.reason = phase_reason_ + "; " + decision.reason;
  FillWork(decision, next, &form);
  form.term = term_;
  form.secret = prepared ? proposal_->secret : secrets_(next.generation);
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
      const auto copy = copied_.find(view.members[r].incarnation);
      const bool copied = copy != copied_.end() && (copy->second == decision.position.version() ||
                                                    Mutated(Mutation::kStaleCopyHolds));
      if (copied && !holds) continue;  // it has what it needs, and gives to nobody yet
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
    const Session* session = SessionOf(member.incarnation);
    speeds.push_back(session == nullptr ? 0 : Quantise(session->speed));
  }
  FillHeld(decision, view, form);
  for (const plan::IntervalSet& claim : form->claims) {
    if (!Mutated(Mutation::kClaimsComputedAgain)) pending.Remove(claim);
  }
  form->assignment = plan::Assign(pending, speeds);
}

// A list counts only where it will be in the new view: the held copy if its owner goes.
void CoordinatorCore::FillHeld(const Decision& decision, const View& view, Form* form) const {
  std::set<Incarnation> counted;
  for (size_t r = 0; r < view.members.size(); ++r) {
    const auto track = tracks_.find(view.members[r].incarnation);
    if (track == tracks_.end() || !track->second.answer) continue;
    if (std::find(decision.holders.begin(), decision.holders.end(), track->first) ==
        decision.holders.end()) {
      continue;
    }
    for (const MemberState::Held& held : track->second.answer->held) {
      const bool stale =
          !(held.position == decision.position) && !Mutated(Mutation::kStaleHandOver);
      if (stale || view.RankOf(held.owner)) continue;
      if (!counted.insert(held.owner).second) continue;
      form->claims[r].Add(held.micro_batches);
      if (Mutated(Mutation::kLeaverForgotten)) continue;
      form->merge.push_back({Rank(static_cast<int32_t>(r)), held.owner});
    }
  }
}

void CoordinatorCore::EnterView(const Form& form, FormRecord record) {
  formed_here_ = true;
  record.view = *form.view;
  record.latest_evaluation = form.latest_evaluation;
  record.claims = form.claims;
  record.assignment = form.assignment;
  proposal_.reset();
  copied_.clear();
  const std::shared_ptr<const View> old_view = view_;
  const std::map<Incarnation, MemberTrack> old_tracks = std::move(tracks_);
  if (Mutated(Mutation::kFormNotPersisted)) {
    restored_.Fold(record);
  } else {
    PersistRecord(std::move(record));
  }
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
    std::vector<Version> undone;  // they are of no history that could be settled any more
    for (const auto& [version, attempt] : attempts_) {
      if (version > settled_ && !attempt.writing) undone.push_back(version);
    }
    for (const Version& version : undone) FailAttempt(version, "", "a restore undid its step");
    settled_ = {form.position.timeline, form.position.step};
  }
  const bool same_step = form.position == position_;  // else what the lost had computed is in
  timeline_ = form.position.timeline;
  position_ = form.position;
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
      track.leave_by = old->second.leave_by;
      if (track.draining) troubled_.insert(member.incarnation);
    } else {
      Note("joined", member.name, absl::StrCat("incarnation ", ToHex(member.incarnation)));
      if (const auto flap = flaps_.find(member.name); flap != flaps_.end()) {
        flap->second.put_off = 0;
      }
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
    const bool merged = std::any_of(form.merge.begin(), form.merge.end(),
                                    [id = incarnation](const Merge& m) { return m.owner == id; });
    if (same_step && !merged) micro_batches_lost_ += planned_[incarnation];
    const auto gone =
        std::find_if(old_view->members.begin(), old_view->members.end(),
                     [id = incarnation](const Member& m) { return m.incarnation == id; });
    if (track.draining && track.answer) {
      Note("drained", gone->name, "left in order");
      Send(incarnation, Release{kDrained, "drained"});
    } else {
      CountDeath(gone->name);
      Note("lost", gone->name, track.lost_reason);
      Send(incarnation,
           Release{kFenced, absl::StrCat("dropped from the run: ", track.lost_reason)});
    }
  }
  SortSessions();
  joiner_since_ = Newcomers().empty() ? absl::InfiniteFuture() : now_;
  phase_ms_["survey"] = absl::ToDoubleMilliseconds(now_ - phase_since_);
  SetPhase(Phase::kForming, phase_reason_);
  Broadcast(form);
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

void CoordinatorCore::SortSessions() {
  outsiders_.clear();
  for (const auto& [registration, session] : sessions_) {
    if (!IsMember(session.member.incarnation)) outsiders_.insert(registration);
  }
}

Generation CoordinatorCore::TakeGeneration() {
  if (next_generation_ > restored_.generations_up_to) {
    const GenerationsRecord block{Generation(next_generation_.value() + kGenerationBlock - 1)};
    if (!Mutated(Mutation::kGenerationNotReserved)) PersistRecord(block);
  }
  const Generation taken = next_generation_;
  next_generation_ = Mutated(Mutation::kGenerationReused) ? taken : taken.Next();
  return taken;
}

std::optional<RestoreSource> CoordinatorCore::NewestCheckpoint() const {
  const Ancestry ancestry = CurrentAncestry();
  std::optional<RestoreSource> newest;
  for (const CheckpointRecord& checkpoint : restored_.checkpoints) {
    if (restored_.bad_checkpoints.contains(checkpoint.folder) ||
        (!OnAncestry(ancestry, checkpoint.version) && !Mutated(Mutation::kRestoreOffAncestry))) {
      continue;
    }
    if (!newest || newest->version.step <= checkpoint.version.step) {
      newest = RestoreSource{checkpoint.folder, checkpoint.version};
    }
  }
  return newest;
}

// The history that the current timeline continues, as far as checkpoints are there.
Ancestry CoordinatorCore::CurrentAncestry() const {
  constexpr Step kAll(std::numeric_limits<int64_t>::max());
  Ancestry ancestry;
  std::set<Timeline> others;
  for (const CheckpointRecord& checkpoint : restored_.checkpoints) {
    others.insert(checkpoint.version.timeline);
  }
  if (view_) {
    ancestry.push_back({timeline_, kAll});
    for (auto fork = restored_.forks.find(timeline_); fork != restored_.forks.end();
         fork = restored_.forks.find(fork->second.timeline)) {
      ancestry.push_back(
          {fork->second.timeline, std::min(ancestry.back().step, fork->second.step)});
    }
    // A later history whose beginning went with the journal: what is older is all there is.
    const Timeline oldest = ancestry.back().timeline;
    if (oldest.value() <= 1) return ancestry;
    std::erase_if(others, [&](Timeline timeline) { return timeline >= oldest; });
  }
  // Without a journal what is on the disk is all there is.
  for (auto timeline = others.rbegin(); timeline != others.rend(); ++timeline) {
    ancestry.push_back({*timeline, kAll});
  }
  return ancestry;
}

}  // namespace starling::membership
