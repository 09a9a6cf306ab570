#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rpc/convert.h"
#include "starling/base/status.h"

namespace starling::rpc {
namespace {

using membership::Digest;

void AddDigest(const Digest& digest, google::protobuf::RepeatedField<uint64_t>* lanes) {
  for (uint64_t lane : digest) lanes->Add(lane);
}

Digest DigestAt(const google::protobuf::RepeatedField<uint64_t>& lanes, int index) {
  Digest digest;
  for (int lane = 0; lane < 4; ++lane) digest[lane] = lanes.Get(4 * index + lane);
  return digest;
}

template <typename To, typename From>
absl::Status FillVector(const From& from, int limit, std::string_view field, To* to) {
  STARLING_RETURN_IF_ERROR(
      Require(from.size() <= limit, field, absl::StrCat(from.size(), " entries are too many")));
  to->assign(from.begin(), from.end());
  return absl::OkStatus();
}

}  // namespace

absl::Status Require(bool condition, std::string_view field, std::string_view what) {
  if (condition) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(std::string(field), ": ", std::string(what)));
}

absl::Status CheckText(const std::string& text, size_t limit, std::string_view field) {
  return Require(text.size() <= limit, field, absl::StrCat(text.size(), " bytes are too many"));
}

std::string CutText(std::string_view text) { return std::string(text.substr(0, kMaxText)); }

// ---- out ---------------------------------------------------------------------------------------

void ToProto(const plan::IntervalSet& from, pb::IntervalSet* to) {
  to->mutable_bounds()->Reserve(static_cast<int>(2 * from.intervals().size()));
  for (const plan::Interval& interval : from.intervals()) {
    to->add_bounds(interval.begin);
    to->add_bounds(interval.end);
  }
}

void ToProto(const Version& from, pb::Version* to) {
  to->set_timeline(from.timeline.value());
  to->set_step(from.step.value());
}

void ToProto(const membership::Position& from, pb::Position* to) {
  to->set_timeline(from.timeline.value());
  to->set_step(from.step.value());
  to->set_attempt(from.attempt.value());
}

void ToProto(const membership::Member& from, pb::Member* to) {
  to->set_incarnation(from.incarnation.value());
  to->set_name(from.name);
  to->set_host(from.host);
  to->set_pid(from.pid);
  to->set_data_address(from.data_address);
}

void ToProto(const membership::View& from, pb::View* to) {
  to->set_generation(from.generation.value());
  to->mutable_members()->Reserve(static_cast<int>(from.members.size()));
  for (const membership::Member& member : from.members) ToProto(member, to->add_members());
}

void ToProto(const membership::VoteResult& from, pb::VoteResult* to) {
  to->set_generation(from.generation.value());
  ToProto(from.at, to->mutable_at());
  to->set_outcome(static_cast<uint32_t>(from.outcome));
  to->set_count(from.count);
  to->set_mix(from.mix);
  to->set_update(from.update);
  to->set_learning_rate(from.learning_rate);
  to->set_mlm_loss(from.mlm_loss);
  to->set_sop_loss(from.sop_loss);
  to->set_tokens(from.tokens);
  to->set_grad_norm(from.grad_norm);
  to->set_clip_factor(from.clip_factor);
  to->mutable_weight_squares()->Assign(from.weight_squares.begin(), from.weight_squares.end());
  to->mutable_update_squares()->Assign(from.update_squares.begin(), from.update_squares.end());
  to->mutable_speeds()->Assign(from.speeds.begin(), from.speeds.end());
  to->set_checkpoint_requested(from.checkpoint_requested);
  for (const Digest& digest : from.digests) AddDigest(digest, to->mutable_digest_lanes());
}

void ToProto(const membership::LedgerLine& from, pb::LedgerLine* to) {
  ToProto(from.version, to->mutable_version());
  to->set_generation(from.generation.value());
  for (const plan::IntervalSet& set : from.micro_batches) ToProto(set, to->add_micro_batches());
  to->set_skipped(from.skipped);
  if (from.digest) AddDigest(*from.digest, to->mutable_digest_lanes());
}

void ToProto(const membership::MemberState::Held& from, pb::Held* to) {
  to->set_owner(from.owner.value());
  ToProto(from.position, to->mutable_position());
  ToProto(from.micro_batches, to->mutable_micro_batches());
}

void ToProto(const membership::MemberState& from, pb::MemberState* to) {
  to->set_complete(from.complete);
  ToProto(from.position, to->mutable_position());
  to->set_updates(from.updates);
  if (from.last_result) ToProto(*from.last_result, to->mutable_last_result());
  if (from.pending_result) ToProto(*from.pending_result, to->mutable_pending_result());
  to->set_has_reduced(from.has_reduced);
  ToProto(from.accumulated, to->mutable_accumulated());
  for (const membership::MemberState::Held& held : from.held) ToProto(held, to->add_held());
}

