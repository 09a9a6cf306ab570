// The vocabulary of the elastic protocol (protocol.md §1–§5) as plain values. Everything here is
// copyable and comparable, and knows nothing of threads, clocks, sockets or encodings.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "starling/base/ids.h"
#include "starling/plan/assign.h"
#include "starling/plan/intervals.h"

namespace starling::membership {

struct Member {
  Incarnation incarnation;
  std::string name;  // stable: "host/slot", pod name, array element
  std::string host;  // equal hosts share memory
  int64_t pid = 0;
  std::string data_address;  // its Transport's address
  bool operator==(const Member&) const = default;
};

// Immutable once made; shared, never copied per message. Rank = index.
struct View {
  Generation generation;
  std::vector<Member> members;
  std::optional<Rank> RankOf(Incarnation incarnation) const;
  bool operator==(const View&) const = default;
};

// What a member has decided and is working on: version (timeline, step) is complete, and the
// micro-batches being accumulated are those of step + 1, attempt `attempt`.
struct Position {
  Timeline timeline;
  Step step;
  Attempt attempt;
  auto operator<=>(const Position&) const = default;
  Version version() const { return {timeline, step}; }
};

enum class Outcome : uint8_t {
  kCommit,  // the update is applied
  kSkip,    // the number advances, nothing else changes
  kRepeat,  // same step, next attempt
};

using Digest = std::array<uint64_t, 4>;

// What the vote of one step decided; bitwise the same on every rank. It holds all that a member
// which missed the vote needs to roll forward.
struct VoteResult {
  Generation generation;  // the view that voted
  Position at;            // position before; decides step at.step + 1
  Outcome outcome = Outcome::kCommit;
  int64_t count = 0;   // micro-batches in the sum …
  uint64_t mix = 0;    // … and Σ mix64 of their numbers
  int64_t update = 0;  // the optimizer's own count t of this update (unchanged by a skip)
  double learning_rate = 0;
  double mlm_loss = 0;  // Σ over micro-batches of their mean losses
  double sop_loss = 0;
  int64_t tokens = 0;    // without padding
  double grad_norm = 0;  // of the mean gradient, before clipping
  double clip_factor = 1;
  std::vector<double> weight_squares;  // per tensor, complete
  std::vector<double> update_squares;
  std::vector<plan::Speed> speeds;    // by rank
  bool checkpoint_requested = false;  // somebody asked for one at this version
  std::vector<Digest> digests;        // by rank, of version `at`; empty when not due
  bool operator==(const VoteResult&) const = default;

  Position After() const;
};

// Who contributed what to one step, by rank of the view that committed it.
struct LedgerLine {
  Version version;  // the step that was decided
  Generation generation;
  std::vector<plan::IntervalSet> micro_batches;
  bool skipped = false;
  std::optional<Digest> digest;  // of `version`; filled in from the vote of the next step
  bool operator==(const LedgerLine&) const = default;
};

// What a member holds, as it says in a survey or when it reconnects.
struct MemberState {
  bool complete = false;  // parameters and optimizer state at `position` are whole
  Position position;
  int64_t updates = 0;                       // optimizer's own count at `position`
  std::optional<VoteResult> last_result;     // the vote that led to `position`
  std::optional<VoteResult> pending_result;  // a vote seen and not yet applied
  bool has_reduced = false;                  // reduced sums and norms for `position` are there
  plan::IntervalSet accumulated;             // of step position.step + 1, attempt position.attempt
  // Accumulators taken over from leavers: whose, and of which step and attempt. One of another
  // position than the decided one does not count.
  struct Held {
    Incarnation owner;
    Position position;
    plan::IntervalSet micro_batches;
    bool operator==(const Held&) const = default;
  };
  std::vector<Held> held;
  bool operator==(const MemberState&) const = default;
};

// A copy of the state that a member receives from another, both ranks of the new view. Several
// donors of one receiver send it chunks in turn.
struct Transfer {
  Rank from;
  Rank to;
  bool operator==(const Transfer&) const = default;
};

// Whether `rank` gives or gets a copy.
bool Sends(const std::vector<Transfer>& transfers, Rank rank);
bool Receives(const std::vector<Transfer>& transfers, Rank rank);

// An accumulator of somebody who is gone that now counts: `holder`, a rank of the new view, adds it
// to its own.
struct Merge {
  Rank holder;
  Incarnation owner;
  bool operator==(const Merge&) const = default;
};

// Where the state of a new timeline comes from.
struct RestoreSource {
  std::string checkpoint;  // folder name below checkpoints/
  Version version;         // what it holds
  bool operator==(const RestoreSource&) const = default;
};

// Sums of one worker's share of an evaluation; they add up.
struct EvaluationPart {
  double mlm_loss = 0;
  int64_t masked = 0;
  int64_t masked_correct = 0;
  double sop_loss = 0;
  int64_t pairs = 0;
  int64_t pairs_correct = 0;
  bool operator==(const EvaluationPart&) const = default;
  EvaluationPart& operator+=(const EvaluationPart& other);
};

enum class Purpose : uint8_t {
  kTrain,
  kStop,  // checkpoint the decided version, then wait for Release
};

// Fixed for a run; from the configuration. Defaults as documented in protocol.md.
struct Options {
  std::string run_id;
  uint64_t config_hash = 0;  // what changes the meaning of a step
  uint64_t model_hash = 0;
  int64_t micro_batches = 1;  // M
  int64_t total_steps = 0;
  int64_t checkpoint_every = 0;  // steps; 0 = only at the end and on request
  bool final_checkpoint = true;
  int64_t evaluate_every = 0;  // steps; 0 = only at the end
  bool evaluation = false;     // there is a validation file
  int64_t digest_every = 0;    // steps; 0 = never
  int min_workers = 1;
  int max_workers = 64;
  int expected_workers = 1;                           // the first view waits for so many
  absl::Duration detection = absl::Seconds(3);        // silence that means dead
  absl::Duration patience = absl::Seconds(30);        // wait for a silent only holder
  absl::Duration stuck_after = absl::Seconds(30);     // floor; no progress while others wait
  absl::Duration gather_after = absl::Seconds(5);     // first view without the missing ones
  absl::Duration join_stall_max = absl::Seconds(30);  // a vote waits so long for a copy
  bool accept_config_change = false;

  absl::Duration heartbeat_interval() const { return detection / 3; }
  absl::Duration reconnect_grace() const { return detection / 30; }  // closed stream → lost
  absl::Duration join_settle() const { return detection / 15; }      // joins become one view
  absl::Duration reconnect_window() const { return detection + absl::Seconds(2); }
  // One sentence per contradiction, naming the keys.
  std::vector<std::string> Validate() const;
};

// Short text for logs and scenarios: "t1:s12" or "t1:s12+a1".
std::string ToString(const Position& position);
std::string ToString(const Version& version);
std::string_view ToString(Outcome outcome);

// Protocol version of messages and journal; a worker of another one is refused.
inline constexpr uint32_t kProtocolVersion = 1;

}  // namespace starling::membership
