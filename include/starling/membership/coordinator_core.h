// The coordinator's half of the protocol as a value: it is told what happened and answers with what
// to persist, send and show. No thread, clock, file, socket or random numbers of its own; time
// comes only as `now`. The same code runs in production (coordinator/driver) and in the simulator.
//
// Phases: gathering (no view can form) → surveying (the last view is revoked, answers come in) →
// forming (a view is journalled and sent, Ready comes in) → running. Every change of the members
// runs through all of them; the last journalled view decides who is a survivor.
//
// Cost: O(log n) a message in the steady state; O(n) a view change.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "starling/base/ancestry.h"
#include "starling/membership/decide.h"
#include "starling/membership/journal.h"
#include "starling/membership/messages.h"

namespace starling::membership {

// ---- inputs ------------------------------------------------------------------------------------

// A message on the stream that the driver numbered `registration` (1, 2, … within a term).
struct FromWorker {
  Registration registration;
  WorkerMessage message;
};
// The stream ended: process died, connection reset, or closed on our word.
struct StreamClosed {
  Registration registration;
  std::string reason = "its control stream ended";
};
// A process is known to be dead (launcher, or its pid is gone): no reason to wait for it.
struct ProcessDied {
  std::string host;
  int64_t pid = 0;
  std::string reason;
};
// What people ask for. `id` comes back in Reply.
struct UserRequest {
  enum class Kind { kDrain, kResize, kCheckpoint, kStop, kAdopt };
  uint64_t id = 0;
  Kind kind = Kind::kStop;
  std::string worker;      // kDrain: a worker's name
  int target_workers = 0;  // kResize
  std::string reason;
};
// The driver wrote a manifest, or could not.
struct ManifestWritten {
  std::string folder;
  Version version;
  bool ok = false;
  std::string error;
};
struct Wake {};
using CoordinatorInput =
    std::variant<FromWorker, StreamClosed, ProcessDied, UserRequest, ManifestWritten, Wake>;

// ---- outputs, in order -------------------------------------------------------------------------

// Durable before anything after it leaves.
struct Persist {
  JournalRecord record;
};
struct SendToWorker {
  Registration registration;
  std::shared_ptr<const CoordinatorMessage> message;  // never null; one object if said to many
};
struct CloseStream {
  Registration registration;
};
// One line of ledger.jsonl.
struct WriteLedger {
  LedgerLine line;
};
// One line of metrics.jsonl: of a decided step, or of an evaluation.
struct WriteMetrics {
  VoteResult result;
  int members = 0;
};
struct WriteEvaluation {
  Version version;
  EvaluationPart sum;
};
// One line of events.jsonl, which `starling events` shows.
struct Event {
  std::string event;   // "joined", "lost", "view", "checkpoint", …
  std::string worker;  // name, or empty
  std::string reason;
  Generation generation;
  int members = 0;
  std::map<std::string, double> phase_ms;  // of "view": detect, survey, form, …
  int64_t micro_batches_lost = 0;          // of "view": at most so many are computed again
};
// All parts of a version are durable: write the manifest that lists them.
struct WriteManifest {
  Version version;
  Generation generation;
  int64_t updates = 0;
  std::vector<std::string> parts;  // by rank: manifest entries (JSON)
  uint64_t data_hash = 0;          // of the run's data
  Ancestry ancestry;               // checkpoints on it are kept as long as their number allows
};
struct Reply {
  uint64_t id = 0;
  bool ok = true;
  std::string text;
};
// The wanted number of workers changed (launchers start or stop processes).
struct TargetChanged {
  int target_workers = 0;
};
// Everything is over: the driver flushes and the process ends.
struct Ended {
  int exit_code = 0;
  std::string reason;
};
using CoordinatorOutput =
    std::variant<Persist, SendToWorker, CloseStream, WriteLedger, WriteMetrics, WriteEvaluation,
                 Event, WriteManifest, Reply, TargetChanged, Ended>;
using CoordinatorOutputs = std::vector<CoordinatorOutput>;

// ---- what people see ---------------------------------------------------------------------------

struct WorkerStatus {
  Member member;
  std::optional<Rank> rank;
  std::string state;  // joining, active, surveyed, draining, lost, spare
  double micro_batches_per_second = 0;
  absl::Duration last_seen;
};
struct Status {
  Term term;
  Generation generation;
  std::string phase;
  std::string phase_reason;
  Position position;
  Version settled;
  int target_workers = 0;
  std::vector<WorkerStatus> workers;  // members in rank order, then the others by name
  std::optional<Version> latest_checkpoint;
  std::optional<VoteResult> last_result;
};

// Secrets come from outside, because the core has no random numbers.
using SecretSource = std::function<std::string(Generation)>;

// Whether a run folder with this journal belongs to the run of `options`, and its steps keep their
// meaning or may change it. InvalidArgument, marked with exit code 78, otherwise.
absl::Status CheckIdentity(const Options& options, const RestoredState& restored);

class CoordinatorCore {
 public:
  enum class Phase {
    kReconnecting,  // after a restart: waits for the members of the journalled view
    kGathering,     // too few workers, or no holder yet
    kSurveying,
    kForming,
    kRunning,
    kEnded,
  };

