// Everything the coordinator and the workers say to each other, field by field. rpc/ maps these to
// protobuf; the simulator passes them as they are. Plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "starling/membership/types.h"

namespace starling::membership {

// ---- worker → coordinator ----------------------------------------------------------------------

// First message of every connection: of a newcomer, or of a member that lost its coordinator.
struct Register {
  Member member;
  std::string run_id;
  uint32_t protocol_version = kProtocolVersion;
  std::string numerics_version;  // of the build: equal ones compute equal bits
  uint64_t config_hash = 0;
  uint64_t model_hash = 0;
  uint64_t data_hash = 0;  // token files and tokenizer
  Term highest_term;       // a coordinator of a lower one is refused by the worker
  // Set when this incarnation was already a member:
  std::shared_ptr<const View> view;  // its newest view
  bool active = false;               // training in it, not revoked
  MemberState state;
  std::vector<LedgerLine> unsettled;
};

struct Heartbeat {
  int64_t progress = 0;  // grows with every piece of work done
  bool waiting = false;  // inside a collective or idle: lack of progress is others' doing
  double micro_batches_per_second = 0;
};

// Answer to Revoke. A promise: `generation` is closed here for good (protocol.md §5.3).
struct SurveyAnswer {
  Generation generation;
  MemberState state;
  std::vector<LedgerLine> unsettled;
};

// A vote this member saw. Rank 0 adds the ledger line.
struct Report {
  VoteResult result;
  std::optional<LedgerLine> line;
};

// A collective failed for another reason than an abort.
struct CommFailed {
  Generation generation;
  std::string reason;
  std::vector<Incarnation> suspects;
};

// Ready for Activate; `unsettled` repeats ledger lines that a decision included.
struct Ready {
  Generation generation;
  std::vector<LedgerLine> unsettled;
};

struct ConnectFailed {
  Generation generation;
  std::vector<Incarnation> unreachable;
  std::string reason;
};

// Something still goes on in forming (connecting, copying, loading), or a survey was heard.
struct FormProgress {
  Generation generation;
};

struct RestoreFailed {
  Generation generation;
  std::string checkpoint;
  std::string reason;
};

// SIGTERM, spot notice: leave before the deadline.
struct DrainNotice {
  int64_t deadline_ms = 0;  // from now
  std::string reason;
};

// This member cannot go on (out of memory, a broken file, an invariant): it leaves now.
struct Leaving {
  int exit_code = 1;
  std::string reason;
};

// A part of a checkpoint is durable, or failed.
struct PartWritten {
  Version version;
  Generation generation;
  Rank rank;
  int64_t updates = 0;  // optimizer's own count at `version`
  bool ok = false;
  std::string info;  // ok: the part's manifest entry (JSON), empty without a share; else the error
};

struct Evaluated {
  Version version;
  Generation generation;
  Rank rank;
  EvaluationPart part;
};

// Answer to Prepare, or the failure of a hand-over (then `generation` is its channel's).
struct Prepared {
  Generation generation;
  int64_t round = 0;
  bool ok = false;
  std::string reason;
  std::vector<Incarnation> unreachable;
  std::optional<Version> copied;  // a receiver's: it holds all of this version; none: of several
};

// An accumulator of a leaver has arrived whole at this member (protocol.md §5, leaving politely).
struct HandedOver {
  Generation channel;
  MemberState::Held held;
};

using WorkerMessage = std::variant<Register, Heartbeat, SurveyAnswer, Report, CommFailed, Ready,
                                   ConnectFailed, FormProgress, RestoreFailed, DrainNotice, Leaving,
                                   PartWritten, Evaluated, Prepared, HandedOver>;

// ---- coordinator → worker ----------------------------------------------------------------------

struct Registered {
  Term term;
  Registration registration;
  bool expects_activity = false;  // reconnected active in the current view: just go on
};

// Not admitted; the process exits with `exit_code`.
struct Refused {
  int exit_code = 76;
  std::string reason;
};

// Close `generation` and every older one, and answer the survey.
struct Revoke {
  Term term;
  Generation generation;
  std::string reason;
};

// Proposal of a planned change, connected in the background while the old generation trains, and
// the newcomers' states copied there. In a later round only the copies are made again, because the
// version had changed meanwhile.
struct Prepare {
  Term term;
  std::shared_ptr<const View> view;
  std::string secret;
  std::vector<Transfer> transfers;
  int64_t round = 0;
  bool hold = false;  // donors hold their votes until the view changes, for join_stall_max at most
};

// The next generation. `position` is where all members stand once they have followed it.
struct Form {
  Term term;
  std::shared_ptr<const View> view;
  std::string secret;
  Purpose purpose = Purpose::kTrain;
  Position position;
  int64_t updates = 0;
  std::optional<VoteResult> result;       // for members one decision behind: roll forward by it
  std::vector<plan::IntervalSet> claims;  // by new rank: accumulated for the next step, and kept
  std::vector<plan::IntervalSet> assignment;  // by new rank: to compute
  std::vector<Merge> merge;                   // accumulators held for leavers that now count
  std::vector<Transfer> transfers;            // complete copies of the state
  std::optional<RestoreSource> restore;       // rank 0 loads it and is the source of the transfers
  bool from_seed = false;                     // version 0: everybody makes it
  std::optional<Version> latest_checkpoint;   // complete; need not be written again
  std::optional<Version> latest_evaluation;
};

struct Activate {
  Term term;
  Generation generation;
};

// Ledger lines up to here are on the coordinator's disk.
struct Settled {
  Version version;
};

// Ask for a checkpoint with the next vote.
struct RequestCheckpoint {};

// Leave now: training is over, drained, stopped or fenced.
struct Release {
  int exit_code = 0;
  std::string reason;
};

// The first member of `channel`, which leaves, stops computing and hands its accumulator to the
// second (protocol.md §5, leaving politely). The channel has a number and a secret of its own and
// never becomes a view.
struct HandOver {
  Term term;
  Generation generation;  // the view that both are members of
  std::shared_ptr<const View> channel;
  std::string secret;
};

using CoordinatorMessage = std::variant<Registered, Refused, Revoke, Prepare, Form, Activate,
                                        Settled, RequestCheckpoint, Release, HandOver>;

// One line for logs and scenarios.
std::string ToString(const WorkerMessage& message);
std::string ToString(const CoordinatorMessage& message);

}  // namespace starling::membership
