// Named scenarios of planned changes on the simulated cluster: they are prepared while all train,
// and nothing is computed twice, also in the middle of a long step.
#include <catch2/catch_test_macros.hpp>
#include <set>

#include "sim/scenario.h"

namespace starling::sim {
namespace {

using membership::CoordinatorOutput;
using membership::FormRecord;
using membership::HandedOver;
using membership::Persist;
using membership::Prepare;
using membership::PrepareView;
using membership::Revoke;
using membership::SendAccumulator;
using membership::UserRequest;
using membership::WorkerCore;
using membership::WorkerOutput;

constexpr int64_t kMany = 60;  // micro-batches: a step takes long

// A step of three workers takes 20 to 25 micro-batches' time.
WorldOptions LongSteps(int workers, int64_t steps) {
  WorldOptions options = Usual(workers, steps);
  options.protocol.micro_batches = kMany;
  return options;
}

bool Copies(const WorkerOutput& output) {
  const auto* run = std::get_if<membership::Run>(&output);
  return run != nullptr && std::holds_alternative<membership::CopyState>(run->command);
}

// w2 of {w0, w1, w2} is told to leave in the middle of step 3.
void BeginDrain(World& world) {
  Begin(world);
  REQUIRE(ToStep(world, 2));
  world.RunFor(200 * kMs);
  world.Notice(2, 20 * kSecond);
}

}  // namespace

TEST_CASE("planned: all compute until a newcomer's state is there, and nothing twice", "[sim]") {
  WorldOptions options = LongSteps(2, 8);
  options.copy = 60 * kMs;
  World world(options);
  Begin(world);
  REQUIRE(ToStep(world, 2));
  world.RunFor(200 * kMs);
  int64_t copies = 0, asked_at = -1, revoked_at = -1;
  world.after_worker_output = [&](SimWorker&, const WorkerOutput& output) {
    copies += Copies(output) ? 1 : 0;
  };
  world.after_coordinator_output = [&](const CoordinatorOutput& output) {
    if (asked_at < 0 && Message<Prepare>(output) != nullptr) asked_at = world.computed();
    if (revoked_at >= 0 || Message<Revoke>(output) == nullptr) return;
    revoked_at = world.computed();
    for (int slot : {0, 1}) {
      const SimWorker& worker = *world.Find(slot);
      CHECK(worker.core->phase() == WorkerCore::Phase::kActive);
      REQUIRE(worker.running);
      CHECK(std::holds_alternative<membership::Compute>(*worker.running));
    }
  };
  world.StartWorker(2);
  REQUIRE(ToRunning(world, 3));
  CHECK(revoked_at >= asked_at + 2);  // both went on
  FinishAll(world);
  CHECK(copies == 0);
  CHECK(world.forms() == 2);
  CHECK(world.computed() == 8 * kMany);
}

TEST_CASE("planned: one worker takes another's place in the middle of a step", "[sim]") {
  World world(LongSteps(3, 6));
  Begin(world);
  REQUIRE(ToStep(world, 2));
  world.StartWorker(7);
  world.Notice(1, 20 * kSecond);
  REQUIRE(world.RunUntil([&] { return world.Find(1) == nullptr; }, 10 * kSecond));
  REQUIRE(ToRunning(world, 3));
  FinishAll(world);
  CHECK(world.computed() == 6 * kMany);
}

TEST_CASE("planned: a drain in the middle of a long step computes nothing twice", "[sim]") {
  WorldOptions options = LongSteps(3, 4);
  options.micro_batch = kSecond;
  World world(options);
  Begin(world);
  REQUIRE(ToStep(world, 1));
  world.RunFor(7 * kSecond);
  SimWorker* leaver = world.Find(2);
  world.Notice(2, 5 * kSecond);
  REQUIRE(ToRunning(world, 2));
  CHECK(leaver->exit_code == 75);
  CHECK(world.Told("drained"));
  FinishAll(world);
  CHECK(world.computed() == 4 * kMany);
}

TEST_CASE("planned: two that leave at once hand over both", "[sim]") {
  World world(LongSteps(4, 6));
  Begin(world);
  REQUIRE(ToStep(world, 2));
  world.RunFor(150 * kMs);
  world.Request({.id = 1, .kind = UserRequest::Kind::kResize, .target_workers = 2});
  REQUIRE(ToRunning(world, 2));
  FinishAll(world);
  CHECK(world.forms() == 2);
  CHECK(world.computed() == 6 * kMany);
}

TEST_CASE("planned: a copy that takes longer than a step is made while the votes are held",
          "[sim]") {
  WorldOptions options = Usual(2, 60);  // steps of some 150 ms
  options.copy = 800 * kMs;             // 200 to 1600 ms
  World world(options);
  Begin(world);
  REQUIRE(ToStep(world, 5));
  int64_t copies = 0, rounds = 0;
  bool held = false;
  world.after_worker_output = [&](SimWorker& worker, const WorkerOutput& output) {
    copies += Copies(output) ? 1 : 0;
    const auto* prepare = Beside<PrepareView>(output);
    if (prepare == nullptr || worker.slot != 2) return;
    ++rounds;
    held = held || prepare->hold;
  };
  world.StartWorker(2);
  REQUIRE(ToRunning(world, 3));
  CHECK(rounds == 3);
  CHECK(held);
  CHECK_FALSE(world.Told("join_put_off"));
  FinishAll(world);
  CHECK(copies == 0);
  CHECK(world.computed() == 60 * 12);
}

TEST_CASE("planned: a copy that takes longer than votes may be held disturbs nobody", "[sim]") {
  WorldOptions options = Usual(2, 100);
  options.copy = 800 * kMs;
  options.protocol.join_stall_max = absl::Milliseconds(20);
  World world(options);
  Begin(world);
  REQUIRE(ToStep(world, 5));
  world.StartWorker(2);
  REQUIRE(world.RunUntil([&] { return world.Told("join_put_off"); }, 20 * kSecond));
  const int64_t at = world.decided();
  CHECK(at > 10);
  REQUIRE(ToStep(world, at + 10, 3 * kSecond));
  FinishAll(world);
  CHECK(world.forms() == 1);
  CHECK(world.computed() == 100 * 12);
  int64_t put_off = 0;
  for (const membership::Event& event : world.events()) put_off += event.event == "join_put_off";
  CHECK(put_off >= 2);
}

TEST_CASE("planned: a leaver that dies while it hands over costs what it had", "[sim]") {
  WorldOptions options = LongSteps(3, 6);
  options.copy = 100 * kMs;
  World world(options);
  int64_t lost = -1;
  world.after_worker_output = [&](SimWorker& worker, const WorkerOutput& output) {
    const auto* sent = Beside<SendAccumulator>(output);
    if (sent == nullptr || lost >= 0) return;
    lost = sent->held.micro_batches.count();
    world.queue().After(10 * kMs, [&world, slot = worker.slot] { world.Kill(slot); });
  };
  BeginDrain(world);
  REQUIRE(world.RunUntil([&] { return world.Find(2) == nullptr; }, 5 * kSecond));
  REQUIRE(ToRunning(world, 2));
  FinishAll(world);
  CHECK(lost > 0);
  CHECK(world.Told("lost"));
  CHECK(world.computed() == 6 * kMany + lost);
}

TEST_CASE("planned: a receiver that dies with a leaver's accumulator costs both shares at most",
          "[sim]") {
  Micros delay = 0;
  SECTION("before its word arrives") { delay = 1; }
  SECTION("while the others are asked") { delay = 2 * kMs; }
  SECTION("in the new view") { delay = 60 * kMs; }
  World world(LongSteps(3, 6));
  bool killed = false;
  world.after_worker_output = [&](SimWorker& worker, const WorkerOutput& output) {
    if (killed || Message<HandedOver>(output) == nullptr) return;
    killed = true;
    world.queue().After(delay, [&world, slot = worker.slot] { world.Kill(slot); });
  };
  BeginDrain(world);
  REQUIRE(world.RunUntil([&] { return killed; }, 5 * kSecond));
  REQUIRE(ToRunning(world, 1));
  FinishAll(world);
  CHECK(world.computed() > 6 * kMany);
  CHECK(world.computed() <= 6 * kMany + 2 * 25);
}

TEST_CASE("planned: a coordinator that dies between hand-over and Form", "[sim]") {
  World world(LongSteps(3, 6));
  bool handed = false, crashed = false, recorded = false;
  SECTION("before the view is journalled") {}
  SECTION("when it is, and nobody was told") { recorded = true; }
  world.after_worker_output = [&](SimWorker&, const WorkerOutput& output) {
    handed = handed || Message<HandedOver>(output) != nullptr;
  };
  world.after_coordinator_output = [&](const CoordinatorOutput& output) {
    if (!handed || crashed) return;
    const auto* persist = std::get_if<Persist>(&output);
    const bool now = recorded
                         ? persist != nullptr && std::holds_alternative<FormRecord>(persist->record)
                         : Message<Revoke>(output) != nullptr;
    if (!now) return;
    crashed = true;
    world.KillCoordinator();
  };
  BeginDrain(world);
  REQUIRE(world.RunUntil([&] { return crashed; }, 5 * kSecond));
  world.RunFor(200 * kMs);
  world.StartCoordinator();
  REQUIRE(ToRunning(world, 2));
  FinishAll(world);
  CHECK(world.restores() == 0);
  if (recorded) {
    CHECK(world.computed() == 6 * kMany);
  } else {  // without a coordinator the leaver computed on, after what it had handed over
    CHECK(world.computed() <= 6 * kMany + 25);
  }
}

TEST_CASE("planned: a leaver whose stream breaks while it hands over leaves all the same",
          "[sim]") {
  WorldOptions options = LongSteps(3, 6);
  options.copy = 100 * kMs;
  World world(options);
  bool reset = false;
  world.after_worker_output = [&](SimWorker& worker, const WorkerOutput& output) {
    if (reset || Beside<SendAccumulator>(output) == nullptr) return;
    reset = true;
    world.queue().After(5 * kMs, [&world, slot = worker.slot] { world.ResetStream(slot); });
  };
  BeginDrain(world);
  SimWorker* leaver = world.Find(2);
  REQUIRE(ToRunning(world, 2));
  CHECK(reset);
  CHECK(leaver->exit_code == 75);
  FinishAll(world);
  CHECK(world.computed() <= 6 * kMany + 25);
}

TEST_CASE("planned: whoever joins and leaves in order, nothing is computed twice", "[sim]") {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    Random random(seed);
    const int workers = static_cast<int>(random.Between(2, 5));
    const int64_t many = random.Between(8, kMany), steps = random.Between(8, 20);
    WorldOptions options = SmallWorld(seed, workers, many, steps);
    options.copy = random.Between(1, 80) * kMs;
    options.repeat = 0;
    World world(options);
    Begin(world);
    int next = workers;
    std::set<const SimWorker*> leaving;
    while (!world.ended() && world.failure().empty()) {
      world.RunFor(random.Between(1, 800) * kMs);
      if (!world.Running() || world.decided() + 2 >= steps) continue;
      std::vector<SimWorker*> alive = world.Alive();
      std::erase_if(alive, [&](const SimWorker* worker) { return leaving.contains(worker); });
      const int leave = static_cast<int>(random.Between(0, 2));
      for (int i = 0; i < leave && alive.size() > 1; ++i) {
        const auto at = static_cast<size_t>(random.Below(static_cast<int64_t>(alive.size())));
        world.Notice(alive[at]->slot, 60 * kSecond);
        leaving.insert(alive[at]);
        alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(at));
      }
      for (int64_t join = random.Between(0, 2); join > 0; --join) world.StartWorker(next++);
      world.RunUntil([&] { return world.Running() || world.ended(); }, 60 * kSecond);
    }
    INFO(world.failure());
    INFO("seed " << seed);
    REQUIRE(world.ended());
    CHECK(world.ended()->exit_code == 0);
    world.CheckRest();
    CHECK(world.failure().empty());
    CHECK(world.restores() == 0);
    CHECK(world.computed() == steps * many);
  }
}

}  // namespace starling::sim
