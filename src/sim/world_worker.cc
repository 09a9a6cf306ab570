// The shell around a worker's core: what its outputs do to the modelled process, and how a command
// runs and completes.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/background.h"
#include "sim/communicator.h"
#include "sim/world.h"

namespace starling::sim {

using membership::Outcome;
using membership::ToString;

namespace {

constexpr uint64_t kSeedChain = 0x5eed;

uint64_t ChainOf(uint64_t chain, const Reduced& reduced) {
  return Mix64(Mix64(chain ^ reduced.bits) + reduced.generation.value());
}

}  // namespace

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
  } else if (const auto* beside = std::get_if<membership::RunBeside>(&output)) {
    Hash(1000 + beside->command.index());
    background_->Add(worker, beside->command);
  } else if (const auto* close = std::get_if<membership::Close>(&output)) {
    worker.closed = std::max(worker.closed, close->generation);
    worker.hold_votes_until = 0;
    if (worker.active) worker.stalled_at = queue_.now();
    worker.active = false;
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
    background_->Leave(worker.member.incarnation, close->generation, /*died=*/false);
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
    } else if (const auto* clear = std::get_if<membership::ClearAccumulator>(&command)) {
      worker.model.accumulator.clear();
      worker.model.accumulator_at.reset();
      std::erase_if(worker.model.held,
                    [&](const auto& entry) { return !(entry.second.at == clear->position); });
    } else if (const auto* merge = std::get_if<membership::MergeHeld>(&command)) {
      DoMerge(worker, *merge);
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
    if (std::holds_alternative<membership::Vote>(command) &&
        worker.hold_votes_until > queue_.now()) {
      const Generation g = std::get<membership::Vote>(command).generation;
      Schedule(worker.member.incarnation, worker.hold_votes_until - queue_.now(),
               [this, g, token = worker.command](SimWorker& w) {
                 if (!w.running || w.command != token || w.closed >= g) return;
                 communicator_->Arrive(w, *w.running);
               });
      return;
    }
    communicator_->Arrive(worker, command);
    return;
  }
  if (completion_delay) {
    if (const auto wanted = completion_delay(worker, command)) delay = *wanted;
  }
  Complete(worker, worker.command, delay, {});
}

void World::DoMerge(SimWorker& worker, const membership::MergeHeld& command) {
  Model& model = worker.model;
  for (Incarnation owner : command.owners) {
    const auto held = model.held.find(owner);
    if (held == model.held.end() || !(held->second.at == worker.core->position())) {
      Fail(absl::StrCat(
          "I7: ", worker.member.name, " merges an accumulator of ", ToHex(owner),
          held == model.held.end() ? " that it lacks" : " of " + ToString(held->second.at)));
      return;
    }
    model.accumulator_at = held->second.at;
    for (const auto& [index, times] : held->second.accumulator) model.accumulator[index] += times;
    model.held.erase(held);
  }
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
  recomputed_ += SeenBefore(command) ? 1 : 0;
}

bool World::SeenBefore(const membership::Compute& command) {
  constexpr size_t kKept = 4;
  const std::pair key(command.position.step, command.position.attempt);
  if (seen_.size() == kKept && key < seen_.begin()->first)
    return true;  // run again after a restore
  const auto [it, added] = seen_.try_emplace(key);
  if (added) it->second.resize(static_cast<size_t>(options_.protocol.micro_batches));
  auto seen = it->second[static_cast<size_t>(command.index)];
  const bool before = seen;
  seen = true;
  if (seen_.size() > kKept) seen_.erase(seen_.begin());
  return before;
}

void World::DoApply(SimWorker& worker, const membership::Apply& command) {
  Model& model = worker.model;
  const membership::VoteResult& result = command.result;
  AppliedFact fact{.worker = worker.member.incarnation, .result = result};
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
    fact.reduced = model.reduced;
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

}  // namespace starling::sim
