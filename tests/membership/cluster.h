// A coordinator core with hand-made workers: tests say what comes in and look at what goes out.
// Time moves only by Advance, which wakes the core as its driver would.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "starling/membership/coordinator_core.h"

namespace starling::membership::testing {

using Phase = CoordinatorCore::Phase;
using Ids = std::vector<uint64_t>;

inline Incarnation Id(uint64_t id) { return Incarnation(id); }

inline plan::IntervalSet Set(int64_t begin, int64_t end) {
  return plan::IntervalSet::Of({{begin, end}});
}

inline Options SmallOptions(int workers) {
  Options o;
  o.run_id = "run";
  o.config_hash = 1;
  o.model_hash = 2;
  o.micro_batches = 12;
  o.total_steps = 100;
  o.expected_workers = workers;
  o.max_workers = 8;
  return o;
}

class Cluster {
 public:
  explicit Cluster(Options options, RestoredState restored = {}) : options_(options) {
    core = std::make_unique<CoordinatorCore>(
        std::move(options), std::move(restored), now,
        [](Generation g) { return absl::StrCat("secret", g.value()); });
    In(Wake{});
  }

  void In(const CoordinatorInput& input) {
    CoordinatorOutputs fresh;
    core->Receive(input, now, &fresh);
    for (CoordinatorOutput& output : fresh) {
      if (const auto* persist = std::get_if<Persist>(&output)) journal.Fold(persist->record);
      all.push_back(std::move(output));
    }
    journal.journal_found = true;
  }
  void Advance(absl::Duration duration) {
    const absl::Time end = now + duration;
    for (absl::Time next = core->NextWake(); next <= end; next = core->NextWake()) {
      now = std::max(next, now + absl::Nanoseconds(1));
      if (beating) {
        for (const auto& [id, registration] : registrations) Beat(id);
      }
      In(Wake{});
    }
    now = end;
    In(Wake{});
  }
  void Beat(uint64_t id, bool waiting = true, int64_t progress = 0) {
    Say(id, Heartbeat{progress, waiting, 10});
  }

