#include "sim/world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/communicator.h"
#include "starling/checkpoint/manifest.h"

namespace starling::sim {

using membership::CoordinatorCore;
using membership::JournalRecord;
using membership::Outcome;
using membership::ToString;
using membership::WorkerCore;

namespace {

constexpr uint64_t kSeedChain = 0x5eed;
// The tail of inputs, outboxes and tables that a small run may reach (I12).
constexpr size_t kMostStuck = 20'000;

uint64_t ChainOf(uint64_t chain, const Reduced& reduced) {
  for (const auto& [index, times] : reduced.sum) {
    chain = Mix64(chain ^ Mix64(static_cast<uint64_t>(index) * 64 + static_cast<uint64_t>(times)));
  }
  return Mix64(chain + reduced.generation.value());
}

}  // namespace

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
      communicator_(std::make_unique<Communicator>(this)) {
  facts_.micro_batches = options_.protocol.micro_batches;
  facts_.reachable_holder = [this] { return ReachableHolder(); };
  facts_.alive = [this](Incarnation i) { return Find(i) != nullptr; };
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
  for (const auto& [incarnation, older] : workers_) {
    if (older->slot != slot || !older->alive) continue;
    excused_.insert(incarnation);  // two lives of one name: the one that registers last stays
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
  worker.running.reset();
  worker.held.clear();
  communicator_->Leave(worker.member.incarnation, Generation(), /*died=*/true);
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
  for (auto& [incarnation, worker] : workers_) {
    if (worker->slot != slot || !worker->alive || !worker->paused) continue;
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
  Trace(absl::StrCat(cut ? "cut " : "heal ", "link of w", slot));
  if (cut) {
    cut_.insert(slot);
    return;
  }
  cut_.erase(slot);
  for (auto& [id, stream] : streams_) {
    SimWorker& worker = *workers_.at(stream.worker);
    if (worker.slot != slot) continue;
    std::deque<std::function<void()>> stuck = std::move(stream.stuck);
    stream.stuck.clear();
    Micros delay = 1;
    for (auto& action : stuck) queue_.After(delay++, std::move(action));
  }
}

void World::CutPeers(int a, int b, bool cut) {
  for (auto& [incarnation, worker] : workers_) {
    if (worker->slot != a && worker->slot != b) continue;
    const std::string peer = absl::StrCat("w", worker->slot == a ? b : a);
    if (cut) {
      worker->unreachable.insert(peer);
    } else {
      worker->unreachable.erase(peer);
    }
  }
}

void World::BreakCollective(int slot) {
  if (SimWorker* worker = Find(slot)) communicator_->Break(worker->member.incarnation);
}

SimWorker* World::Find(int slot) {
  SimWorker* newest = nullptr;
  for (auto& [incarnation, worker] : workers_) {
    if (worker->slot == slot && worker->alive &&
        (newest == nullptr || newest->member.pid < worker->member.pid)) {
      newest = worker.get();
    }
  }
  return newest;
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

// ---- the worker's shell ------------------------------------------------------------------------

void World::ToWorkerCore(SimWorker& worker, const membership::WorkerInput& input) {
  membership::WorkerOutputs outputs;
  worker.core->Receive(input, &outputs);
  for (const membership::WorkerOutput& output : outputs) {
    if (!worker.alive || !failure_.empty()) return;
    Do(worker, output);
    if (after_worker_output) after_worker_output(worker, output);
  }
}

void World::Do(SimWorker& worker, const membership::WorkerOutput& output) {
  Hash(worker.member.incarnation.value() ^ output.index());
  if (const auto* run = std::get_if<membership::Run>(&output)) {
    Hash(run->command.index());
    worker.running = run->command;
    worker.command = ++next_token_;
    Execute(worker, run->command);
  } else if (const auto* close = std::get_if<membership::Close>(&output)) {
    worker.closed = std::max(worker.closed, close->generation);
    const bool network =
        worker.running && (std::holds_alternative<membership::Connect>(*worker.running) ||
                           std::holds_alternative<membership::CopyState>(*worker.running) ||
                           std::holds_alternative<membership::Reduce>(*worker.running) ||
                           std::holds_alternative<membership::Vote>(*worker.running));
    if (network &&
        !(worker.finishing == worker.command && random_.Chance(options_.late_completion))) {
      Complete(worker, worker.command, random_.Between(50, 500),
               {.ok = false, .aborted = true, .reason = close->reason});
    }
    communicator_->Leave(worker.member.incarnation, close->generation, /*died=*/false);
  } else if (const auto* send = std::get_if<membership::SendToCoordinator>(&output)) {
    SendUp(worker, send->message);
  } else if (const auto* exit = std::get_if<membership::ExitProcess>(&output)) {
    Exit(worker, exit->exit_code, exit->reason);
  }
}

void World::Complete(SimWorker& worker, uint64_t command, Micros delay,
                     membership::Completion done) {
  if (!worker.running || worker.command != command) return;
  worker.finishing = command;
  // A later word on the same command replaces an earlier one.
  const uint64_t token = ++next_token_;
  worker.token = token;
  Schedule(worker.member.incarnation, delay,
           [this, command, token, done = std::move(done)](SimWorker& w) {
             if (!w.running || w.command != command || w.token != token) {
               return;
             }
             const membership::Command what = std::move(*w.running);
             w.running.reset();
             Finish(w, what, done);
           });
}

void World::Finish(SimWorker& worker, const membership::Command& command,
                   membership::Completion done) {
  if (done.ok) {
    if (const auto* compute = std::get_if<membership::Compute>(&command)) {
      DoCompute(worker, *compute);
    } else if (const auto* apply = std::get_if<membership::Apply>(&command)) {
      DoApply(worker, *apply);
    } else if (const auto* load = std::get_if<membership::LoadCheckpoint>(&command)) {
      DoLoad(worker, *load, &done);
    } else if (std::holds_alternative<membership::InitializeFromSeed>(command)) {
      worker.model = Model{.whole = true, .chain = kSeedChain};
    } else if (std::holds_alternative<membership::ClearAccumulator>(command)) {
      worker.model.accumulator.clear();
      worker.model.accumulator_at.reset();
    } else if (std::holds_alternative<membership::CopyState>(command)) {
      worker.model.whole = true;
    } else if (const auto* snapshot = std::get_if<membership::Snapshot>(&command)) {
      DoSnapshot(worker, *snapshot);
    } else if (std::holds_alternative<membership::Evaluate>(command)) {
      done.evaluation.masked = 1;
    }
  }
  ToWorkerCore(worker, done);
}

void World::Execute(SimWorker& worker, const membership::Command& command) {
  const Micros usual = options_.micro_batch * worker.slowness;
  Micros delay = random_.Between(50, 300);
  if (std::holds_alternative<membership::Compute>(command)) {
    delay = usual + random_.Below(usual / 4 + 1);
  } else if (std::holds_alternative<membership::LoadCheckpoint>(command)) {
    delay = random_.Between(5'000, 200'000);
    worker.model.whole = false;
  } else if (std::holds_alternative<membership::InitializeFromSeed>(command)) {
    worker.model.whole = false;
  } else if (std::holds_alternative<membership::Evaluate>(command)) {
    delay = usual;
  } else if (std::holds_alternative<membership::Connect>(command) ||
             std::holds_alternative<membership::CopyState>(command) ||
             std::holds_alternative<membership::Reduce>(command) ||
             std::holds_alternative<membership::Vote>(command)) {
    communicator_->Arrive(worker, command);
    return;
  }
  if (completion_delay) {
    if (const auto wanted = completion_delay(worker, command)) delay = *wanted;
  }
  Complete(worker, worker.command, delay, {});
}

void World::DoCompute(SimWorker& worker, const membership::Compute& command) {
  Model& model = worker.model;
  if (model.accumulator_at && !(*model.accumulator_at == command.position)) {
    Fail(absl::StrCat("I7: ", worker.member.name, " adds to an accumulator of ",
                      ToString(*model.accumulator_at), " at ", ToString(command.position)));
  }
  if (!model.whole) {
    Fail(absl::StrCat("I8: ", worker.member.name, " computes with an incomplete state"));
  }
  model.accumulator_at = command.position;
  ++model.accumulator[command.index];
  ++computed_;
}

void World::DoApply(SimWorker& worker, const membership::Apply& command) {
  Model& model = worker.model;
  const membership::VoteResult& result = command.result;
  AppliedFact fact{.worker = worker.member.incarnation,
                   .result = result,
                   .sum = {},
                   .chain_before = model.chain};
  if (!model.whole) {
    Fail(absl::StrCat("I8: ", worker.member.name, " applies to an incomplete state"));
  }
  if (result.outcome == Outcome::kCommit) {
    if (!model.reduced || model.reduced->generation != result.generation ||
        !(model.reduced->at == result.at)) {
      Fail(absl::StrCat("I8: ", worker.member.name, " applies the vote of generation ",
                        result.generation.value(), " after ", ToString(result.at),
                        " without its reduced sums"));
      return;
    }
    fact.sum = model.reduced->sum;
    model.chain = ChainOf(model.chain, *model.reduced);
    model.updates = result.update;
  } else if (result.outcome == Outcome::kSkip) {
    model.chain = Mix64(model.chain + 7);
  }
  fact.chain_after = model.chain;
  decided_ = std::max(decided_, result.After().step.value());
  Tell([&](Checker& c) { c.OnApplied(fact); });
}

void World::DoLoad(SimWorker& worker, const membership::LoadCheckpoint& command,
                   membership::Completion* done) {
  const auto it = disk_.find(command.source.checkpoint);
  if (it == disk_.end() || !it->second.readable || it->second.version != command.source.version) {
    done->ok = false;
    done->reason = "shard 0: wrong CRC32C";
    return;
  }
  worker.model = Model{.whole = true, .chain = it->second.chain, .updates = it->second.updates};
  done->updates = it->second.updates;
}

void World::DoSnapshot(SimWorker& worker, const membership::Snapshot& command) {
  if (command.updates != worker.model.updates) {
    Fail(absl::StrCat("I8: ", worker.member.name, " snapshots ", command.updates,
                      " updates and has made ", worker.model.updates));
  }
  const DiskPart part{worker.model.chain, worker.model.updates};
  const bool ok = !random_.Chance(options_.part_failure);
  Schedule(worker.member.incarnation, random_.Between(1000, 300'000),
           [this, command, part, ok](SimWorker& w) {
             if (ok) parts_[{command.version, command.generation, command.rank}] = part;
             ToWorkerCore(w,
                          membership::PartDone{{command.version, command.generation, command.rank,
                                                command.updates, ok, ok ? "{}" : "disk full"}});
           });
}

// ---- control streams ---------------------------------------------------------------------------

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
    Schedule(it->second.worker, 1, [this, message](SimWorker& w) { DeliverToWorker(w, message); });
  });
}

void World::DeliverToWorker(SimWorker& worker, const membership::CoordinatorMessage& message) {
  if (const auto* form = std::get_if<membership::Form>(&message)) {
    Tell([&](Checker& c) { c.OnForm(*form->view); });
  }
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
  for (auto it = streams_.rbegin(); it != streams_.rend(); ++it) {
    if (it->second.life == life_ && it->second.registration == registration) return &it->second;
  }
  return nullptr;
}

// ---- the coordinator's driver ------------------------------------------------------------------

void World::StartCoordinator() {
  if (coordinator_) return;
  const auto content = membership::DecodeJournal(journal_);
  if (!content.ok()) {
    Fail(absl::StrCat("the journal cannot be read: ", std::string(content.status().message())));
    return;
  }
  journal_.resize(content->valid_bytes);
  membership::RestoredState restored = content->state;
  for (const auto& [folder, checkpoint] : disk_) {
    const bool known = std::any_of(restored.checkpoints.begin(), restored.checkpoints.end(),
                                   [&](const auto& c) { return c.folder == folder; });
    if (!known && !restored.bad_checkpoints.contains(folder)) {
      restored.checkpoints.push_back({folder, checkpoint.version, true});
    }
  }
  if (!ledger_.empty()) restored.ledger_last = ledger_.back().version;
  ++life_;
  next_registration_ = 1;
  outputs_left_.reset();
  ended_.reset();
  Trace(absl::StrCat("coordinator starts, life ", life_));
  coordinator_ = std::make_unique<CoordinatorCore>(
      options_.protocol, std::move(restored), queue_.time(),
      [](Generation g) { return absl::StrCat("secret-", g.value()); });
  ToCoordinator(membership::Wake{});
}

void World::KillCoordinator() {
  if (!coordinator_) return;
  Trace("coordinator dies");
  coordinator_.reset();
  coordinator_paused_ = false;
  backlog_.clear();
  for (auto& [id, stream] : streams_) {
    if (stream.life == life_ && stream.coordinator_end) CloseEnd(stream, true);
  }
}

void World::PauseCoordinator(Micros duration) {
  if (!coordinator_ || coordinator_paused_) return;
  Trace("coordinator pauses");
  coordinator_paused_ = true;
  const uint64_t life = life_;
  queue_.After(duration, [this, life] {
    if (life != life_ || !coordinator_) return;
    coordinator_paused_ = false;
    std::deque<membership::CoordinatorInput> backlog = std::move(backlog_);
    backlog_.clear();
    ToCoordinator(membership::Wake{});
    for (const auto& input : backlog) ToCoordinator(input);
  });
}

void World::LoseJournal() {
  Trace("the journal is lost");
  journal_.clear();
  Tell([](Checker& c) { c.OnJournalLost(); });
}

void World::SpoilNewestCheckpoint() {
  DiskCheckpoint* newest = nullptr;
  for (auto& [folder, checkpoint] : disk_) {
    if (newest == nullptr || newest->version < checkpoint.version) newest = &checkpoint;
  }
  if (newest != nullptr) newest->readable = false;
}

void World::Request(membership::UserRequest request) { ToCoordinator(std::move(request)); }

void World::ToCoordinator(const membership::CoordinatorInput& input) {
  if (!coordinator_ || ended_) return;
  if (coordinator_paused_) {
    backlog_.push_back(input);
    return;
  }
  membership::CoordinatorOutputs outputs;
  coordinator_->Receive(input, queue_.time(), &outputs);
  const uint64_t life = life_;
  for (const membership::CoordinatorOutput& output : outputs) {
    if (outputs_left_ && (*outputs_left_)-- <= 0) {
      outputs_left_.reset();
      if (const auto* persist = std::get_if<membership::Persist>(&output)) {
        const std::string frame = EncodeRecord(persist->record);  // torn in the middle
        journal_.append(frame, 0,
                        static_cast<size_t>(random_.Below(static_cast<int64_t>(frame.size()))));
      }
      KillCoordinator();
      return;
    }
    Do(output);
    if (after_coordinator_output) after_coordinator_output(output);
    if (!coordinator_ || life != life_ || !failure_.empty()) return;
  }
  ScheduleWake();
}

void World::ScheduleWake() {
  const absl::Time next = coordinator_->NextWake();
  if (next == absl::InfiniteFuture()) return;
  const uint64_t wake = ++wake_;
  const uint64_t life = life_;
  queue_.At(std::max(queue_.now() + 1, absl::ToUnixMicros(next)), [this, wake, life] {
    if (wake == wake_ && life == life_ && coordinator_) ToCoordinator(membership::Wake{});
  });
}

void World::Do(const membership::CoordinatorOutput& output) {
  Hash(output.index() * 977);
  if (const auto* persist = std::get_if<membership::Persist>(&output)) {
    journal_ += EncodeRecord(persist->record);
    Hash(EncodeRecord(persist->record));
    Tell([&](Checker& c) { c.OnRecord(persist->record); });
    if (const auto* form = std::get_if<membership::FormRecord>(&persist->record)) {
      last_view_ = form->view;
      last_timeline_ = form->position.timeline;
      ++forms_;
      if (form->forked_from) ++restores_;
      Trace(absl::StrCat("journals generation ", form->view.generation.value(), " of ",
                         form->view.members.size(), " at ", ToString(form->position), ": ",
                         form->reason));
    }
  } else if (const auto* send = std::get_if<membership::SendToWorker>(&output)) {
    Hash(ToString(send->message));
    if (SimStream* stream = StreamOf(send->registration)) {
      if (!std::holds_alternative<membership::Settled>(send->message)) {
        Trace(absl::StrCat("-> ", workers_.at(stream->worker)->member.name, " ",
                           ToString(send->message)));
      }
      SendDown(*stream, send->message);
    }
  } else if (const auto* close = std::get_if<membership::CloseStream>(&output)) {
    if (SimStream* stream = StreamOf(close->registration)) CloseEnd(*stream, true);
  } else if (const auto* ledger = std::get_if<membership::WriteLedger>(&output)) {
    ledger_.push_back(ledger->line);
    Trace(absl::StrCat("ledger ", ToString(ledger->line.version), " of generation ",
                       ledger->line.generation.value()));
    Tell([&](Checker& c) { c.OnLedger(ledger->line); });
  } else if (const auto* event = std::get_if<membership::Event>(&output)) {
    Trace(absl::StrCat("event ", event->event, " ", event->worker, " ", event->reason));
    told_.push_back(*event);
    if (event->event == "diverged") Fail(absl::StrCat("I8: ", event->reason));
  } else if (const auto* manifest = std::get_if<membership::WriteManifest>(&output)) {
    WriteManifest(*manifest);
  } else if (const auto* ended = std::get_if<membership::Ended>(&output)) {
    Trace(absl::StrCat("ended ", ended->exit_code, ": ", ended->reason));
    ended_ = *ended;
    for (auto& [id, stream] : streams_) {
      if (stream.life == life_ && stream.coordinator_end) CloseEnd(stream, true);
    }
    if (ended->exit_code == 70) Fail(absl::StrCat("exit 70: ", ended->reason));
  }
}

void World::WriteManifest(const membership::WriteManifest& manifest) {
  const bool ok = !random_.Chance(options_.manifest_failure);
  std::optional<DiskPart> first;
  for (size_t r = 0; ok && r < manifest.parts.size(); ++r) {
    const auto part =
        parts_.find({manifest.version, manifest.generation, Rank(static_cast<int32_t>(r))});
    if (part == parts_.end()) {
      Fail(absl::StrCat("I11: the manifest of ", ToString(manifest.version), " lists part ", r,
                        ", which is not durable"));
      return;
    }
    if (!first) first = part->second;
    if (first->chain != part->second.chain || first->updates != manifest.updates) {
      Fail(absl::StrCat("I8: parts of ", ToString(manifest.version), " hold different bits"));
    }
  }
  const std::string folder = checkpoint::FolderName(manifest.version);
  if (ok && first) {
    disk_[folder] = {manifest.version, first->chain, manifest.updates, true};
  }
  const uint64_t life = life_;
  queue_.After(random_.Between(500, 30'000), [this, folder, version = manifest.version, ok, life] {
    if (life != life_) return;
    ToCoordinator(membership::ManifestWritten{folder, version, ok,
                                              ok ? "" : "no space left on device"});
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
