// The worker's half of the protocol as a value: it is told what happened and answers with what to
// do next. No thread, clock, file, socket or torch; the same code runs in production
// (worker/elastic_loop) and in the simulator. One thread at a time.
//
// It drives one executor, which does one thing at a time (`Command`) and answers each command with
// exactly one `Completion`, in order. Close is not a command: it takes effect at once, also while a
// command is running, which then completes as aborted (a micro-batch is finished first).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "starling/membership/messages.h"

namespace starling::membership {

// ---- commands to the executor, one at a time ---------------------------------------------------

struct InitializeFromSeed {  // the state of version 0, which becomes `version`
  Version version;
};
struct LoadCheckpoint {  // p, m, v and the optimizer's count
  RestoreSource source;
  Version version;  // that the loaded state becomes
};
struct Connect {  // a communicator for this view
  std::shared_ptr<const View> view;
  std::string secret;
  Rank rank;
};
struct CopyState {  // send and receive complete states, in this order
  Generation generation;
  std::vector<Transfer> transfers;
  Version version;  // that the copied state is
};
struct Compute {  // one micro-batch; its gradient enters the accumulator
  Position position;
  int64_t index = 0;
  plan::IntervalSet upcoming;  // a hint: what this rank computes after it, as things stand
};
struct Reduce {  // reduce, norm and measure: everything before the vote
  Generation generation;
  Position position;
  int64_t update = 0;  // the optimizer's count if this step commits
};
struct Vote {
  Generation generation;
  Position position;
  int64_t update = 0;
  int64_t count = 0;  // micro-batches in this accumulator and Σ mix64 of their numbers
  uint64_t mix = 0;
  bool request_checkpoint = false;
};
struct Apply {  // follow a decided vote: write m, v, p (commit) or nothing
  VoteResult result;
};
struct ClearAccumulator {  // accumulators held for others stay only if they are of `position`
  Position position;
};
struct MergeHeld {  // accumulators held for these enter the own one
  std::vector<Incarnation> owners;
};
struct Evaluate {  // this rank's share of the validation data
  Version version;
  Generation generation;
  Rank rank;
  int members = 1;
};
struct Snapshot {  // copy what this rank writes; the writing goes on in the background
  Version version;
  Generation generation;
  Rank rank;
  int members = 1;
  int64_t updates = 0;
  bool last = false;  // nothing is computed after it: it waits for a slow disk instead of failing
};

using Command = std::variant<InitializeFromSeed, LoadCheckpoint, Connect, CopyState, Compute,
                             Reduce, Vote, Apply, ClearAccumulator, MergeHeld, Evaluate, Snapshot>;

// ---- beside them, in the background ------------------------------------------------------------
//
// A second thread takes these one at a time, in order, and answers each with one BesideCompletion.
// Close ends those of the closed generations, too. While an accumulator is sent or a state is
// received here, no command begins; a Reduce or Vote may be running: they only read.

// Connect the proposed view, unless that is done, and send or receive complete states. A chunk is
// read whole at one version; what is sent says which.
struct PrepareView {
  std::shared_ptr<const View> view;
  std::string secret;
  Rank rank;
  std::vector<Transfer> transfers;
  int64_t round = 0;
  bool hold = false;  // donors: no vote begins until their generation closes, or join_stall_max
};
// The leaver's and the receiver's end of a hand-over. Nothing enters the sender's accumulator.
struct SendAccumulator {
  std::shared_ptr<const View> channel;
  std::string secret;
  MemberState::Held held;
};
struct ReceiveAccumulator {
  std::shared_ptr<const View> channel;
  std::string secret;
};
using BesideCommand = std::variant<PrepareView, SendAccumulator, ReceiveAccumulator>;

// ---- outputs -----------------------------------------------------------------------------------

struct Run {
  Command command;
};
struct RunBeside {
  BesideCommand command;
};
// Close this generation and every older one, now: abort its communicator and connects (I4).
struct Close {
  Generation generation;
  std::string reason;
};
struct SendToCoordinator {
  WorkerMessage message;
};
struct ExitProcess {
  int exit_code = 0;
  std::string reason;
};
struct Note {  // a line for the log
  std::string text;
};
using WorkerOutput = std::variant<Run, RunBeside, Close, SendToCoordinator, ExitProcess, Note>;
using WorkerOutputs = std::vector<WorkerOutput>;

// ---- inputs ------------------------------------------------------------------------------------

// The running command ended. `status_ok` false: `reason` says why, `aborted` whether Close did it.
struct Completion {
  bool ok = true;
  bool aborted = false;
  std::string reason;
  std::vector<Incarnation> suspects;  // unreachable or broken peers
  std::optional<VoteResult> vote;     // of Vote
  int64_t updates = 0;        // of LoadCheckpoint and CopyState (receiver): optimizer's count
  EvaluationPart evaluation;  // of Evaluate
};
struct BesideCompletion {
  BesideCommand command;
  bool ok = true;
  bool aborted = false;
  std::string reason;
  std::vector<Incarnation> suspects;
  std::optional<Version> copied;          // of a receiving PrepareView: all of one version
  int64_t updates = 0;                    // then: the optimizer's count
  std::optional<MemberState::Held> held;  // of ReceiveAccumulator
};
// A part of a snapshot became durable, or failed; at any time after Snapshot.
struct PartDone {
  PartWritten message;
};
struct FromCoordinator {
  CoordinatorMessage message;
};
// The control stream is new: the worker introduces itself.
struct StreamOpened {};
struct StreamLost {};
// SIGTERM or a spot notice.
struct LeaveNotice {
  int64_t deadline_ms = 0;
  std::string reason;
};
using WorkerInput = std::variant<Completion, BesideCompletion, PartDone, FromCoordinator,
                                 StreamOpened, StreamLost, LeaveNotice>;

// What the worker says of itself when it registers; fixed for its life.
struct WorkerIdentity {
  Member member;
  std::string run_id;
  std::string numerics_version;
  uint64_t config_hash = 0;
  uint64_t model_hash = 0;
  uint64_t data_hash = 0;
};

class WorkerCore {
 public:
  enum class Phase {
    kStandby,  // no view yet, or waiting for the next one with the state kept
    kForming,  // has a Form: rolling forward, connecting, copying
    kReady,    // waits for Activate
    kActive,   // computing steps
    kRevoked,  // generation closed; the survey is answered once the executor is still
    kStopped,  // ExitProcess was said
  };

