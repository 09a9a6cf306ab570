// Planned changes: who joins and who leaves is prepared beside the training, so that the switch
// costs the others next to nothing (protocol.md §5.1). Nothing here counts before a Form is
// journalled: an abandoned proposal has only spent its number.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "membership/mutation.h"
#include "starling/membership/coordinator_core.h"

namespace starling::membership {
namespace {

// A newcomer's copy that the others have left behind is made again so often; the last time the
// donors hold their votes.
constexpr int64_t kCopyRounds = 3;
constexpr size_t kDonors = 4;        // of one newcomer, at once
constexpr int kPutOffDoublings = 5;  // 1 s … 32 s

}  // namespace

void CoordinatorCore::CheckPlannedChange(bool leavers) {
  const bool over = stop_requested_ || position_.step.value() >= options_.total_steps;
  if (proposal_) {
    if (!over && !proposal_->stale) return CheckProposal();
    const bool holding = Holds(*proposal_);
    proposal_.reset();
    // Its donors hold their votes: only the end of their generation lets them go on at once.
    if (holding) return StartSurvey("a join that the votes waited for is given up");
  }
  if (over) {
    if (leavers) StartSurvey("a worker drains");
    return;
  }
  if (!leavers && outsiders_.empty()) return;
  std::vector<Member> members;
  std::string leaving;
  for (const Member& member : view_->members) {
    if (tracks_.at(member.incarnation).draining) {
      absl::StrAppend(&leaving, leaving.empty() ? "" : ", ", member.name);
    } else {
      members.push_back(member);
    }
  }
  const size_t staying = members.size();
  for (Incarnation newcomer : Newcomers()) {
    if (static_cast<int>(members.size()) >= options_.max_workers) break;
    members.push_back(SessionOf(newcomer)->member);
  }
  const size_t joining = members.size() - staying;
  const bool settled = now_ - joiner_since_ >= options_.join_settle() ||
                       static_cast<int>(members.size()) >= TargetWorkers();
  if (!leavers && (joining == 0 || !settled)) return;
  std::string reason = leavers ? absl::StrCat(leaving, " drains") : "";
  if (joining > 0) {
    absl::StrAppend(&reason, leavers ? " and " : "",
                    joining == 1 ? "a worker joins" : absl::StrCat(joining, " workers join"));
  }
  // Nobody to go on with, or nobody who holds the state: there is nothing to prepare.
  if (staying == 0 || static_cast<int>(members.size()) < options_.min_workers) {
    return StartSurvey(reason);
  }
  Propose(std::move(members), staying, std::move(reason));
  CheckProposal();  // a leaver in a hurry is not waited for
}

void CoordinatorCore::Propose(std::vector<Member> members, size_t staying, std::string reason) {
  Proposal proposal;
  const Generation number = TakeGeneration();
  if (Mutated(Mutation::kProposalNumberReused)) next_generation_ = number;
  proposal.view = std::make_shared<View>(View{number, std::move(members)});
  proposal.secret = secrets_(number);
  proposal.staying = staying;
  proposal.reason = std::move(reason);
  const size_t joining = proposal.view->members.size() - staying;
  for (size_t j = 0; j < joining; ++j) {
    for (size_t k = 0; k < std::min(kDonors, staying); ++k) {
      proposal.transfers.push_back(
          {Rank(static_cast<int32_t>((j + k) % staying)), Rank(static_cast<int32_t>(staying + j))});
    }
  }
  proposal_ = std::move(proposal);
  SendPrepare();
}

// Whether its donors hold their votes.
bool CoordinatorCore::Holds(const Proposal& proposal) { return proposal.round + 1 == kCopyRounds; }

void CoordinatorCore::SendPrepare() {
  Proposal& p = *proposal_;
  copied_.clear();
  p.since = Effective();
  std::set<size_t> ranks;
  if (p.round > 0) {
    for (const Transfer& transfer : p.transfers) {
      ranks.insert(static_cast<size_t>(transfer.from.value()));
      ranks.insert(static_cast<size_t>(transfer.to.value()));
    }
  }
  std::vector<Member> told;
  for (size_t r = 0; r < p.view->members.size(); ++r) {
    if (p.round > 0 && !ranks.contains(r)) continue;
    told.push_back(p.view->members[r]);
    p.awaited.insert(told.back().incarnation);
  }
  Tell(told, Prepare{term_, p.view, p.secret, p.transfers, p.round, Holds(p)});
}

bool CoordinatorCore::CopiesAreCurrent() const {
  const std::vector<Incarnation> newcomers = NewcomersOf(*proposal_);
  return std::all_of(newcomers.begin(), newcomers.end(), [&](Incarnation newcomer) {
    const auto copy = copied_.find(newcomer);
    return copy != copied_.end() &&
           (copy->second == position_.version() || Mutated(Mutation::kStaleCopyHolds));
  });
}

absl::Time CoordinatorCore::LeaveBy() const {
  absl::Time earliest = absl::InfiniteFuture();
  for (Incarnation incarnation : troubled_) {
    earliest = std::min(earliest, tracks_.at(incarnation).leave_by);
  }
  return earliest;
}

void CoordinatorCore::CheckProposal() {
  Proposal& p = *proposal_;
  const absl::Time leave_by = LeaveBy();
  const bool urgent = Effective() + options_.detection > leave_by;
  const bool prepared = p.awaited.empty();
  if (!prepared && !urgent) {
    if (Effective() - LastMove(p) <= options_.stuck_after) return;
    return FailProposal(
        p.awaited, absl::StrCat("not prepared after ", absl::FormatDuration(options_.stuck_after)));
  }
  if (prepared && !urgent && !p.handing_over && !CopiesAreCurrent()) {
    if (p.round + 1 < kCopyRounds) {
      ++p.round;
      return SendPrepare();
    }
    const std::vector<Incarnation> newcomers = NewcomersOf(p);
    proposal_.reset();  // the votes have been let go, or the version would be the same
    for (Incarnation newcomer : newcomers) {
      PutOff(*SessionOf(newcomer), "a step is over before the state is copied");
    }
    return;
  }
  if (!p.handing_over) OrderHandOvers();
  if (!p.channels.empty() && Effective() < leave_by &&
      Effective() - p.since <= options_.stuck_after) {
    return;
  }
  p.ready = prepared;
  StartSurvey(std::string(p.reason));
}

std::vector<Incarnation> CoordinatorCore::NewcomersOf(const Proposal& proposal) {
  std::vector<Incarnation> newcomers;
  for (size_t r = proposal.staying; r < proposal.view->members.size(); ++r) {
    newcomers.push_back(proposal.view->members[r].incarnation);
  }
  return newcomers;
}

// Whether the proposal is what comes next when these members stay.
bool CoordinatorCore::Fits(const Proposal& proposal, const std::vector<Member>& staying) const {
  const std::vector<Incarnation> newcomers = NewcomersOf(proposal);
  return staying.size() == proposal.staying &&
         std::equal(staying.begin(), staying.end(), proposal.view->members.begin()) &&
         std::all_of(newcomers.begin(), newcomers.end(),
                     [&](Incarnation newcomer) { return SessionOf(newcomer) != nullptr; });
}

void CoordinatorCore::OrderHandOvers() {
  Proposal& p = *proposal_;
  p.handing_over = true;
  p.since = Effective();
  size_t receiver = 0;
  for (const Member& leaver : view_->members) {
    if (!tracks_.at(leaver.incarnation).draining) continue;
    const Member& to = p.view->members[receiver++ % p.staying];
    const Generation number = TakeGeneration();
    const auto channel = std::make_shared<View>(View{number, {leaver, to}});
    p.channels.insert(number);
    Tell(channel->members, HandOver{term_, view_->generation, channel, secrets_(number)});
  }
}

void CoordinatorCore::On(Session& session, const Prepared& m) {
  if (!proposal_ || phase_ != Phase::kRunning) return;
  Proposal& p = *proposal_;
  // A hand-over that failed: what the leaver had is computed again.
  if (!m.ok && p.channels.erase(m.generation) > 0) return;
  if (m.generation != p.view->generation || m.round != p.round) return;
  const Incarnation self = session.member.incarnation;
  p.awaited.erase(self);
  if (m.copied) copied_[self] = *m.copied;
  if (m.ok) return;
  std::set<Incarnation> culprits{self};
  culprits.insert(m.unreachable.begin(), m.unreachable.end());
  FailProposal(culprits, absl::StrCat(session.member.name, ": ", m.reason));
}

void CoordinatorCore::On(Session&, const HandedOver& m) {
  if (proposal_) proposal_->channels.erase(m.channel);
}

// Newcomers among the culprits wait; without one the change is made unprepared, which is always
// right.
void CoordinatorCore::FailProposal(const std::set<Incarnation>& culprits,
                                   const std::string& reason) {
  const std::string planned = proposal_->reason;
  const bool holding = Holds(*proposal_);
  std::vector<Incarnation> newcomers;
  for (Incarnation incarnation : culprits) {
    if (!IsMember(incarnation) && SessionOf(incarnation) != nullptr) {
      newcomers.push_back(incarnation);
    }
  }
  proposal_.reset();
  for (Incarnation newcomer : newcomers) PutOff(*SessionOf(newcomer), reason);
  if (newcomers.empty() || holding) {
    StartSurvey(absl::StrCat(planned, " (unprepared: ", reason, ")"));
  }
}

// Members train on, so only newcomers show by moving that the preparation goes on.
absl::Time CoordinatorCore::LastMove(const Proposal& proposal) const {
  absl::Time moved = proposal.since;
  for (Incarnation incarnation : proposal.awaited) {
    const Session* session = SessionOf(incarnation);
    if (session != nullptr && !IsMember(incarnation)) moved = std::max(moved, session->moved_at);
  }
  return moved;
}

void CoordinatorCore::PutOff(Session& session, const std::string& reason) {
  const int before = flaps_[session.member.name].put_off++;
  session.put_off_until = now_ + absl::Seconds(1) * (1 << std::min(before, kPutOffDoublings));
  Note("join_put_off", session.member.name,
       absl::StrCat(reason, "; tries again in ",
                    absl::FormatDuration(session.put_off_until - now_)));
}

}  // namespace starling::membership
