#include "sim/background.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::sim {

using membership::BesideCommand;
using membership::BesideCompletion;
using membership::PrepareView;
using membership::ReceiveAccumulator;
using membership::SendAccumulator;
using membership::Transfer;

namespace {

std::shared_ptr<const membership::View> ViewOf(const BesideCommand& command) {
  if (const auto* prepare = std::get_if<PrepareView>(&command)) return prepare->view;
  if (const auto* send = std::get_if<SendAccumulator>(&command)) return send->channel;
  return std::get<ReceiveAccumulator>(command).channel;
}

// Those who take part: of a first round all members, of a later one donors and receivers.
std::set<Incarnation> Participants(const BesideCommand& command) {
  std::set<Incarnation> all;
  const auto view = ViewOf(command);
  const auto* prepare = std::get_if<PrepareView>(&command);
  if (prepare == nullptr || prepare->round == 0) {
    for (const membership::Member& member : view->members) all.insert(member.incarnation);
    return all;
  }
  for (const Transfer& t : prepare->transfers) {
    for (Rank rank : {t.from, t.to}) {
      all.insert(view->members[static_cast<size_t>(rank.value())].incarnation);
    }
  }
  return all;
}

}  // namespace

bool Background::Gone(Incarnation worker, Generation generation) const {
  if (dead_.contains(worker)) return true;
  const auto closed = closed_.find(worker);
  return closed != closed_.end() && closed->second >= generation;
}

void Background::Add(SimWorker& worker, const BesideCommand& command) {
  auto& queue = queues_[worker.member.incarnation];
  queue.push_back(command);
  if (queue.size() == 1) Begin(worker);
}

void Background::Begin(SimWorker& worker) {
  const Incarnation self = worker.member.incarnation;
  const BesideCommand command = queues_[self].front();
  const auto view = ViewOf(command);
  const Generation g = view->generation;
  if (Gone(self, g)) {
    return Answer(self, command, world_->random().Between(10, 200),
                  {.ok = false, .aborted = true, .reason = "closed"});
  }
  const auto* prepare = std::get_if<PrepareView>(&command);
  if (prepare != nullptr && prepare->hold &&
      std::any_of(prepare->transfers.begin(), prepare->transfers.end(),
                  [&](const Transfer& t) { return t.from == prepare->rank; })) {
    worker.hold_votes_until = world_->queue().now() +
                              absl::ToInt64Microseconds(world_->options().protocol.join_stall_max);
  }
  const Key key{g, prepare == nullptr ? 0 : prepare->round};
  Meeting& meeting = meetings_[key];
  meeting.view = view;
  meeting.expected = Participants(command);
  meeting.guests[self] = command;
  std::vector<Incarnation> gone;
  for (Incarnation member : meeting.expected) {
    if (Gone(member, g)) gone.push_back(member);
  }
  if (!gone.empty()) {
    meeting.guests.erase(self);
    return Answer(self, command, world_->random().Between(200, 5000),
                  {.ok = false, .reason = "a peer is gone", .suspects = gone});
  }
  if (meeting.guests.size() == meeting.expected.size()) Meet(key, meeting);
}

void Background::Meet(const Key& key, Meeting& meeting) {
  meeting.met = true;
  std::map<Incarnation, std::vector<Incarnation>> failed;
  for (Incarnation a : meeting.expected) {
    const SimWorker* from = world_->Find(a);
    if (from == nullptr || from->unreachable.empty()) continue;
    for (Incarnation b : meeting.expected) {
      const SimWorker* to = world_->Find(b);
      if (from && to && from->unreachable.contains(to->member.name)) failed[a].push_back(b);
    }
  }
  if (!failed.empty()) {
    for (const auto& [worker, command] : std::exchange(meeting.guests, {})) {
      Answer(worker, command, world_->random().Between(200, 5000),
             {.ok = false, .reason = "cannot connect", .suspects = failed[worker]});
    }
    meetings_.erase(key);
    return;
  }
  for (const auto& [worker, command] : meeting.guests) {
    SimWorker* process = world_->Find(worker);
    meeting.before[worker] = process->model;
    meeting.versions[worker] = process->core->position().version();
    const auto* prepare = std::get_if<PrepareView>(&command);
    const bool receives =
        prepare != nullptr && std::any_of(prepare->transfers.begin(), prepare->transfers.end(),
                                          [&](const Transfer& t) { return t.to == prepare->rank; });
    if (receives) process->model = Model{};  // half of it is written
  }
  const Micros time = world_->options().copy;
  world_->queue().After(world_->random().Between(time / 4, 2 * time), [this, key] { Done(key); });
}