void ToProto(const membership::EvaluationPart& from, pb::EvaluationPart* to) {
  to->set_mlm_loss(from.mlm_loss);
  to->set_masked(from.masked);
  to->set_masked_correct(from.masked_correct);
  to->set_sop_loss(from.sop_loss);
  to->set_pairs(from.pairs);
  to->set_pairs_correct(from.pairs_correct);
}

// ---- in ----------------------------------------------------------------------------------------

absl::Status FromProto(const pb::IntervalSet& from, plan::IntervalSet* to) {
  const auto& bounds = from.bounds();
  STARLING_RETURN_IF_ERROR(Require(bounds.size() % 2 == 0, "bounds", "an interval has no end"));
  STARLING_RETURN_IF_ERROR(Require(bounds.size() / 2 <= kMaxIntervals, "bounds",
                                   absl::StrCat(bounds.size() / 2, " intervals are too many")));
  std::vector<plan::Interval> intervals;
  intervals.reserve(static_cast<size_t>(bounds.size() / 2));
  int64_t last_end = -1;
  for (int i = 0; i < bounds.size(); i += 2) {
    const plan::Interval interval{bounds[i], bounds[i + 1]};
    if (interval.begin <= last_end || interval.begin >= interval.end) {
      return absl::InvalidArgumentError(
          absl::StrCat("bounds: [", interval.begin, ",", interval.end,
                       ") is empty, negative or not after the one before"));
    }
    last_end = interval.end;
    intervals.push_back(interval);
  }
  *to = plan::IntervalSet::Of(std::move(intervals));
  return absl::OkStatus();
}

absl::Status FromProto(const pb::Version& from, Version* to) {
  STARLING_RETURN_IF_ERROR(
      Require(from.step() >= 0, "step", absl::StrCat(from.step(), " is negative")));
  *to = {Timeline(from.timeline()), Step(from.step())};
  return absl::OkStatus();
}

absl::Status FromProto(const pb::Position& from, membership::Position* to) {
  STARLING_RETURN_IF_ERROR(
      Require(from.step() >= 0, "step", absl::StrCat(from.step(), " is negative")));
  *to = {Timeline(from.timeline()), Step(from.step()), Attempt(from.attempt())};
  return absl::OkStatus();
}

absl::Status FromProto(const pb::Member& from, membership::Member* to) {
  STARLING_RETURN_IF_ERROR(Require(from.incarnation() != 0, "incarnation", "is 0"));
  STARLING_RETURN_IF_ERROR(Require(!from.name().empty(), "name", "is empty"));
  STARLING_RETURN_IF_ERROR(CheckText(from.name(), kMaxName, "name"));
  STARLING_RETURN_IF_ERROR(CheckText(from.host(), kMaxName, "host"));
  STARLING_RETURN_IF_ERROR(CheckText(from.data_address(), kMaxName, "data_address"));
  *to = {Incarnation(from.incarnation()), from.name(), from.host(), from.pid(),
         from.data_address()};
  return absl::OkStatus();
}

absl::Status FromProto(const pb::View& from, membership::View* to) {
  STARLING_RETURN_IF_ERROR(Require(from.members_size() > 0, "members", "there are none"));
  STARLING_RETURN_IF_ERROR(Require(from.members_size() <= kMaxMembers, "members",
                                   absl::StrCat(from.members_size(), " are too many")));
  to->generation = Generation(from.generation());
  to->members.resize(static_cast<size_t>(from.members_size()));
  std::set<Incarnation> seen;
  for (int i = 0; i < from.members_size(); ++i) {
    membership::Member& member = to->members[static_cast<size_t>(i)];
    absl::Status read = FromProto(from.members(i), &member);
    if (read.ok()) {
      read = Require(seen.insert(member.incarnation).second, "incarnation", "is there twice");
    }
    if (!read.ok()) return Annotate(read, absl::StrCat("members[", i, "]"));
  }
  return absl::OkStatus();
}