  static Member MemberOf(uint64_t id) {
    return {Incarnation(id), absl::StrCat("w", id % 100), "host", static_cast<int64_t>(id), "addr"};
  }
  Register Introduction(uint64_t id) const {
    Register m;
    m.member = MemberOf(id);
    m.run_id = options_.run_id;
    m.numerics_version = "n1";
    m.config_hash = options_.config_hash;
    m.model_hash = options_.model_hash;
    m.data_hash = 3;
    return m;
  }
  // Of a worker that has been a member: it says what it was, and whether that view was active.
  Register Returning(uint64_t id, std::shared_ptr<const View> view, MemberState state,
                     bool active = true) const {
    Register m = Introduction(id);
    m.view = std::move(view);
    m.active = active;
    m.state = std::move(state);
    return m;
  }
  void Join(uint64_t id) { Join(Introduction(id)); }
  void Join(const Register& m) {
    const Registration registration(next_registration_++);
    registrations[m.member.incarnation.value()] = registration;
    owners[registration] = m.member.incarnation.value();
    In(FromWorker{registration, m});
  }
  void Say(uint64_t id, WorkerMessage message) {
    In(FromWorker{registrations.at(id), std::move(message)});
  }
  void Drop(uint64_t id) {
    const Registration registration = registrations.at(id);
    registrations.erase(id);
    In(StreamClosed{registration});
  }
  // All members of the view that is forming say Ready.
  void ReadyAll() {
    const Generation g = core->view()->generation;
    for (const Member& m : core->view()->members) {
      if (registrations.contains(m.incarnation.value())) Say(m.incarnation.value(), Ready{g, {}});
    }
  }
  Version Newest() const { return core->GetStatus(now).position.version(); }
  // It has done what the newest Prepare asks of it; a newcomer's copy is of version `copied`.
  void SayPrepared(uint64_t id, std::optional<Version> copied = std::nullopt) {
    const Prepare p = Sent<Prepare>(id).back();
    prepared_.insert({id, p.view->generation, p.round});
    Say(id, Prepared{p.view->generation, p.round, true, "", {}, copied});
  }
  // Everybody does what the proposal asks: newcomers' copies are of the newest version, leavers
  // hand over. The survey is due after it.
  void PrepareAll() {
    for (bool asked = true; asked;) {
      asked = false;
      for (const auto& [id, registration] : std::map(registrations)) {
        for (const Prepare& p : Sent<Prepare>(id)) {
          if (!prepared_.insert({id, p.view->generation, p.round}).second) continue;
          asked = true;
          const Rank rank = *p.view->RankOf(Incarnation(id));
          const bool receives = std::any_of(p.transfers.begin(), p.transfers.end(),
                                            [&](const Transfer& t) { return t.to == rank; });
          SayPrepared(id, receives ? std::optional(Newest()) : std::nullopt);
        }
        for (const HandOver& order : Sent<HandOver>(id)) {
          if (order.channel->RankOf(Incarnation(id)) != Rank(1)) continue;
          if (!prepared_.insert({id, order.channel->generation, 0}).second) continue;
          asked = true;
          Say(id, HandedOver{order.channel->generation, {}});
        }
      }
    }
  }
  MemberState Complete(int64_t step, plan::IntervalSet accumulated = {}, uint64_t timeline = 1) {
    MemberState s;
    s.complete = true;
    s.position = {Timeline(timeline), Step(step), Attempt(0)};
    s.updates = step;
    s.accumulated = std::move(accumulated);
    return s;
  }
  void Answer(uint64_t id, MemberState state) {
    Say(id, SurveyAnswer{core->view()->generation, std::move(state), {}});
  }
  // A vote of the current view that everybody has seen; rank 0 brings the ledger line.
  VoteResult Decide(int64_t step, uint64_t timeline = 1) {
    VoteResult r;
    r.generation = core->view()->generation;
    r.at = {Timeline(timeline), Step(step - 1), Attempt(0)};
    r.count = options_.micro_batches;
    r.update = step;
    r.speeds.assign(core->view()->members.size(), 1000);
    return r;
  }
  LedgerLine LineOf(const VoteResult& r) {
    return {r.After().version(),
            r.generation,
            plan::Assign(plan::IntervalSet::Whole(options_.micro_batches), r.speeds),
            false,
            {}};
  }
  void Vote(int64_t step, uint64_t timeline = 1) {
    const VoteResult r = Decide(step, timeline);
    bool first = true;
    for (const Member& m : core->view()->members) {
      Report report{r, std::nullopt};
      if (first) report.line = LineOf(r);
      first = false;
      Say(m.incarnation.value(), report);
    }
  }
  // The first view of these workers, running.
  void Begin(const std::vector<uint64_t>& ids) {
    for (uint64_t id : ids) Join(id);
    ReadyAll();
  }

  template <typename T>
  std::vector<T> Sent(uint64_t id) const {
    std::vector<T> found;
    for (const CoordinatorOutput& output : all) {
      const auto* send = std::get_if<SendToWorker>(&output);
      if (send == nullptr || owners.at(send->registration) != id) continue;
      if (const auto* message = std::get_if<T>(send->message.get())) found.push_back(*message);
    }
    return found;
  }
  template <typename T>
  std::vector<T> Out() const {
    std::vector<T> found;
    for (const CoordinatorOutput& output : all) {
      if (const auto* o = std::get_if<T>(&output)) found.push_back(*o);
    }
    return found;
  }
  int64_t Count(const std::string& event) const {
    const std::vector<Event> events = Out<Event>();
    return std::count_if(events.begin(), events.end(),
                         [&](const Event& e) { return e.event == event; });
  }
  bool Told(const std::string& event) const { return Count(event) > 0; }
  std::vector<uint64_t> Members() const {
    std::vector<uint64_t> ids;
    if (core->view()) {
      for (const Member& m : core->view()->members) ids.push_back(m.incarnation.value());
    }
    return ids;
  }
  Form LastForm(uint64_t id) const { return Sent<Form>(id).back(); }
  void Forget() { all.clear(); }

  absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  std::unique_ptr<CoordinatorCore> core;
  CoordinatorOutputs all;
  RestoredState journal;
  std::map<uint64_t, Registration> registrations;
  std::map<Registration, uint64_t> owners;
  bool beating = true;  // connected workers send heartbeats

 private:
  const Options options_;
  uint64_t next_registration_ = 1;
  std::set<std::tuple<uint64_t, Generation, int64_t>> prepared_;  // by whom, number, round
};

// Surveys so far, as worker 1 was told.
inline size_t Revokes(const Cluster& c) { return c.Sent<Revoke>(1).size(); }

}  // namespace starling::membership::testing
