// Domain values ↔ protobuf, both ways. Outgoing values are ours and are not checked (free text is
// cut to kMaxText). Incoming messages are untrusted: counts, ranges, enums, ranks and interval
// lists are checked, and the first thing that is wrong gives InvalidArgument naming the field; of a
// status, which people only look at, only the values inside are. What comes back from a conversion
// both ways is equal to what went in. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rpc/coordinator.pb.h"
#include "starling/membership/messages.h"
#include "starling/rpc/requests.h"

namespace starling::rpc {

inline constexpr int kMaxMembers = 65536;
inline constexpr int kMaxIntervals = 1 << 20;  // of one list
inline constexpr int kMaxLines = 65536;        // ledger lines of one message
inline constexpr int kMaxTensors = 1 << 20;
inline constexpr size_t kMaxName = 1024;          // names, hosts, addresses, versions
inline constexpr size_t kMaxText = 64 << 10;      // reasons
inline constexpr size_t kMaxPartInfo = 64 << 20;  // a part's manifest entry
inline constexpr int kMaxMessageBytes = 256 << 20;

void ToProto(const membership::WorkerMessage& from, pb::WorkerMessage* to);
void ToProto(const membership::CoordinatorMessage& from, pb::CoordinatorMessage* to);
void ToProto(const StatusReport& from, pb::StatusReply* to);

absl::StatusOr<membership::WorkerMessage> FromProto(const pb::WorkerMessage& from);
absl::StatusOr<membership::CoordinatorMessage> FromProto(const pb::CoordinatorMessage& from);
absl::StatusOr<StatusReport> FromProto(const pb::StatusReply& from);

// ---- the values inside messages (convert_values.cc) ----

std::string CutText(std::string_view text);  // to kMaxText

void ToProto(const plan::IntervalSet& from, pb::IntervalSet* to);
void ToProto(const Version& from, pb::Version* to);
void ToProto(const membership::Position& from, pb::Position* to);
void ToProto(const membership::Member& from, pb::Member* to);
void ToProto(const membership::View& from, pb::View* to);
void ToProto(const membership::VoteResult& from, pb::VoteResult* to);
void ToProto(const membership::LedgerLine& from, pb::LedgerLine* to);
void ToProto(const membership::MemberState::Held& from, pb::Held* to);
void ToProto(const membership::MemberState& from, pb::MemberState* to);
void ToProto(const membership::EvaluationPart& from, pb::EvaluationPart* to);

// Each returns InvalidArgument with the inner field's name; callers put theirs before it.
absl::Status FromProto(const pb::IntervalSet& from, plan::IntervalSet* to);
absl::Status FromProto(const pb::Version& from, Version* to);
absl::Status FromProto(const pb::Position& from, membership::Position* to);
absl::Status FromProto(const pb::Member& from, membership::Member* to);
absl::Status FromProto(const pb::View& from, membership::View* to);
absl::Status FromProto(const pb::VoteResult& from, membership::VoteResult* to);
absl::Status FromProto(const pb::LedgerLine& from, membership::LedgerLine* to);
absl::Status FromProto(const pb::Held& from, membership::MemberState::Held* to);
absl::Status FromProto(const pb::MemberState& from, membership::MemberState* to);
absl::Status FromProto(const pb::EvaluationPart& from, membership::EvaluationPart* to);

// InvalidArgument "<field>: <what>" unless `condition`.
absl::Status Require(bool condition, std::string_view field, std::string_view what);
absl::Status CheckText(const std::string& text, size_t limit, std::string_view field);

}  // namespace starling::rpc
