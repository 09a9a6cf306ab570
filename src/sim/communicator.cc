#include "sim/communicator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::sim {

using membership::Command;
using membership::Completion;
using membership::Outcome;
using membership::ToString;

namespace {

plan::IntervalSet SetOf(const Multiset& sum) {
  plan::IntervalSet set;
  for (const auto& [index, times] : sum) set.Add(index);
  return set;
}

}  // namespace

Generation Communicator::GenerationOf(const Command& command) const {
  if (const auto* connect = std::get_if<membership::Connect>(&command))
    return connect->view->generation;
  if (const auto* copy = std::get_if<membership::CopyState>(&command)) return copy->generation;
  if (const auto* reduce = std::get_if<membership::Reduce>(&command)) return reduce->generation;
  return std::get<membership::Vote>(command).generation;
}

bool Communicator::Gone(Incarnation worker, Generation generation) const {
  if (dead_.contains(worker)) return true;
  const auto closed = closed_.find(worker);
  return closed != closed_.end() && closed->second >= generation;
}

void Communicator::Arrive(SimWorker& worker, const Command& command) {
  const Incarnation self = worker.member.incarnation;
  const Generation g = GenerationOf(command);
  if (Gone(self, g)) {
    world_->Fail(absl::StrCat("I4: ", worker.member.name, " begins a collective of generation ",
                              g.value(), " that it has closed"));
    return;
  }
  int turn = 0;
  if (const auto* connect = std::get_if<membership::Connect>(&command)) {
    views_[{g, self}] = connect->view;
    if (connect->view->RankOf(self) != connect->rank) {
      world_->Fail(absl::StrCat("I4: ", worker.member.name, " is not rank ", connect->rank.value(),
                                " of generation ", g.value()));
      return;
    }
  } else if (!std::holds_alternative<membership::CopyState>(command)) {
    turn = ++turns_[{g, self}];
  }
  const auto view = views_.find({g, self});
  if (view == views_.end()) {
    world_->Fail(
        absl::StrCat("I4: ", worker.member.name, " has not connected generation ", g.value()));
    return;
  }
  Meeting& meeting =
      meetings_[{g, command.index(), turn, view->second->members.front().incarnation}];
  if (!meeting.view) {
    meeting.view = view->second;
    for (const membership::Member& member : meeting.view->members) {
      meeting.expected.insert(member.incarnation);
    }
    if (const auto* copy = std::get_if<membership::CopyState>(&command)) {
      meeting.expected.clear();
      for (const membership::Transfer& t : copy->transfers) {
        for (Rank rank : {t.from, t.to}) {
          meeting.expected.insert(
              meeting.view->members[static_cast<size_t>(rank.value())].incarnation);
        }
      }
    }
  }
  if (!meeting.expected.contains(self)) {
    world_->Fail(absl::StrCat("I4: ", worker.member.name, " is outside generation ", g.value()));
    return;
  }
  meeting.guests[self] = Guest{worker.command, command};
  const std::shared_ptr<const membership::View> meeting_view = meeting.view;
  std::vector<Incarnation> gone;
  const bool complete = meeting.guests.size() == meeting.expected.size();
  if (meeting.gone) {  // the others know
    return FailGuest(meeting, self, meeting.guests.at(self), "a peer is gone");
  }
  if (complete || meeting.guests.size() == 1) {
    for (Incarnation member : meeting.expected) {
      if (Gone(member, g)) gone.push_back(member);
    }
  }
  if (!gone.empty()) {
    meeting.gone = true;
    FailGuests(meeting, "a peer is gone", gone, Incarnation());
  } else if (complete) {
    meeting.met = true;
    Meet(meeting);
    // All have completed what they took part in before.
    std::erase_if(meetings_, [&](const auto& entry) {
      const auto& [generation, kind, earlier, first] = entry.first;
      return generation == g && earlier < turn && entry.second.view == meeting_view;
    });
  }
}

void Communicator::Meet(Meeting& meeting) {
  const Command& command = meeting.guests.begin()->second.what;
  if (std::holds_alternative<membership::Connect>(command)) {
    MeetConnect(meeting);
  } else if (std::holds_alternative<membership::CopyState>(command)) {
    MeetCopy(meeting);
  } else if (std::holds_alternative<membership::Reduce>(command)) {
    MeetReduce(meeting);
  } else {
    MeetVote(meeting);
  }
}

