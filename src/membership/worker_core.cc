#include "starling/membership/worker_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "membership/codes.h"
#include "membership/mutation.h"

namespace starling::membership {
namespace {

bool UsesNetwork(const Command& command) {
  return std::holds_alternative<Connect>(command) || std::holds_alternative<CopyState>(command) ||
         std::holds_alternative<Reduce>(command) || std::holds_alternative<Vote>(command);
}

}  // namespace

WorkerCore::WorkerCore(Options options, WorkerIdentity identity)
    : options_(std::move(options)),
      identity_(std::move(identity)),
      whole_mix_(plan::IntervalSet::Whole(options_.micro_batches).MixSum()) {}

void WorkerCore::Receive(const WorkerInput& input, WorkerOutputs* out) {
  if (phase_ == Phase::kStopped) return;
  out_ = out;
  std::visit([this](const auto& value) { Handle(value); }, input);
  Advance();
  out_ = nullptr;
}

bool WorkerCore::waiting() const { return !running_ || UsesNetwork(*running_); }

// ---- from the shell ----------------------------------------------------------------------------

void WorkerCore::Handle(const StreamOpened&) {
  stream_open_ = true;
  Register m;
  m.member = identity_.member;
  m.run_id = identity_.run_id;
  m.numerics_version = identity_.numerics_version;
  m.config_hash = identity_.config_hash;
  m.model_hash = identity_.model_hash;
  m.data_hash = identity_.data_hash;
  m.highest_term = term_;
  m.view = view_;
  m.active = phase_ == Phase::kActive;
  m.state = state_;
  m.unsettled.assign(unsettled_.begin(), unsettled_.end());
  Send(std::move(m));
}

void WorkerCore::Handle(const StreamLost&) {
  stream_open_ = false;
  hand_over_.reset();  // nobody is there to change the view: the others need this worker's share
}

void WorkerCore::Handle(const LeaveNotice& notice) {
  if (leaving_) return;  // SIGTERM comes two or three times at a preemption; it never means "now"
  leaving_ = notice;
  // Who has nothing and knows nobody has nothing to hand over either.
  if (!view_ && !stream_open_) return Stop(kDrained, "asked to leave before it was a member");
  if (stream_open_) Send(DrainNotice{notice.deadline_ms, notice.reason});
}

void WorkerCore::Handle(const PartDone& done) {
  // Parts may become durable out of order.
  if (!part_ || std::pair(part_->generation, part_->version) <=
                    std::pair(done.message.generation, done.message.version)) {
    part_ = done.message;
  }
  Send(done.message);
}

void WorkerCore::Handle(const FromCoordinator& input) {
  std::visit([this](const auto& message) { On(message); }, input.message);
}

// ---- from the coordinator ----------------------------------------------------------------------

bool WorkerCore::TermIsStale(Term term) {
  if (term < term_) {
    Emit(Note{absl::StrCat("ignored a message of term ", term.value(), ", which is below ",
                           term_.value())});
    return true;
  }
  term_ = term;
  return false;
}

void WorkerCore::On(const Registered& m) {
  if (TermIsStale(m.term)) return;
  // What the last connection may have swallowed is said again; the coordinator drops repeats.
  if (phase_ == Phase::kReady) {
    Send(Ready{generation(), {unsettled_.begin(), unsettled_.end()}});
  } else if (phase_ == Phase::kRevoked && view_ && closed_ >= generation()) {
    Send(CommFailed{generation(), "the generation is closed here", {}});
  }
  const std::optional<VoteResult>& result =
      state_.pending_result ? state_.pending_result : state_.last_result;
  if (view_ && result) Send(Report{*result, std::nullopt});
  if (part_ && part_->generation == generation()) Send(*part_);
  if (evaluated_ && evaluated_->generation == generation()) Send(*evaluated_);
  if (leaving_) Send(DrainNotice{leaving_->deadline_ms, leaving_->reason});
}

void WorkerCore::On(const Refused& m) { Stop(m.exit_code, absl::StrCat("refused: ", m.reason)); }

void WorkerCore::On(const Release& m) { Stop(m.exit_code, m.reason); }

void WorkerCore::CloseUpTo(Generation generation, const std::string& reason) {
  if (generation <= closed_) return;
  closed_ = generation;
  Emit(Close{generation, reason});
}

void WorkerCore::On(const Revoke& m) {
  // A joiner whose Form was lost on the way has no view; it closes the generation all the same.
  if (TermIsStale(m.term) || m.generation < generation()) return;
  CloseUpTo(m.generation, m.reason);
  phase_ = Phase::kRevoked;
  form_.reset();
  survey_ = m.generation;
  if (running_) Send(FormProgress{m.generation});  // heard; the answer follows when it is still
}

void WorkerCore::On(const Form& m) {
  if (TermIsStale(m.term)) return;
  const std::optional<Rank> rank = m.view->RankOf(identity_.member.incarnation);
  const Generation g = m.view->generation;
  if (!rank || g <= closed_ || (view_ && g <= view_->generation)) {
    Emit(Note{absl::StrCat("ignored the stale Form of generation ", g.value())});
    return;
  }
  if (g.value() > 0) CloseUpTo(Generation(g.value() - 1), "a newer view forms");
  view_ = m.view;
  rank_ = rank;
  form_ = m;
  survey_.reset();
  hand_over_.reset();
  connected_ = copied_ = loaded_ = false;
  phase_ = Phase::kForming;
}

void WorkerCore::On(const Activate& m) {
  if (TermIsStale(m.term) || phase_ != Phase::kReady || m.generation != generation()) return;
  phase_ = Phase::kActive;
  stopping_ = form_->purpose == Purpose::kStop;
  line_ = form_->claims;
  for (size_t r = 0; r < line_.size(); ++r) line_[r].Add(form_->assignment[r]);
  todo_ = form_->assignment[static_cast<size_t>(rank_->value())];
  speeds_.assign(view_->members.size(), 0);
  state_.has_reduced = false;
  state_.pending_result.reset();
  checkpoint_asked_ = false;
  known_checkpoint_ = form_->latest_checkpoint;
  known_evaluation_ = form_->latest_evaluation;
  form_.reset();
}

void WorkerCore::On(const Settled& m) {
  while (!unsettled_.empty() && unsettled_.front().version <= m.version) unsettled_.pop_front();
}

void WorkerCore::On(const RequestCheckpoint&) { request_checkpoint_ = true; }

// Preparing changes nothing that counts: members that lack a connection or a copy when the Form
// comes make it then.
void WorkerCore::On(const Prepare& m) {
  if (TermIsStale(m.term)) return;
  const std::optional<Rank> rank = m.view->RankOf(identity_.member.incarnation);
  const Generation g = m.view->generation;
  if (!rank || g <= closed_ || g <= generation()) return;
  if (Receives(m.transfers, *rank)) {
    copy_.reset();
    ++exclusive_beside_;
  }
  Emit(RunBeside{PrepareView{m.view, m.secret, *rank, m.transfers, m.round, m.hold}});
}

void WorkerCore::On(const HandOver& m) {
  if (TermIsStale(m.term) || phase_ != Phase::kActive || m.generation != generation()) return;
  if (m.channel->RankOf(identity_.member.incarnation) == Rank(0)) {
    hand_over_ = m;
    handed_ = false;
  } else {
    Emit(RunBeside{ReceiveAccumulator{m.channel, m.secret}});
  }
}

// ---- completions -------------------------------------------------------------------------------

void WorkerCore::Handle(const BesideCompletion& completion) {
  const auto* prepare = std::get_if<PrepareView>(&completion.command);
  const bool sends = std::holds_alternative<SendAccumulator>(completion.command);
  if (sends || (prepare != nullptr && Receives(prepare->transfers, prepare->rank))) {
    --exclusive_beside_;
  }
  if (completion.aborted) return;
  if (prepare != nullptr) {
    if (completion.copied) copy_ = Copy{*completion.copied, completion.updates};
    Send(Prepared{prepare->view->generation, prepare->round, completion.ok, completion.reason,
                  completion.suspects, completion.copied});
    return;
  }
  const Generation channel =
      sends ? std::get<SendAccumulator>(completion.command).channel->generation
            : std::get<ReceiveAccumulator>(completion.command).channel->generation;
  // It may be a decision ahead of this member; behind, it is over.
  const bool late = completion.held && completion.held->position < state_.position;
  if (!completion.ok || late) {
    Send(Prepared{.generation = channel,
                  .ok = false,
                  .reason = late ? "the step was decided meanwhile" : completion.reason});
  } else if (!sends) {
    std::erase_if(state_.held, [&](const MemberState::Held& held) {
      return held.owner == completion.held->owner;
    });
    state_.held.push_back(*completion.held);
    Send(HandedOver{channel, *completion.held});
  }
}

void WorkerCore::Handle(const Completion& completion) {
  if (!running_) return;
  const Command command = std::move(*running_);
  running_.reset();
  ++progress_;
  if (!completion.ok) {
    Failed(command, completion);
    return;
  }
  if (const auto* compute = std::get_if<Compute>(&command)) {
    Finished(*compute);
  } else if (const auto* vote = std::get_if<Vote>(&command)) {
    Finished(*vote, completion);
  } else if (const auto* apply = std::get_if<Apply>(&command)) {
    Finished(*apply);
  } else if (std::holds_alternative<ClearAccumulator>(command)) {
    accumulator_spoilt_ = false;
  } else if (const auto* merge = std::get_if<MergeHeld>(&command)) {
    std::erase_if(state_.held, [&](const MemberState::Held& held) {
      const bool merged =
          std::find(merge->owners.begin(), merge->owners.end(), held.owner) != merge->owners.end();
      if (merged) state_.accumulated.Add(held.micro_batches);
      return merged;
    });
  } else if (const auto* reduce = std::get_if<Reduce>(&command)) {
    state_.has_reduced = reduce->position == state_.position;
  } else if (const auto* connect = std::get_if<Connect>(&command)) {
    connected_ = form_ && connect->view == form_->view;
  } else if (const auto* copy = std::get_if<CopyState>(&command)) {
    if (form_ && copy->generation == form_->view->generation) {
      copied_ = true;
      if (Receives(form_->transfers, *rank_)) HoldFormState(completion.updates);
    }
  } else if (std::holds_alternative<InitializeFromSeed>(command) ||
             std::holds_alternative<LoadCheckpoint>(command)) {
    if (form_) {
      loaded_ = true;
      HoldFormState(completion.updates);
    }
  } else if (const auto* evaluate = std::get_if<Evaluate>(&command)) {
    evaluated_ =
        Evaluated{evaluate->version, evaluate->generation, evaluate->rank, completion.evaluation};
    Send(*evaluated_);
  }
}

// The state that the Form describes is here, whole, from wherever it came.
void WorkerCore::HoldFormState(int64_t updates) {
  state_ = MemberState{.complete = true, .position = form_->position, .updates = updates};
  accumulator_spoilt_ = true;
}

void WorkerCore::Finished(const Compute& command) {
  state_.accumulated.Add(command.index);
  todo_.Remove(plan::IntervalSet::Of({{command.index, command.index + 1}}));
}

void WorkerCore::Finished(const Vote& command, const Completion& completion) {
  const VoteResult& result = *completion.vote;
  // A repeat makes no version that could be checkpointed: the request stays.
  if (command.request_checkpoint && result.outcome != Outcome::kRepeat) request_checkpoint_ = false;
  // I7, at run time: a sum that does not hold each micro-batch exactly once is never committed.
  if (result.outcome != Outcome::kRepeat &&
      (result.count != options_.micro_batches || result.mix != whole_mix_)) {
    const std::string reason = absl::StrCat(
        "internal error: the vote of generation ", result.generation.value(), " after ",
        ToString(result.at), " holds ", result.count, " micro-batches instead of ",
        options_.micro_batches, ", or not each once; nothing was applied");
    Send(Leaving{kInternal, reason});
    Stop(kInternal, reason);
    return;
  }
  state_.pending_result = result;
  Report report{result, std::nullopt};
  if (result.outcome != Outcome::kRepeat) {
    KeepLine(result);
    if (rank_ == Rank(0)) report.line = unsettled_.back();
  }
  Send(std::move(report));
}

void WorkerCore::Finished(const Apply& command) {
  // Rolling forward by a vote this member did not see: its line is as good as anybody's.
  if (!state_.pending_result && command.result.outcome != Outcome::kRepeat) {
    KeepLine(command.result);
  }
  Adopt(command.result);
  if (phase_ == Phase::kActive) BeginStep();
}

void WorkerCore::Adopt(const VoteResult& result) {
  state_.position = result.After();
  if (result.outcome == Outcome::kCommit) state_.updates = result.update;
  state_.last_result = result;
  state_.pending_result.reset();
  state_.has_reduced = false;
  state_.accumulated = {};
  std::erase_if(state_.held, [&](const MemberState::Held& held) {
    return held.position < state_.position && !Mutated(Mutation::kStaleHandOver);
  });
  accumulator_spoilt_ =
      result.outcome != Outcome::kRepeat || !Mutated(Mutation::kRepeatKeepsAccumulator);
  checkpoint_asked_ = result.outcome != Outcome::kRepeat && result.checkpoint_requested;
  speeds_ = result.speeds;
}

void WorkerCore::Failed(const Command& command, const Completion& completion) {
  if (completion.aborted) return;
  if (const auto* load = std::get_if<LoadCheckpoint>(&command)) {
    Send(RestoreFailed{generation(), load->source.checkpoint, completion.reason});
    CloseUpTo(generation(), completion.reason);
    phase_ = Phase::kRevoked;
    form_.reset();
    return;
  }
  if (!UsesNetwork(command)) {
    // Out of memory, a broken data file: this member reports why and leaves; the others go on.
    Send(Leaving{kFailure, completion.reason});
    Stop(kFailure, completion.reason);
    return;
  }
  // Of a generation that is already over: whoever closed it knows.
  if (generation() <= closed_) return;
  if (std::holds_alternative<Connect>(command)) {
    Send(ConnectFailed{generation(), completion.suspects, completion.reason});
  } else {
    Send(CommFailed{generation(), completion.reason, completion.suspects});
  }
  // A failed collective ends its generation, also when all members live.
  CloseUpTo(generation(), completion.reason);
  phase_ = Phase::kRevoked;
  form_.reset();
}

// ---- what to do next ---------------------------------------------------------------------------

void WorkerCore::Start(Command command) {
  running_ = command;
  Emit(Run{std::move(command)});
}

void WorkerCore::Advance() {
  // Two leavers would wait for each other, one in a collective and one for its end. Reduce and Vote
  // only read the accumulator, too.
  if (running_ && hand_over_ && phase_ == Phase::kActive && UsesNetwork(*running_)) {
    return HandOverAccumulator();
  }
  const bool hasty = Mutated(Mutation::kVoteAfterAnswer) && phase_ == Phase::kRevoked;
  if ((running_ && !hasty) || phase_ == Phase::kStopped) return;
  switch (phase_) {
    case Phase::kRevoked:
      if (survey_) AnswerSurvey();
      return;
    case Phase::kForming:
      if (exclusive_beside_ == 0) AdvanceForming();
      return;
    case Phase::kActive:
      if (exclusive_beside_ == 0) AdvanceActive();
      return;
    case Phase::kStandby:
    case Phase::kReady:
    case Phase::kStopped:
      return;
  }
}

void WorkerCore::AnswerSurvey() {
  if (Mutated(Mutation::kLastResultDropped)) state_.last_result.reset();
  Send(SurveyAnswer{*survey_, state_, {unsettled_.begin(), unsettled_.end()}});
  survey_.reset();
}

void WorkerCore::AdvanceForming() {
  const Form& f = *form_;
  if (f.from_seed && !loaded_) {
    state_ = MemberState{};
    return Start(InitializeFromSeed{f.position.version()});
  }
  if (f.restore && *rank_ == Rank(0) && !loaded_) {
    state_ = MemberState{};
    return Start(LoadCheckpoint{*f.restore, f.position.version()});
  }
  const bool receives = Receives(f.transfers, *rank_);
  if (!receives && state_.complete && f.result && state_.position == f.result->at &&
      f.position == f.result->After()) {
    return Start(Apply{*f.result});
  }
  if (!connected_) return Start(Connect{f.view, f.secret, *rank_});
  if (!copied_ && (receives || Sends(f.transfers, *rank_))) {
    if (receives) state_ = MemberState{};  // it has no version until the copy is whole
    return Start(CopyState{f.view->generation, f.transfers, f.position.version()});
  }
  if (!state_.complete) {  // a newcomer that the Form sends nothing: it copied before
    if (!copy_ || (copy_->version != f.position.version() && !Mutated(Mutation::kStaleCopyHolds))) {
      Send(CommFailed{generation(), "the copy that the view counts on is not here", {}});
      CloseUpTo(generation(), "the copy is not here");
      phase_ = Phase::kRevoked;
      form_.reset();
      return;
    }
    HoldFormState(copy_->updates);
  }
  if (MergeDue()) return;
  phase_ = Phase::kReady;
  Send(Ready{f.view->generation, {unsettled_.begin(), unsettled_.end()}});
}

// A list counts only where the Form says so; anything else is dropped.
bool WorkerCore::MergeDue() {
  const Form& f = *form_;
  plan::IntervalSet expected = state_.accumulated;
  std::vector<Incarnation> owners;
  for (const MemberState::Held& held : state_.held) {
    if (!(held.position == state_.position) && !Mutated(Mutation::kStaleHandOver)) continue;
    if (std::find(f.merge.begin(), f.merge.end(), Merge{*rank_, held.owner}) == f.merge.end()) {
      continue;
    }
    expected.Add(held.micro_batches);
    owners.push_back(held.owner);
  }
  if (!(expected == f.claims[static_cast<size_t>(rank_->value())])) {
    state_.accumulated = {};
    accumulator_spoilt_ = true;
  } else if (!owners.empty() && accumulator_spoilt_) {  // rolled forward: still the last step's
    Start(ClearAccumulator{state_.position});
    return true;
  } else if (!owners.empty()) {
    Start(MergeHeld{std::move(owners)});
    return true;
  }
  state_.held.clear();
  return false;
}

// The leaver's part: what it has accumulated goes to another member, and it computes nothing more.
void WorkerCore::HandOverAccumulator() {
  if (std::exchange(handed_, true)) return;
  ++exclusive_beside_;
  Emit(RunBeside{
      SendAccumulator{hand_over_->channel,
                      hand_over_->secret,
                      {identity_.member.incarnation, state_.position, state_.accumulated}}});
}

void WorkerCore::AdvanceActive() {
  if (state_.pending_result) return Start(Apply{*state_.pending_result});
  const int members = static_cast<int>(view_->members.size());
  const Version version = state_.position.version();
  if (SnapshotDue()) {
    snapshot_ = {version, generation()};
    const bool last = stopping_ || finished();
    return Start(Snapshot{version, generation(), *rank_, members, state_.updates, last});
  }
  if (EvaluationDue()) {
    evaluation_ = {version, generation()};
    return Start(Evaluate{version, generation(), *rank_, members});
  }
  if (stopping_ || finished()) return;  // until Release
  if (accumulator_spoilt_) return Start(ClearAccumulator{state_.position});
  if (hand_over_ && !(handed_ && state_.has_reduced)) return HandOverAccumulator();
  if (!todo_.empty()) {
    plan::IntervalSet upcoming = todo_;
    upcoming.TakeFirst(1);
    return Start(Compute{state_.position, todo_.first(), std::move(upcoming)});
  }
  const int64_t update = state_.updates + 1;
  if (!state_.has_reduced) return Start(Reduce{generation(), state_.position, update});
  if (Mutated(Mutation::kApplyBeforeVote)) {
    return Start(Apply{
        {.generation = generation(), .at = state_.position, .update = update, .speeds = speeds_}});
  }
  Start(Vote{generation(), state_.position, update, state_.accumulated.count(),
             state_.accumulated.MixSum(), request_checkpoint_});
}

void WorkerCore::BeginStep() {
  line_ = plan::Assign(plan::IntervalSet::Whole(options_.micro_batches), speeds_);
  todo_ = line_[static_cast<size_t>(rank_->value())];
}

void WorkerCore::KeepLine(const VoteResult& result) {
  unsettled_.push_back(LedgerLine{result.After().version(), result.generation, line_,
                                  result.outcome == Outcome::kSkip && !Mutated(Mutation::kSkipLost),
                                  std::nullopt});
  if (unsettled_.size() > kMaxUnsettled) unsettled_.pop_front();
}

bool WorkerCore::SnapshotDue() const {
  const Version version = state_.position.version();
  if (snapshot_ == std::pair(version, generation()) || known_checkpoint_ == version) return false;
  if (stopping_) return true;
  const int64_t step = version.step.value();
  if (step == 0) return false;
  if (finished()) return options_.final_checkpoint;
  return checkpoint_asked_ ||
         (options_.checkpoint_every > 0 && step % options_.checkpoint_every == 0);
}

bool WorkerCore::EvaluationDue() const {
  const Version version = state_.position.version();
  if (!options_.evaluation || stopping_ || version.step.value() == 0) return false;
  if (evaluation_ == std::pair(version, generation()) || known_evaluation_ == version) return false;
  return finished() ||
         (options_.evaluate_every > 0 && version.step.value() % options_.evaluate_every == 0);
}

void WorkerCore::Stop(int exit_code, std::string reason) {
  if (view_) CloseUpTo(view_->generation, reason);
  phase_ = Phase::kStopped;
  Emit(ExitProcess{exit_code, std::move(reason)});
}

}  // namespace starling::membership