  WorkerCore(Options options, WorkerIdentity identity);

  // Takes one input and appends what to do. Never fails: a message that does not belong here (older
  // term, older generation) is dropped.
  void Receive(const WorkerInput& input, WorkerOutputs* out);

  Phase phase() const { return phase_; }
  Generation generation() const { return view_ ? view_->generation : Generation(0); }
  std::optional<Rank> rank() const { return rank_; }
  const Position& position() const { return state_.position; }
  const MemberState& state() const { return state_; }
  const std::shared_ptr<const View>& view() const { return view_; }
  // Grows with every completed command: the heartbeat's progress counter.
  int64_t progress() const { return progress_; }
  // Lack of progress is not this worker's doing.
  bool waiting() const;
  bool finished() const { return state_.position.step.value() >= options_.total_steps; }

 private:
  void Handle(const Completion& completion);
  void Handle(const BesideCompletion& completion);
  void Handle(const PartDone& done);
  void Handle(const FromCoordinator& input);
  void Handle(const StreamOpened&);
  void Handle(const StreamLost&);
  void Handle(const LeaveNotice& notice);

  void On(const Registered& m);
  void On(const Refused& m);
  void On(const Revoke& m);
  void On(const Prepare& m);
  void On(const Form& m);
  void On(const Activate& m);
  void On(const Settled& m);
  void On(const RequestCheckpoint& m);
  void On(const Release& m);
  void On(const HandOver& m);

