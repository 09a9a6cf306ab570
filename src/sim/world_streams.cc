// The control streams between workers and the coordinator: in order, late, cut, reset and stale.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/world.h"

namespace starling::sim {

using membership::ToString;
using membership::WorkerCore;

namespace {

// Messages in one direction or the other that a cut link of a small run may hold (I12).
constexpr size_t kMostStuck = 20'000;

}  // namespace

void World::ResetStream(int slot) {
  SimWorker* worker = Find(slot);
  if (worker == nullptr || worker->stream == 0) return;
  Trace(absl::StrCat("reset stream of ", worker->member.name));
  SimStream& stream = streams_.at(worker->stream);
  CloseEnd(stream, true);
  CloseEnd(stream, false);
  const Incarnation incarnation = worker->member.incarnation;
  worker->stream = 0;
  Schedule(incarnation, 1, [this](SimWorker& w) { ToWorkerCore(w, membership::StreamLost{}); });
  Connect(*worker, random_.Between(1000, 60'000));
}

void World::CutLink(int slot, bool cut) {
  if (cut ? !cut_.insert(slot).second : cut_.erase(slot) == 0) return;
  Trace(absl::StrCat(cut ? "cut " : "heal ", "link of w", slot));
  if (cut) return;
  for (auto& [id, stream] : streams_) {
    SimWorker& worker = *workers_.at(stream.worker);
    if (worker.slot != slot) continue;
    std::deque<std::function<void()>> stuck = std::move(stream.stuck);
    stream.stuck.clear();
    Micros delay = 1;
    for (auto& action : stuck) queue_.After(delay++, std::move(action));
  }
}

void World::Connect(SimWorker& worker, Micros delay) {
  const int64_t attempt = ++worker.connects;
  Schedule(worker.member.incarnation, delay, [this, attempt](SimWorker& w) {
    if (attempt != w.connects || w.stream != 0) return;
    if (!coordinator_ || ended_ || cut_.contains(w.slot)) {
      Connect(w, random_.Between(100'000, 1'000'000));
      return;
    }
    const uint64_t id = next_stream_++;
    SimStream& stream = streams_[id];
    stream.id = id;
    stream.registration = Registration(next_registration_++);
    stream.life = life_;
    stream_ids_[stream.registration] = id;
    stream.worker = w.member.incarnation;
    w.stream = id;
    ToWorkerCore(w, membership::StreamOpened{});
  });
}

void World::Heartbeat(Incarnation incarnation) {
  Schedule(incarnation, absl::ToInt64Microseconds(options_.protocol.heartbeat_interval()),
           [this](SimWorker& w) {
             if (w.stream != 0) {
               SendUp(w, membership::Heartbeat{
                             w.core->progress(), w.core->waiting(),
                             1e6 / static_cast<double>(options_.micro_batch * w.slowness)});
             }
             Heartbeat(w.member.incarnation);
           });
}

// In order, after the link's delay, and not at all while it is cut.
void World::Link(SimStream& stream, Micros time, std::function<void()> action) {
  const uint64_t id = stream.id;
  queue_.At(time, [this, id, action = std::move(action)]() mutable {
    const auto it = streams_.find(id);
    if (it == streams_.end()) return;
    const SimWorker& worker = *workers_.at(it->second.worker);
    if (cut_.contains(worker.slot) || !it->second.stuck.empty()) {
      if (it->second.stuck.size() > kMostStuck) Fail("I12: a link holds too many messages");
      it->second.stuck.push_back(std::move(action));
      return;
    }
    action();
  });
}

void World::SendUp(SimWorker& worker, membership::WorkerMessage message) {
  Hash(ToString(message));
  if (const auto* r = std::get_if<membership::Register>(&message)) {
    if (r->unsettled.size() > membership::kMaxUnsettled) Fail("I12: too many unsettled lines");
  }
  if (const auto* ready = std::get_if<membership::Ready>(&message)) {
    worker.ready = ready->generation;
  }
  if (worker.stream == 0) return;
  SimStream& stream = streams_.at(worker.stream);
  if (!std::holds_alternative<membership::Heartbeat>(message)) {
    Trace(absl::StrCat(worker.member.name, " -> ", ToString(message)));
  }
  stream.last_up = std::max(stream.last_up + 1,
                            queue_.now() + options_.latency + random_.Below(options_.latency + 1));
  const uint64_t id = stream.id;
  Link(stream, stream.last_up, [this, id, message = std::move(message)] {
    const auto it = streams_.find(id);
    if (it == streams_.end() || it->second.life != life_ || !coordinator_) return;
    // A driver may still hold what an ended stream had delivered.
    if (!it->second.coordinator_end && !random_.Chance(options_.stale_message)) return;
    ToCoordinator(membership::FromWorker{it->second.registration, message});
  });
}

void World::SendDown(SimStream& stream, membership::CoordinatorMessage message) {
  stream.last_down = std::max(
      stream.last_down + 1, queue_.now() + options_.latency + random_.Below(options_.latency + 1));
  const uint64_t id = stream.id;
  Link(stream, stream.last_down, [this, id, message = std::move(message)] {
    const auto it = streams_.find(id);
    if (it == streams_.end()) return;
    const bool stale = !it->second.worker_end;
    const bool repeats = std::holds_alternative<membership::Form>(message) ||
                         std::holds_alternative<membership::Revoke>(message) ||
                         std::holds_alternative<membership::Activate>(message);
    if (stale && !(repeats && random_.Chance(options_.stale_message))) return;
    // Buffers of a broken stream may be read long after the next one was opened.
    const Micros delay = stale && random_.Chance(0.5) ? random_.Between(1, 2'000'000) : 1;
    Schedule(it->second.worker, delay,
             [this, message](SimWorker& w) { DeliverToWorker(w, message); });
  });
}

void World::DeliverToWorker(SimWorker& worker, const membership::CoordinatorMessage& message) {
  if (const auto* form = std::get_if<membership::Form>(&message)) {
    Tell([&](Checker& c) { c.OnForm(*form->view); });
  } else if (const auto* prepare = std::get_if<membership::Prepare>(&message)) {
    Tell([&](Checker& c) { c.OnProposal(*prepare->view); });
  } else if (const auto* hand_over = std::get_if<membership::HandOver>(&message)) {
    Tell([&](Checker& c) { c.OnProposal(*hand_over->channel); });
  }
  if (const auto* form = std::get_if<membership::Form>(&message)) CheckCopies(worker, *form);
  const WorkerCore::Phase before = worker.core->phase();
  const Generation generation = worker.core->generation();
  ToWorkerCore(worker, membership::FromCoordinator{message});
  if (std::holds_alternative<membership::Activate>(message) &&
      before == WorkerCore::Phase::kReady && worker.alive &&
      worker.core->phase() == WorkerCore::Phase::kActive &&
      worker.core->generation() == generation) {
    const ActiveFact fact{worker.member.incarnation, worker.core->position(), worker.model.whole,
                          worker.model.chain};
    Tell([&](Checker& c) { c.OnActive(fact); });
    worker.active = true;
    if (!worker.stalled_at) return;
    const Micros stall = queue_.now() - *worker.stalled_at;
    worker.stalled_at.reset();
    stall_ = {stall_.sum + stall, std::max(stall_.longest, stall), stall_.count + 1};
  }
}

// I11: nobody is sent what it can make itself from the reduced sums of a vote that was decided.
void World::CheckCopies(const SimWorker& worker, const membership::Form& form) {
  const membership::MemberState& state = worker.core->state();
  if (!state.complete || !state.has_reduced || !worker.model.reduced ||
      !(last_view_ == *form.view) || form.view->generation <= worker.core->generation() ||
      form.view->generation <= worker.closed) {
    return;
  }
  const auto decided =
      decided_votes_.find({worker.model.reduced->generation, worker.model.reduced->at});
  if (decided == decided_votes_.end() || !(decided->second == form.position) ||
      !(worker.model.reduced->at == state.position)) {
    return;
  }
  const auto rank = form.view->RankOf(worker.member.incarnation);
  for (const membership::Transfer& t : form.transfers) {
    if (rank != t.to) continue;
    Fail(absl::StrCat("I11: ", worker.member.name, " is sent ", ToString(form.position),
                      ", which it could have followed from ", ToString(state.position)));
  }
}

// One end learns that the stream is over.
void World::CloseEnd(SimStream& stream, bool coordinator_end) {
  const uint64_t id = stream.id;
  if (coordinator_end) {
    stream.coordinator_end = false;
  } else {
    stream.worker_end = false;
  }
  const Micros time = queue_.now() + options_.latency + random_.Below(options_.latency + 1);
  if (coordinator_end) {  // … tells the worker
    Link(stream, std::max(time, stream.last_down + 1), [this, id] {
      SimStream& s = streams_.at(id);
      if (!s.worker_end) return;
      s.worker_end = false;
      Schedule(s.worker, 1, [this, id](SimWorker& w) {
        if (w.stream != id) return;
        w.stream = 0;
        ToWorkerCore(w, membership::StreamLost{});
        if (w.alive) Connect(w, random_.Between(10'000, 200'000));
      });
    });
  } else {
    Link(stream, std::max(time, stream.last_up + 1), [this, id] {
      SimStream& s = streams_.at(id);
      if (!s.coordinator_end || s.life != life_) return;
      s.coordinator_end = false;
      ToCoordinator(membership::StreamClosed{s.registration});
    });
  }
}

SimStream* World::StreamOf(Registration registration) {
  const auto it = stream_ids_.find(registration);
  return it == stream_ids_.end() ? nullptr : &streams_.at(it->second);
}

}  // namespace starling::sim
