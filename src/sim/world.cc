#include "sim/world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/background.h"
#include "sim/communicator.h"

namespace starling::sim {

using membership::CoordinatorCore;
using membership::ToString;
using membership::WorkerCore;

WorldOptions SmallWorld(uint64_t seed, int workers, int64_t micro_batches, int64_t steps) {
  WorldOptions options;
  options.seed = seed;
  options.slots = workers;
  membership::Options& p = options.protocol;
  p.run_id = "sim";
  p.config_hash = 11;
  p.model_hash = 12;
  p.micro_batches = micro_batches;
  p.total_steps = steps;
  p.checkpoint_every = 7;
  p.digest_every = 5;
  p.evaluation = true;
  p.min_workers = 1;
  p.max_workers = 64;
  p.expected_workers = workers;
  p.detection = absl::Milliseconds(900);
  p.patience = absl::Seconds(4);
  p.stuck_after = absl::Seconds(8);
  p.gather_after = absl::Seconds(2);
  return options;
}

World::World(WorldOptions options)
    : options_(std::move(options)),
      random_(options_.seed),
      communicator_(std::make_unique<Communicator>(this)),
      background_(std::make_unique<Background>(this)) {
  facts_.micro_batches = options_.protocol.micro_batches;
  facts_.reachable_holder = [this] { return ReachableHolder(); };
  checkers_ = AllCheckers(&facts_);
}

World::~World() = default;

void World::Fail(const std::string& text) {
  if (!failure_.empty()) return;
  failure_ = absl::StrCat(text, " [seed ", options_.seed, ", at ", queue_.now() / 1000, " ms]");
  Trace(absl::StrCat("FAILURE ", failure_));
}

void World::Trace(const std::string& text) {
  if (trace) trace(absl::StrCat(queue_.now() / 1000, ".", queue_.now() % 1000, " ", text));
}

void World::Hash(const std::string& text) {
  uint64_t value = text.size();
  for (char c : text) value = value * 1099511628211u + static_cast<unsigned char>(c);
  Hash(value ^ static_cast<uint64_t>(queue_.now()));
}

// ---- processes ---------------------------------------------------------------------------------

SimWorker* World::StartWorker(int slot) {
  auto worker = std::make_unique<SimWorker>();
  worker->slot = slot;
  worker->member = {.incarnation = Incarnation(Mix64(next_incarnation_++)),
                    .name = absl::StrCat("w", slot),
                    .host = absl::StrCat("h", slot / 2),
                    .pid = static_cast<int64_t>(next_incarnation_),
                    .data_address = absl::StrCat("sim:", slot)};
  for (const SimWorker* older : lives_[slot]) {
    excused_.insert(
        older->member.incarnation);  // two lives of one name: the one that registers last stays
    excused_.insert(worker->member.incarnation);
  }
  membership::WorkerIdentity identity{.member = worker->member,
                                      .run_id = options_.protocol.run_id,
                                      .numerics_version = "sim-1",
                                      .config_hash = options_.protocol.config_hash,
                                      .model_hash = options_.protocol.model_hash,
                                      .data_hash = 13};
  worker->core = std::make_unique<WorkerCore>(options_.protocol, identity);
  SimWorker* raw = worker.get();
  const Incarnation incarnation = raw->member.incarnation;
  Trace(absl::StrCat("start ", raw->member.name, " ", ToHex(incarnation)));
  workers_[incarnation] = std::move(worker);
  lives_[slot].push_back(raw);
  Connect(*raw, random_.Between(1000, 50'000));
  Heartbeat(incarnation);
  return raw;
}

void World::Kill(int slot, bool noticed) {
  SimWorker* worker = Find(slot);
  if (worker == nullptr) return;
  Trace(absl::StrCat("kill ", worker->member.name));
  const membership::ProcessDied died{worker->member.host, worker->member.pid, "killed"};
  Die(*worker);
  if (noticed) queue_.After(random_.Between(100, 20'000), [this, died] { ToCoordinator(died); });
}

void World::Die(SimWorker& worker) {
  worker.alive = false;
  std::erase(lives_[worker.slot], &worker);
  worker.running.reset();
  worker.held.clear();
  communicator_->Leave(worker.member.incarnation, Generation(), /*died=*/true);
  background_->Leave(worker.member.incarnation, Generation(), /*died=*/true);
  if (worker.stream != 0) CloseEnd(streams_.at(worker.stream), /*coordinator_end=*/false);
}

void World::Exit(SimWorker& worker, int code, const std::string& reason) {
  Trace(absl::StrCat(worker.member.name, " exits ", code, ": ", reason));
  worker.exit_code = code;
  if (code == 70 || code == 78) Fail(absl::StrCat("exit ", code, ": ", reason));
  Die(worker);
}

void World::Pause(int slot) {
  if (SimWorker* worker = Find(slot)) {
    Trace(absl::StrCat("pause ", worker->member.name));
    worker->paused = true;
  }
}

void World::Resume(int slot) {
  std::vector<SimWorker*> lives = lives_[slot];
  std::sort(lives.begin(), lives.end(), [](const SimWorker* a, const SimWorker* b) {
    return a->member.incarnation < b->member.incarnation;
  });
  for (SimWorker* worker : lives) {
    if (!worker->paused) continue;
    Trace(absl::StrCat("resume ", worker->member.name));
    worker->paused = false;
    std::deque<std::function<void()>> held = std::move(worker->held);
    worker->held.clear();
    Micros delay = 1;
    for (auto& action : held) queue_.After(delay++, std::move(action));
  }
}

void World::Slow(int slot, int64_t times) {
  if (SimWorker* worker = Find(slot)) worker->slowness = times;
}

void World::Notice(int slot, Micros deadline) {
  SimWorker* worker = Find(slot);
  if (worker == nullptr) return;
  Trace(absl::StrCat("notice ", worker->member.name));
  Schedule(worker->member.incarnation, 1, [this, deadline](SimWorker& w) {
    ToWorkerCore(w, membership::LeaveNotice{deadline / 1000, "spot notice"});
  });
  Schedule(worker->member.incarnation, deadline,
           [this](SimWorker& w) { Exit(w, 75, "the notice ran out"); });
}

void World::CutPeers(int a, int b, bool cut) {
  for (int slot : {a, b}) {
    const std::string peer = absl::StrCat("w", slot == a ? b : a);
    for (SimWorker* worker : lives_[slot]) {
      if (cut) {
        worker->unreachable.insert(peer);
      } else {
        worker->unreachable.erase(peer);
      }
    }
  }
}

void World::HealPeers() {
  for (auto& [incarnation, worker] : workers_) worker->unreachable.clear();
}

void World::BreakCollective(int slot) {
  if (SimWorker* worker = Find(slot)) communicator_->Break(worker->member.incarnation);
}

SimWorker* World::Find(int slot) {
  const auto lives = lives_.find(slot);
  return lives == lives_.end() || lives->second.empty() ? nullptr : lives->second.back();
}

SimWorker* World::Find(Incarnation incarnation) {
  const auto it = workers_.find(incarnation);
  return it == workers_.end() || !it->second->alive ? nullptr : it->second.get();
}

std::vector<SimWorker*> World::Alive() {
  std::vector<SimWorker*> alive;
  for (auto& [incarnation, worker] : workers_) {
    if (worker->alive) alive.push_back(worker.get());
  }
  return alive;
}

// What a process does happens only while it lives and is not paused.
void World::Schedule(Incarnation incarnation, Micros delay, Process action) {
  queue_.After(delay, [this, incarnation, action = std::move(action)]() mutable {
    SimWorker* worker = Find(incarnation);
    if (worker == nullptr) return;
    if (worker->paused) {
      worker->held.push_back([this, incarnation, action = std::move(action)]() mutable {
        Schedule(incarnation, 0, std::move(action));
      });
      return;
    }
    action(*worker);
  });
}

// A member of the last journalled view, alive, awake and connected, with the newest state.
std::optional<std::string> World::ReachableHolder() {
  if (last_view_.members.empty()) return std::nullopt;
  for (const membership::Member& member : last_view_.members) {
    const SimWorker* worker = Find(member.incarnation);
    if (worker == nullptr || worker->paused || worker->stream == 0 || cut_.contains(worker->slot) ||
        excused_.contains(member.incarnation)) {
      continue;
    }
    const membership::MemberState& state = worker->core->state();
    const SimStream& stream = streams_.at(worker->stream);
    if (state.complete && state.position.timeline == last_timeline_ && stream.coordinator_end &&
        stream.worker_end && stream.life == life_) {
      return absl::StrCat(member.name, " of generation ", last_view_.generation.value(),
                          " is connected and complete at ", ToString(state.position));
    }
  }
  return std::nullopt;
}

// ---- time and looking --------------------------------------------------------------------------

void World::RunFor(Micros duration) {
  const Micros limit = queue_.now() + duration;
  while (failure_.empty() && queue_.RunOne(limit)) {
  }
}

bool World::RunUntil(const std::function<bool()>& done, Micros limit) {
  const Micros end = queue_.now() + limit;
  while (failure_.empty()) {
    if (done()) return true;
    if (!queue_.RunOne(end)) return false;
  }
  return false;
}

bool World::Running() const {
  if (!coordinator_ || ended_ || coordinator_->phase() != CoordinatorCore::Phase::kRunning)
    return false;
  const auto& view = coordinator_->view();
  size_t alive = 0;
  for (const auto& [incarnation, worker] : workers_) {
    if (!worker->alive) continue;
    ++alive;
    if (!view->RankOf(incarnation) || worker->core->phase() != WorkerCore::Phase::kActive ||
        worker->core->generation() != view->generation) {
      return false;
    }
  }
  return alive == view->members.size();
}

bool World::Told(const std::string& event) const {
  return std::any_of(told_.begin(), told_.end(),
                     [&](const membership::Event& e) { return e.event == event; });
}

void World::CheckRest() {
  if (!coordinator_) return;
  const Version settled = coordinator_->GetStatus(queue_.time()).settled;
  Tell([&](Checker& c) { c.OnRest(settled); });
}

}  // namespace starling::sim