  // CheckIdentity(options, restored) is OK. `restored` as read from the journal; checkpoints found
  // on disk are already in it. Outputs of the start (the new term) come with the first Receive.
  CoordinatorCore(Options options, RestoredState restored, absl::Time now, SecretSource secrets);

  void Receive(const CoordinatorInput& input, absl::Time now, CoordinatorOutputs* out);
  // Earliest moment at which Receive(Wake) could matter.
  absl::Time NextWake() const;

  Phase phase() const { return phase_; }
  const std::shared_ptr<const View>& view() const { return view_; }
  Status GetStatus(absl::Time now) const;

 private:
  // One connected incarnation.
  struct Session {
    Registration registration;
    Member member;
    absl::Time last_seen;    // effective time
    absl::Time progress_at;  // effective time: its counter moved, or it waited for others
    absl::Time moved_at;     // effective time: its counter moved
    bool had_view = false;   // it was a member before this connection
    bool drains = false;     // it asked to leave before its view was adopted
    int64_t progress = -1;
    double speed = 0;                                 // micro-batches per second
    absl::Time held_until = absl::InfinitePast();     // flapping: not a member before
    absl::Time put_off_until = absl::InfinitePast();  // its join could not be prepared
    Version settled_sent;
  };
  // A member of view_, from the Form that brought it to the Form that omits it.
  struct MemberTrack {
    bool gone = false;     // proved dead, or to be dropped: no answer of it counts any more
    bool silent = false;   // heard nothing for `detection`; cleared by reconnecting
    bool accused = false;  // a peer saw its data connection break; cleared by Activate
    bool shunned = false;  // others cannot reach it: left out of the next view
    bool draining = false;
    bool active = false;  // forming: Ready came; reconnecting: reported active; running: true
    // No stream since; effective time; cleared by reconnecting.
    absl::Time missing_since = absl::InfiniteFuture();
    std::optional<MemberState> answer;             // to the survey; cleared by the next one
    Step reported;                                 // newest decided step it reported
    absl::Time leave_by = absl::InfiniteFuture();  // draining: effective time of its deadline
    std::string lost_reason;
  };
  // A version whose parts are coming in.
  struct CheckpointAttempt {
    Generation generation;
    int members = 0;  // parts to come
    int64_t updates = 0;
    std::map<Rank, std::string> parts;
    bool writing = false;  // the driver has it
  };

  // A planned change that is prepared while the view trains on.
  struct Proposal {
    std::shared_ptr<const View> view;  // its number is spent, whatever becomes of it
    std::string secret;
    size_t staying = 0;  // of its members so many are members now; newcomers follow
    std::vector<Transfer> transfers;
    std::string reason;
    int64_t round = 0;
    std::set<Incarnation> awaited;  // answers to this round that are to come
    bool handing_over = false;      // the leavers were told to
    std::set<Generation> channels;  // of hand-overs under way
    absl::Time since;               // of this round; effective time
    bool ready = false;             // all is done: the survey that switches to it has begun
    bool stale = false;             // somebody in it left, or somebody else has to
  };

  void Begin();
  void Handle(const FromWorker& input);
  void Handle(const StreamClosed& input);
  void Handle(const ProcessDied& input);
  void Handle(const UserRequest& input);
  void Handle(const ManifestWritten& input);
  void Handle(const Wake&);

  void On(Session& session, const Heartbeat& m);
  void On(Session& session, const SurveyAnswer& m);
  void On(Session& session, const Report& m);
  void On(Session& session, const CommFailed& m);
  void On(Session& session, const Ready& m);
  void On(Session& session, const ConnectFailed& m);
  void On(Session& session, const FormProgress& m);
  void On(Session& session, const RestoreFailed& m);
  void On(Session& session, const DrainNotice& m);
  void On(Session& session, const Leaving& m);
  void On(Session& session, const PartWritten& m);
  void On(Session& session, const Evaluated& m);
  void On(Session& session, const Prepared& m);
  void On(Session& session, const HandedOver& m);
  void On(Session& session, const Register& m);

