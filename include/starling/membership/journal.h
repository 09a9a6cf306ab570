// What the coordinator must not forget: records, their encoding, and the state read back from them.
// A record is framed as (length, CRC32C, payload); a torn last one is cut off, a bad one in the
// middle is an error that names the offset. Pure: bytes in, bytes out; the driver owns the file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "starling/membership/types.h"

namespace starling::membership {

struct RunRecord {  // first of a journal
  std::string run_id;
  uint64_t config_hash = 0;
  uint64_t model_hash = 0;
  uint64_t data_hash = 0;  // of the first worker; 0 = none yet
  bool operator==(const RunRecord&) const = default;
};
struct TermRecord {  // a coordinator's life began
  Term term;
  bool operator==(const TermRecord&) const = default;
};
struct GenerationsRecord {  // numbers up to and including this one are spent (I1)
  Generation up_to;
  bool operator==(const GenerationsRecord&) const = default;
};
// A view and the decision it begins with: the only place where members become lost (protocol.md
// §5).
struct FormRecord {
  View view;
  Purpose purpose = Purpose::kTrain;
  Position position;
  int64_t updates = 0;
  std::optional<RestoreSource> restore;
  std::optional<Version> forked_from;  // position.timeline is new and continues this version
  std::vector<plan::IntervalSet> claims;
  std::vector<plan::IntervalSet> assignment;
  std::string reason;
  // The vote that led to `position`: its only witness may be gone after a restart.
  std::optional<VoteResult> result;
  std::optional<Version> latest_evaluation;  // as the members were told: need not be done again
  bool operator==(const FormRecord&) const = default;
};
struct CheckpointRecord {  // a manifest is durable, or was found unreadable
  std::string folder;
  Version version;
  bool good = true;
  bool operator==(const CheckpointRecord&) const = default;
};
struct TargetRecord {
  int target_workers = 0;
  bool operator==(const TargetRecord&) const = default;
};
struct DrainRecord {
  Incarnation incarnation;
  bool operator==(const DrainRecord&) const = default;
};
struct DoneRecord {  // training is complete
  Version version;
  bool operator==(const DoneRecord&) const = default;
};

using JournalRecord = std::variant<RunRecord, TermRecord, GenerationsRecord, FormRecord,
                                   CheckpointRecord, TargetRecord, DrainRecord, DoneRecord>;

// Framed bytes of one record.
std::string EncodeRecord(const JournalRecord& record);

// Everything a coordinator starts from. Also what folding the records gives.
struct RestoredState {
  std::optional<RunRecord> run;
  Term term;
  Generation generations_up_to;
  std::optional<FormRecord> form;             // the last one
  std::map<Timeline, Version> forks;          // timeline → version it continues
  std::vector<CheckpointRecord> checkpoints;  // good ones, oldest first
  std::set<std::string> bad_checkpoints;
  std::optional<int> target_workers;
  std::set<Incarnation> draining;
  std::set<Incarnation> fenced;  // members that a later view omits: they never return (I6)
  std::optional<Version> done;
  std::optional<Version> ledger_last;  // filled in by the driver from ledger.jsonl
  bool journal_found = false;          // false: gone, or a new run

  void Fold(const JournalRecord& record);
};

struct JournalContent {
  RestoredState state;
  uint64_t valid_bytes = 0;  // the file is cut to this length: what follows is a torn record
};
// DataLoss, naming the offset, for a bad record that is not the last.
absl::StatusOr<JournalContent> DecodeJournal(std::string_view bytes);

}  // namespace starling::membership