void Communicator::Finish(Incarnation worker, const Guest& guest, Completion done) {
  SimWorker* process = world_->Find(worker);
  if (process == nullptr) return;
  Micros delay = world_->random().Between(100, 3000);
  if (world_->completion_delay) {
    if (const auto wanted = world_->completion_delay(*process, guest.what)) delay = *wanted;
  }
  world_->Complete(*process, guest.command, delay, std::move(done));
}

void Communicator::MeetConnect(Meeting& meeting) {
  std::map<Incarnation, std::vector<Incarnation>> failed;
  for (Incarnation a : meeting.expected) {
    const SimWorker* from = world_->Find(a);
    if (from == nullptr || from->unreachable.empty()) continue;
    for (Incarnation b : meeting.expected) {
      const SimWorker* to = world_->Find(b);
      if (from && to && from->unreachable.contains(to->member.name)) failed[a].push_back(b);
    }
  }
  for (const auto& [worker, guest] : meeting.guests) {
    if (failed.empty()) {
      Finish(worker, guest, {});
    } else if (failed.contains(worker)) {
      Finish(worker, guest,
             Completion{.ok = false, .reason = "cannot connect", .suspects = failed[worker]});
    }
  }
}

void Communicator::MeetCopy(Meeting& meeting) {
  const auto& transfers =
      std::get<membership::CopyState>(meeting.guests.begin()->second.what).transfers;
  const auto at = [&](Rank rank) {
    return meeting.view->members[static_cast<size_t>(rank.value())].incarnation;
  };
  std::map<Incarnation, Model> received;
  for (const membership::Transfer& t : transfers) {
    const SimWorker* donor = world_->Find(at(t.from));
    if (donor == nullptr || !donor->model.whole) {
      world_->Fail(absl::StrCat("I11: rank ", t.from.value(), " of generation ",
                                meeting.view->generation.value(),
                                " is a donor without a complete state"));
      return;
    }
    received[at(t.to)] =
        Model{.whole = true, .chain = donor->model.chain, .updates = donor->model.updates};
  }
  for (const auto& [worker, guest] : meeting.guests) {
    Completion done;
    if (const auto model = received.find(worker); model != received.end()) {
      done.updates = model->second.updates;
      // Until the completion is there, the receiver has no version.
      world_->Find(worker)->model = model->second;
      world_->Find(worker)->model.whole = false;
    }
    Finish(worker, guest, std::move(done));
  }
}

void Communicator::MeetReduce(Meeting& meeting) {
  Reduced reduced{.generation = meeting.view->generation};
  bool first = true;
  for (const auto& [worker, guest] : meeting.guests) {
    const auto& command = std::get<membership::Reduce>(guest.what);
    const Model& model = world_->Find(worker)->model;
    if (first) reduced.at = command.position;
    first = false;
    if (!(command.position == reduced.at) ||
        (model.accumulator_at && !(*model.accumulator_at == reduced.at)) || !model.whole) {
      world_->Fail(absl::StrCat("I7: ", ToHex(worker), " reduces at ", ToString(command.position),
                                " with an accumulator of ",
                                model.accumulator_at ? ToString(*model.accumulator_at) : "nothing",
                                ", others at ", ToString(reduced.at)));
    }
    for (const auto& [index, times] : model.accumulator) reduced.sum[index] += times;
  }
  for (const auto& [index, times] : reduced.sum) {
    reduced.bits = Mix64(reduced.bits ^
                         Mix64(static_cast<uint64_t>(index) * 64 + static_cast<uint64_t>(times)));
  }
  const auto shared = std::make_shared<const Reduced>(std::move(reduced));
  for (const auto& [worker, guest] : meeting.guests) {
    world_->Find(worker)->model.reduced = shared;
    Finish(worker, guest, {});
  }
}