  void OnRegister(Registration registration, const Register& m);
  std::optional<Refused> RefusalFor(const Register& m) const;
  void OnReconnected(const Session& session, const Register& m);
  void OnNewerView(const Register& m);
  void EndOlderNamesake(const Member& member);
  void CountDeath(const std::string& name);
  void HoldOffFlapping(Session& session);
  void PutOff(Session& session, const std::string& reason);

  // Decisions that depend on time and on what has come in, taken after every input.
  void Progress();
  void CheckSilence();
  void CheckReconnecting();
  void CheckGathering();
  void CheckRunning();
  void CheckSurvey();
  void CheckForming();
  void CheckPlannedChange(bool leavers);
  void CheckProposal();
  void Propose(std::vector<Member> members, size_t staying, std::string reason);
  void SendPrepare();
  void OrderHandOvers();
  static bool Holds(const Proposal& proposal);
  absl::Time LastMove(const Proposal& proposal) const;
  static std::vector<Incarnation> NewcomersOf(const Proposal& proposal);
  bool Fits(const Proposal& proposal, const std::vector<Member>& staying) const;
  void FailProposal(const std::set<Incarnation>& culprits, const std::string& reason);
  bool CopiesAreCurrent() const;
  absl::Time LeaveBy() const;                 // the earliest leaver's deadline; effective time
  bool Lost(const MemberTrack& track) const;  // dead, or its grace is over
  absl::Time AwaitedUntil(const MemberTrack& track) const;

  void DropSession(Registration registration);
  void MarkGone(Incarnation incarnation, const std::string& reason);
  void MarkDraining(Incarnation incarnation, const std::string& reason);
  void StartSurvey(const std::string& reason);
  void AdoptReportedView();
  void DropUnreachable();
  // Its answer counts, and it may be in the next view.
  static bool Survives(const MemberTrack& track) {
    return track.answer && !track.gone && !track.shunned;
  }
  Decision DecideFromAnswers();
  void FormNext();
  bool WaitForSilentHolders() const;
  std::vector<Incarnation> Newcomers() const;  // admitted, connected, not held; oldest first
  bool EnoughToStart(size_t newcomers) const;
  void FillBeginning(const Decision& decision, const View& view, Form* form, FormRecord* record);
  void FillRestore(const View& view, Form* form, FormRecord* record);
  void FillWork(const Decision& decision, const View& view, Form* form) const;
  void FillHeld(const Decision& decision, const View& view, Form* form) const;
  void EnterView(const Form& form, FormRecord record);
  void FailAttemptsOfLost(const View& old_view);
  std::optional<RestoreSource> NewestCheckpoint() const;
  Ancestry CurrentAncestry() const;
  void SortSessions();  // after a change of view_
  Generation TakeGeneration();
  void ActivateView();

  void AcceptLines(const std::vector<LedgerLine>& lines);
  void Witness(const VoteResult& result);
  void NoteDigest(const VoteResult& result);
  void CompareDigests(const VoteResult& result);
  void Reported(MemberTrack& track, const Position& position);
  void AdoptBooks();
  void Settle();
  void WriteSettled(Step up_to, bool wait_for_digest);
  Step AllReported() const;
  void TryManifests();
  void FailAttempt(const Version& version, const std::string& worker, const std::string& error);
  void MaybeEnd();
  void EndRun(int member_code, int exit_code, const std::string& reason);
  void BeginStop(const std::string& reason);
  void PersistRecord(JournalRecord record);
  Session* SessionOf(Incarnation incarnation);
  const Session* SessionOf(Incarnation incarnation) const;
  std::string NameOf(Incarnation incarnation) const;
  void Send(Incarnation to, CoordinatorMessage message);
  void SendTo(Registration registration, CoordinatorMessage message);
  void Tell(const std::vector<Member>& members, CoordinatorMessage message);  // who has a stream
  void Broadcast(CoordinatorMessage message) { Tell(view_->members, std::move(message)); }
  void Answer(uint64_t id, bool ok, std::string text) { Emit(Reply{id, ok, std::move(text)}); }
  void Emit(CoordinatorOutput output) { out_->push_back(std::move(output)); }
  void Note(std::string event, std::string worker, std::string reason,
            std::map<std::string, double> phase_ms = {}, int64_t micro_batches_lost = 0);
  void SetPhase(Phase phase, std::string reason);
  bool IsMember(Incarnation incarnation) const { return tracks_.contains(incarnation); }
  int TargetWorkers() const { return restored_.target_workers.value_or(options_.expected_workers); }
  absl::Time Effective() const { return now_ - paused_; }  // own pauses taken out