void Background::Done(const Key& key) {
  const auto it = meetings_.find(key);
  if (it == meetings_.end()) return;
  const Meeting meeting = std::move(it->second);
  meetings_.erase(it);
  for (const auto& [worker, command] : meeting.guests) {
    SimWorker* process = world_->Find(worker);
    if (process == nullptr) continue;
    BesideCompletion done;
    if (const auto* prepare = std::get_if<PrepareView>(&command)) {
      done.copied = Copied(meeting, *prepare);
      if (done.copied) {
        const Transfer* from = nullptr;
        for (const Transfer& t : prepare->transfers) {
          if (t.to == prepare->rank) from = &t;
        }
        const Model& donor = meeting.before.at(
            meeting.view->members[static_cast<size_t>(from->from.value())].incarnation);
        process->model = Model{.whole = true, .chain = donor.chain, .updates = donor.updates};
        done.updates = donor.updates;
      }
    } else if (const auto* send = std::get_if<SendAccumulator>(&command)) {
      if (process->model.accumulator != meeting.before.at(worker).accumulator) {
        world_->Fail(absl::StrCat("I7: ", process->member.name,
                                  " changes an accumulator that is being handed over"));
      }
      const Incarnation receiver = meeting.view->members[1].incarnation;
      if (SimWorker* to = world_->Find(receiver)) {
        to->model.held[worker] = {send->held.position, process->model.accumulator};
      }
    } else {
      const Incarnation leaver = meeting.view->members[0].incarnation;
      done.held = std::get<SendAccumulator>(meeting.guests.at(leaver)).held;
    }
    Answer(worker, command, world_->random().Between(10, 500), std::move(done));
  }
}

// What a receiver has: all of one version, or nothing that counts.
std::optional<Version> Background::Copied(const Meeting& meeting, const PrepareView& command) {
  std::optional<Version> version;
  for (const Transfer& t : command.transfers) {
    if (t.to != command.rank) continue;
    const Incarnation donor =
        meeting.view->members[static_cast<size_t>(t.from.value())].incarnation;
    const SimWorker* process = world_->Find(donor);
    const Model& before = meeting.before.at(donor);
    const Version at = meeting.versions.at(donor);
    if (process == nullptr || !before.whole || process->model.chain != before.chain ||
        process->core->position().version() != at || (version && *version != at)) {
      return std::nullopt;
    }
    version = at;
  }
  return version;
}

void Background::Answer(Incarnation worker, const BesideCommand& command, Micros delay,
                        BesideCompletion completion) {
  completion.command = command;
  world_->Schedule(worker, delay, [this, completion = std::move(completion)](SimWorker& w) {
    auto& queue = queues_[w.member.incarnation];
    queue.pop_front();
    world_->ToWorkerCore(w, completion);
    if (w.alive && !queue.empty()) Begin(w);
  });
}

void Background::Leave(Incarnation worker, Generation up_to, bool died) {
  if (died) dead_.insert(worker);
  closed_[worker] = std::max(closed_[worker], up_to);
  std::erase_if(meetings_, [&](const auto& entry) {
    const Meeting& meeting = entry.second;
    const Generation g = entry.first.first;
    if (!meeting.expected.contains(worker) || !Gone(worker, g)) return false;
    for (const auto& [guest, command] : meeting.guests) {
      if (guest == worker && died) continue;
      BesideCompletion failed{.ok = false, .reason = "connection reset", .suspects = {worker}};
      if (guest == worker) failed.aborted = true;
      Answer(guest, command, world_->random().Between(100, 3000), std::move(failed));
    }
    return true;
  });
}

}  // namespace starling::sim