  void Finished(const Compute& command);
  void Finished(const Vote& command, const Completion& completion);
  void Finished(const Apply& command);
  void Failed(const Command& command, const Completion& completion);

  // Issues the next command, or answers the survey, when the executor is still. The only place
  // where commands come from.
  void Advance();
  void AdvanceForming();
  void AdvanceActive();
  bool MergeDue();  // starts it; else the accumulator is what the Form claims, or cleared
  void HandOverAccumulator();
  void AnswerSurvey();
  void BeginStep();  // plan of the next step in the same view
  void CloseUpTo(Generation generation, const std::string& reason);
  void KeepLine(const VoteResult& result);  // of a step that was decided, until it is settled
  void HoldFormState(int64_t updates);
  void Adopt(const VoteResult& result);  // position, updates, accumulator after following it
  bool SnapshotDue() const;
  bool EvaluationDue() const;
  bool TermIsStale(Term term);  // else remembers it
  void Start(Command command);
  void Emit(WorkerOutput output) { out_->push_back(std::move(output)); }
  void Send(WorkerMessage message) { Emit(SendToCoordinator{std::move(message)}); }
  void Stop(int exit_code, std::string reason);

  const Options options_;
  const WorkerIdentity identity_;
  const uint64_t whole_mix_;  // Σ mix64 over {0 … M−1}

  Phase phase_ = Phase::kStandby;
  Term term_;                         // highest seen; older coordinators are not obeyed
  std::shared_ptr<const View> view_;  // newest view this incarnation belongs to
  std::optional<Rank> rank_;          // in view_
  Generation closed_;                 // this generation and older are closed for good
  std::optional<Generation> survey_;  // to answer; cleared by the answer
  MemberState state_;
  std::optional<Form> form_;  // being followed; cleared by Activate and Revoke
  bool stopping_ = false;     // this view only checkpoints; set by Activate
  bool connected_ = false;    // for form_
  bool copied_ = false;
  bool loaded_ = false;
  std::optional<Command> running_;       // the executor's command, until its Completion
  std::vector<plan::IntervalSet> line_;  // by rank: who contributes what to the current step
  plan::IntervalSet todo_;               // of this rank, not yet computed
  std::vector<plan::Speed> speeds_;      // by rank, from the last vote of this view
  bool accumulator_spoilt_ = false;      // to be cleared before the next Compute
  bool request_checkpoint_ = false;      // until the next vote
  bool checkpoint_asked_ = false;        // the last decided vote asked for a checkpoint
  std::optional<std::pair<Version, Generation>> snapshot_;    // last taken
  std::optional<std::pair<Version, Generation>> evaluation_;  // last done
  std::optional<PartWritten> part_;          // of the newest snapshot; said again when reconnecting
  std::optional<Evaluated> evaluated_;       // likewise
  std::optional<Version> known_checkpoint_;  // complete elsewhere
  std::optional<Version> known_evaluation_;
  std::deque<LedgerLine> unsettled_;  // until Settled; at most kMaxUnsettled (I12)
  std::optional<LeaveNotice> leaving_;
  std::optional<HandOver> hand_over_;  // ordered: no more work for this view; cleared by Form
  bool handed_ = false;                // its sending was begun
  // Commands beside that read the accumulator or write the state: until they have ended nothing
  // else may write these.
  int exclusive_beside_ = 0;
  struct Copy {
    Version version;
    int64_t updates = 0;
  };
  std::optional<Copy> copy_;  // a newcomer's, made in the background; cleared by the next one
  bool stream_open_ = false;
  int64_t progress_ = 0;
  WorkerOutputs* out_ = nullptr;  // of the Receive under way
};

inline constexpr size_t kMaxUnsettled = 65536;

}  // namespace starling::membership