  const Options options_;
  const SecretSource secrets_;
  RestoredState restored_;  // folded on with every record persisted: the one copy of durable facts
  Term term_;
  bool started_ = false;  // the records of the start were emitted
  absl::Time now_;
  absl::Duration paused_;  // own pauses so far: taken out of everybody's silence
  absl::Time expected_wake_ = absl::InfiniteFuture();

  Phase phase_ = Phase::kGathering;
  std::string phase_reason_;
  absl::Time phase_since_;
  std::map<std::string, double> phase_ms_;  // of the change under way, so far

  std::shared_ptr<const View> view_;           // last journalled; null before the first
  std::optional<Form> form_;                   // of view_, to send again; cleared by Activate
  std::shared_ptr<const View> reported_view_;  // newest one that workers say and the journal lacks
  Position reported_position_;                 // highest that such workers say
  std::vector<VoteResult> reported_results_;   // that they know
  bool books_adopted_ = false;                 // the adopted timeline has no ledger here
  Generation next_generation_;
  absl::Time started_at_;
  bool formed_here_ = false;  // this life of the coordinator has made a view
  Timeline timeline_;
  Timeline highest_timeline_;
  Position position_;                          // highest decided one known here
  std::map<Incarnation, MemberTrack> tracks_;  // exactly the members of view_
  std::set<Incarnation> troubled_;             // of them: missing, gone or draining
  std::set<Incarnation> awaited_;              // surveying: answer to come; forming: Ready to come
  std::map<Registration, Session> sessions_;
  std::map<Incarnation, Registration> by_incarnation_;
  std::set<Registration> outsiders_;  // sessions of those who are not members of view_
  std::set<std::pair<absl::Time, Registration>> deadlines_;  // effective time; checked lazily
  std::set<Incarnation> fenced_;                             // omitted by a Form: never return (I6)
  std::string numerics_version_;                             // of the first worker
  std::vector<VoteResult> witnessed_;  // newest results of timeline_, at most two
  // Pairs that could not connect since the last Activate.
  std::set<std::pair<Incarnation, Incarnation>> unreachable_;
  std::optional<Proposal> proposal_;
  std::map<Incarnation, Version> copied_;   // newcomers' complete states; cleared by Form
  std::map<Incarnation, int64_t> planned_;  // micro-batches of the step under way, by member
  int64_t micro_batches_lost_ = 0;          // by the change under way, at most
  int connect_attempts_ = 0;                // failed since the last Activate
  absl::Time joiner_since_ = absl::InfiniteFuture();  // a newcomer has waited since
  bool adopt_ = false;                                // a person said --adopt
  bool force_restore_ = false;  // copies diverged; cleared by the restoring Form
  bool stop_requested_ = false;
  std::string stop_reason_;
  bool stopping_view_ = false;  // the active view only checkpoints; set by Activate
  bool ending_ = false;         // members are released; waits for their streams
  absl::Time linger_until_ = absl::InfinitePast();  // and for members that may still come
  std::set<Incarnation> untold_;  // members without a stream that were not released yet
  int end_code_ = 0;
  int member_code_ = 0;  // what released workers exit with
  std::string end_reason_;

  std::map<Version, LedgerLine> lines_;  // decided, not yet written
  Version settled_;                      // the ledger is written up to here
  std::map<Step, int> report_counts_;    // members by newest reported step
  std::map<Version, CheckpointAttempt> attempts_;
  std::set<Version> failed_attempts_;  // of the current generation
  std::map<Version, std::pair<Generation, std::map<Rank, EvaluationPart>>> evaluations_;
  std::optional<Version> latest_evaluation_;
  std::optional<Version> latest_checkpoint_;
  std::vector<uint64_t> checkpoint_replies_;  // requests that wait for the next manifest
  struct Flap {
    int deaths = 0;
    absl::Time last = absl::InfinitePast();
    int put_off = 0;  // joins in a row that could not be prepared
  };
  std::map<std::string, Flap> flaps_;  // by worker name
  CoordinatorOutputs* out_ = nullptr;
};

std::string ToString(CoordinatorCore::Phase phase);

}  // namespace starling::membership