absl::Status FromProto(const pb::VoteResult& from, membership::VoteResult* to) {
  to->generation = Generation(from.generation());
  STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.at(), &to->at), "at"));
  STARLING_RETURN_IF_ERROR(
      Require(from.outcome() <= static_cast<uint32_t>(membership::Outcome::kRepeat), "outcome",
              absl::StrCat(from.outcome(), " is unknown")));
  to->outcome = static_cast<membership::Outcome>(from.outcome());
  STARLING_RETURN_IF_ERROR(Require(from.count() >= 0, "count", "is negative"));
  to->count = from.count();
  to->mix = from.mix();
  STARLING_RETURN_IF_ERROR(Require(from.update() >= 0, "update", "is negative"));
  to->update = from.update();
  to->learning_rate = from.learning_rate();
  to->mlm_loss = from.mlm_loss();
  to->sop_loss = from.sop_loss();
  to->tokens = from.tokens();
  to->grad_norm = from.grad_norm();
  to->clip_factor = from.clip_factor();
  STARLING_RETURN_IF_ERROR(
      FillVector(from.weight_squares(), kMaxTensors, "weight_squares", &to->weight_squares));
  STARLING_RETURN_IF_ERROR(
      FillVector(from.update_squares(), kMaxTensors, "update_squares", &to->update_squares));
  STARLING_RETURN_IF_ERROR(FillVector(from.speeds(), kMaxMembers, "speeds", &to->speeds));
  to->checkpoint_requested = from.checkpoint_requested();
  const int lanes = from.digest_lanes_size();
  STARLING_RETURN_IF_ERROR(Require(lanes % 4 == 0 && lanes / 4 <= kMaxMembers, "digest_lanes",
                                   absl::StrCat(lanes, " are not four for each rank")));
  to->digests.clear();
  for (int i = 0; i < lanes / 4; ++i) to->digests.push_back(DigestAt(from.digest_lanes(), i));
  return absl::OkStatus();
}

absl::Status FromProto(const pb::LedgerLine& from, membership::LedgerLine* to) {
  STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.version(), &to->version), "version"));
  to->generation = Generation(from.generation());
  STARLING_RETURN_IF_ERROR(Require(from.micro_batches_size() <= kMaxMembers, "micro_batches",
                                   absl::StrCat(from.micro_batches_size(), " ranks are too many")));
  to->micro_batches.resize(static_cast<size_t>(from.micro_batches_size()));
  for (int r = 0; r < from.micro_batches_size(); ++r) {
    const absl::Status read =
        FromProto(from.micro_batches(r), &to->micro_batches[static_cast<size_t>(r)]);
    if (!read.ok()) return Annotate(read, absl::StrCat("micro_batches[", r, "]"));
  }
  to->skipped = from.skipped();
  const int lanes = from.digest_lanes_size();
  STARLING_RETURN_IF_ERROR(
      Require(lanes == 0 || lanes == 4, "digest_lanes", absl::StrCat(lanes, " are not four")));
  to->digest.reset();
  if (lanes == 4) to->digest = DigestAt(from.digest_lanes(), 0);
  return absl::OkStatus();
}

absl::Status FromProto(const pb::Held& from, membership::MemberState::Held* to) {
  to->owner = Incarnation(from.owner());
  STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.position(), &to->position), "position"));
  return Annotate(FromProto(from.micro_batches(), &to->micro_batches), "micro_batches");
}

absl::Status FromProto(const pb::MemberState& from, membership::MemberState* to) {
  to->complete = from.complete();
  STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.position(), &to->position), "position"));
  STARLING_RETURN_IF_ERROR(Require(from.updates() >= 0, "updates", "is negative"));
  to->updates = from.updates();
  if (from.has_last_result()) {
    STARLING_RETURN_IF_ERROR(
        Annotate(FromProto(from.last_result(), &to->last_result.emplace()), "last_result"));
  }
  if (from.has_pending_result()) {
    STARLING_RETURN_IF_ERROR(Annotate(
        FromProto(from.pending_result(), &to->pending_result.emplace()), "pending_result"));
  }
  to->has_reduced = from.has_reduced();
  STARLING_RETURN_IF_ERROR(
      Annotate(FromProto(from.accumulated(), &to->accumulated), "accumulated"));
  STARLING_RETURN_IF_ERROR(Require(from.held_size() <= kMaxMembers, "held", "too many entries"));
  to->held.resize(static_cast<size_t>(from.held_size()));
  for (int i = 0; i < from.held_size(); ++i) {
    STARLING_RETURN_IF_ERROR(Annotate(FromProto(from.held(i), &to->held[static_cast<size_t>(i)]),
                                      absl::StrCat("held[", i, "]")));
  }
  return absl::OkStatus();
}

absl::Status FromProto(const pb::EvaluationPart& from, membership::EvaluationPart* to) {
  STARLING_RETURN_IF_ERROR(Require(from.masked() >= 0 && from.masked_correct() >= 0 &&
                                       from.pairs() >= 0 && from.pairs_correct() >= 0,
                                   "counts", "one is negative"));
  *to = {from.mlm_loss(), from.masked(), from.masked_correct(),
         from.sop_loss(), from.pairs(),  from.pairs_correct()};
  return absl::OkStatus();
}

}  // namespace starling::rpc