void Communicator::MeetVote(Meeting& meeting) {
  const auto& command = std::get<membership::Vote>(meeting.guests.begin()->second.what);
  membership::VoteResult result;
  result.generation = meeting.view->generation;
  result.at = command.position;
  result.update = command.update;
  result.tokens = ++votes_;  // tells votes apart
  DecidedFact fact;
  for (const membership::Member& member : meeting.view->members) {
    const auto& vote = std::get<membership::Vote>(meeting.guests.at(member.incarnation).what);
    const SimWorker& worker = *world_->Find(member.incarnation);
    if (!(vote.position == result.at) || vote.generation != result.generation ||
        vote.update != result.update || !worker.model.reduced ||
        worker.model.reduced->generation != result.generation ||
        !(worker.model.reduced->at == result.at)) {
      world_->Fail(absl::StrCat("I8: ", member.name, " votes at ", ToString(vote.position),
                                " update ", vote.update, " in generation ", vote.generation.value(),
                                ", others at ", ToString(result.at), " update ", result.update));
    }
    const plan::IntervalSet own = SetOf(worker.model.accumulator);
    if (own.count() != vote.count || own.MixSum() != vote.mix) {
      world_->Fail(absl::StrCat("I7: ", member.name, " votes for ", vote.count,
                                " micro-batches and holds ", own.ToString()));
    }
    result.count += vote.count;
    result.mix += vote.mix;
    result.checkpoint_requested = result.checkpoint_requested || vote.request_checkpoint;
    // Speeds are measured, and sometimes not known.
    const uint64_t draw =
        Mix64(member.incarnation.value() ^ Mix64(static_cast<uint64_t>(result.at.step.value())));
    result.speeds.push_back(
        draw % 10 == 0 ? 0
                       : static_cast<plan::Speed>(
                             1'000'000'000 / (world_->options().micro_batch * worker.slowness)));
    fact.contributions.push_back(own);
    const int64_t every = world_->options().protocol.digest_every;
    if (every > 0 && result.at.step.value() % every == 0) {
      const uint64_t chain = worker.model.chain;
      result.digests.push_back({chain, chain, chain, chain});
    }
  }
  // The outcome belongs to the gradient: the same micro-batches give the same one.
  const double draw = ToUnit(
      Mix64(world_->options().seed ^
            Mix64(static_cast<uint64_t>(result.at.step.value()) * 8 + result.at.attempt.value())));
  if (draw < world_->options().skip) {
    result.outcome = Outcome::kSkip;
    result.update = command.update - 1;
  } else if (draw < world_->options().skip + world_->options().repeat) {
    result.outcome = Outcome::kRepeat;
    result.update = command.update - 1;
  }
  fact.result = result;
  world_->Tell([&](Checker& c) { c.OnDecided(fact); });
  world_->decided_votes_[{result.generation, result.at}] = result.After();
  if (world_->decided_votes_.size() > 64)
    world_->decided_votes_.erase(world_->decided_votes_.begin());
  if (world_->on_decided) world_->on_decided(result);
  const std::map<Incarnation, Guest> guests = meeting.guests;
  for (const auto& [worker, guest] : guests) {
    Completion done;
    done.vote = result;
    Finish(worker, guest, std::move(done));
  }
}

void Communicator::FailGuests(Meeting& meeting, const std::string& reason,
                              std::vector<Incarnation> suspects, Incarnation except) {
  meeting.suspects = std::move(suspects);
  for (const auto& [worker, guest] : meeting.guests) {
    if (worker != except) FailGuest(meeting, worker, guest, reason);
  }
}

void Communicator::FailGuest(const Meeting& meeting, Incarnation worker, const Guest& guest,
                             const std::string& reason) {
  SimWorker* process = world_->Find(worker);
  if (process == nullptr || process->command != guest.command || !process->running) return;
  // A collective that all have entered may complete here and fail there.
  if (meeting.met && world_->random().Chance(std::max(0.5, world_->options().late_completion)))
    return;
  Completion done{.ok = false, .reason = reason};
  for (Incarnation suspect : meeting.suspects) {
    if (dead_.contains(suspect)) done.suspects.push_back(suspect);
  }
  world_->Complete(*process, guest.command, world_->random().Between(200, 5000), std::move(done));
}

void Communicator::Leave(Incarnation worker, Generation up_to, bool died) {
  if (died) dead_.insert(worker);
  closed_[worker] = std::max(closed_[worker], up_to);
  for (auto& [key, meeting] : meetings_) {
    if (meeting.gone) {  // its guests know; a later death is what they would see
      if (died && meeting.expected.contains(worker)) meeting.suspects.push_back(worker);
      continue;
    }
    if (!meeting.expected.contains(worker) || !Gone(worker, std::get<0>(key))) continue;
    meeting.gone = true;
    FailGuests(meeting, died ? "connection reset" : "the peer closed the generation", {worker},
               worker);
  }
  // Old meetings are over for everybody once all their members have left.
  std::erase_if(meetings_, [&](const auto& entry) {
    const Meeting& meeting = entry.second;
    return std::all_of(meeting.expected.begin(), meeting.expected.end(),
                       [&](Incarnation member) { return Gone(member, std::get<0>(entry.first)); });
  });
}

void Communicator::Break(Incarnation worker) {
  for (auto& [key, meeting] : meetings_) {
    if (meeting.guests.contains(worker))
      FailGuests(meeting, "connection reset by peer", {}, Incarnation());
  }
}

}  // namespace starling::sim
