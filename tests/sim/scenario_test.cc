// Named scenarios on the simulated cluster: the usual life of a run, and one for each hole that an
// earlier version of the protocol had (protocol.md §11). The checkers watch all of them.
#include "sim/scenario.h"

#include <catch2/catch_test_macros.hpp>
#include <set>

#include "absl/strings/match.h"

namespace starling::sim {
namespace {

using membership::Apply;
using membership::Close;
using membership::Command;
using membership::Form;
using membership::FormRecord;
using membership::Outcome;
using membership::Persist;
using membership::SendToWorker;
using membership::SurveyAnswer;
using membership::UserRequest;
using membership::Vote;
using membership::VoteResult;
using membership::WorkerCore;
using membership::WorkerOutput;

}  // namespace

TEST_CASE("life: three workers train, one is killed, another joins, the run ends", "[sim]") {
  World world(Usual(3, 60));
  Begin(world);
  REQUIRE(ToStep(world, 20));
  world.Kill(1, /*noticed=*/true);
  const Micros killed = world.queue().now();
  const int64_t at = world.decided();
  REQUIRE(ToStep(world, at + 1));
  // The next step comes within one undisturbed step of the two survivors and 500 ms.
  CHECK(world.queue().now() - killed < 6 * 25 * kMs + 500 * kMs);
  REQUIRE(ToStep(world, 40));
  world.StartWorker(1);
  REQUIRE(ToRunning(world, 3));
  CHECK(world.Told("joined"));
  FinishAll(world);
  CHECK(world.restores() == 0);
  for (SimWorker* worker : world.Alive()) FAIL(worker->member.name << " did not leave");
}

TEST_CASE("life: a loss costs only the work that was lost", "[sim]") {
  World world(Usual(3, 30));
  Begin(world);
  REQUIRE(ToStep(world, 10));
  world.Kill(2, true);
  FinishAll(world);
  CHECK(world.computed() >= 30 * 12);
  CHECK(world.computed() <= 30 * 12 + 5);  // what one worker had of one step
}

TEST_CASE("life: down to one worker and up again", "[sim]") {
  World world(Usual(3, 60));
  Begin(world);
  REQUIRE(ToStep(world, 5));
  world.Kill(0);
  world.Kill(2);
  REQUIRE(ToRunning(world, 1));
  REQUIRE(ToStep(world, 15));
  world.StartWorker(0);
  world.StartWorker(2);
  REQUIRE(ToRunning(world, 3));
  FinishAll(world);
  CHECK(world.restores() == 0);
}

TEST_CASE("life: killing all and starting again resumes from the last checkpoint", "[sim]") {
  WorldOptions options = Usual(3, 60);
  options.protocol.checkpoint_every = 5;
  World world(options);
  Begin(world);
  REQUIRE(world.RunUntil([&] { return world.Told("checkpoint") && world.decided() > 20; },
                         60 * kSecond));
  for (int slot : {0, 1, 2}) world.Kill(slot);
  world.KillCoordinator();
  world.RunFor(kSecond);
  world.StartCoordinator();
  for (int slot : {0, 1, 2}) world.StartWorker(slot);
  REQUIRE(ToRunning(world, 3));
  CHECK(world.restores() == 1);
  FinishAll(world);
}

TEST_CASE("life: an evaluated, checkpointed end with skips and repeats", "[sim]") {
  WorldOptions options = SmallWorld(9, 4, 10, 40);
  options.skip = 0.2;
  options.repeat = 0.2;
  World world(options);
  Begin(world);
  REQUIRE(ToStep(world, 10));
  world.Kill(3);
  FinishAll(world);
}

TEST_CASE("life: the coordinator's absence does not stop training", "[sim]") {
  World world(Usual(3, 200));
  Begin(world);
  REQUIRE(ToStep(world, 5));
  world.KillCoordinator();
  const int64_t at = world.decided();
  world.RunFor(3 * kSecond);
  CHECK(world.decided() > at + 10);
  const int64_t views = world.forms();
  world.StartCoordinator();
  REQUIRE(ToRunning(world, 3));
  CHECK(world.forms() == views);  // all came back active: nothing changed
  CHECK(world.Told("resumed"));
  FinishAll(world);
}

TEST_CASE("hole: a zombie of an older view is no survivor after the coordinator's restart",
          "[sim]") {
  World world(Usual(3, 80));
  Begin(world);
  REQUIRE(ToStep(world, 5));
  world.Pause(2);  // it holds a complete state of its view
  REQUIRE(world.RunUntil([&] { return world.coordinator()->view()->members.size() == 2; },
                         20 * kSecond));
  REQUIRE(ToStep(world, 20));
  world.KillCoordinator();
  world.RunFor(100 * kMs);
  world.Kill(0);
  world.StartCoordinator();
  SimWorker* zombie = world.Find(2);
  world.Resume(2);
  REQUIRE(world.RunUntil([&] { return !zombie->alive; }, 20 * kSecond));
  CHECK(zombie->exit_code == 76);
  REQUIRE(ToRunning(world, 1));
  FinishAll(world);
}

TEST_CASE("hole: a restore that fails half-way does not mix two histories", "[sim]") {
  WorldOptions options = Usual(3, 60);
  options.protocol.checkpoint_every = 5;
  World world(options);
  Begin(world);
  REQUIRE(ToStep(world, 18));
  for (int slot : {0, 1, 2}) world.Kill(slot, true);
  world.RunFor(kSecond);
  // The donor of the restored state dies between the two copies' Form and its end.
  bool killed = false;
  world.after_worker_output = [&](SimWorker& worker, const WorkerOutput& output) {
    const auto* run = std::get_if<membership::Run>(&output);
    if (killed || run == nullptr || !std::holds_alternative<membership::CopyState>(run->command))
      return;
    if (worker.core->rank() != Rank(0)) return;
    killed = true;
    world.queue().After(1, [&world, slot = worker.slot] { world.Kill(slot); });
  };
  for (int slot : {0, 1, 2}) world.StartWorker(slot);
  REQUIRE(ToRunning(world, 2, 60 * kSecond));
  CHECK(killed);
  CHECK(world.restores() >= 1);
  FinishAll(world);
}

TEST_CASE("hole: a checkpoint that cannot be read is passed over for the one before", "[sim]") {
  WorldOptions options = Usual(2, 60);
  options.protocol.checkpoint_every = 5;
  World world(options);
  Begin(world);
  REQUIRE(ToStep(world, 23));
  world.RunFor(400 * kMs);
  for (int slot : {0, 1}) world.Kill(slot, true);
  world.RunFor(kSecond);
  world.SpoilNewestCheckpoint();
  for (int slot : {0, 1}) world.StartWorker(slot);
  REQUIRE(ToRunning(world, 2, 60 * kSecond));
  CHECK(world.Told("checkpoint_bad"));
  CHECK(world.restores() == 2);
  FinishAll(world);
}

TEST_CASE("hole: a stale Form does not revive a joiner with an incomplete copy", "[sim]") {
  World world(Usual(3, 60));
  Begin(world);
  REQUIRE(ToStep(world, 5));
  SimWorker* joiner = world.StartWorker(7);
  std::optional<Form> form;
  bool cut = false, lost = false;
  world.after_coordinator_output = [&](const membership::CoordinatorOutput& output) {
    const auto* send = std::get_if<SendToWorker>(&output);
    if (send == nullptr) return;
    if (!lost && std::holds_alternative<membership::Prepare>(*send->message)) {
      lost = true;  // so it joins unprepared
      world.queue().After(1, [&world] { world.Kill(2, /*noticed=*/true); });
    }
    const auto* f = std::get_if<Form>(send->message.get());
    if (f != nullptr && !form && f->view->RankOf(joiner->member.incarnation)) form = *f;
  };
  world.completion_delay = [&](SimWorker& worker, const Command& command) -> std::optional<Micros> {
    if (&worker == joiner && !cut && std::holds_alternative<membership::CopyState>(command)) {
      cut = true;
      world.queue().After(1, [&] { world.BreakCollective(7); });
      return 5 * kSecond;
    }
    return std::nullopt;
  };
  REQUIRE(world.RunUntil([&] { return cut; }, 20 * kSecond));
  REQUIRE(world.RunUntil([&] { return joiner->closed >= form->view->generation; }, 20 * kSecond));
  CHECK_FALSE(joiner->core->state().complete);
  world.DeliverToWorker(*joiner, *form);
  CHECK(joiner->core->phase() != WorkerCore::Phase::kReady);
  REQUIRE(ToRunning(world, 3));
  FinishAll(world);
}

TEST_CASE("hole: a vote that completes while a member is asked is in its answer", "[sim]") {
  // Rank 0 learns the result and leaves; for the others the collective is still under way when they
  // are asked, and completes all the same.
  WorldOptions options = Usual(3, 40);
  options.late_completion = 1.0;
  World world(options);
  Begin(world);
  REQUIRE(ToStep(world, 10));
  bool armed = true, told = false;
  world.completion_delay = [&](SimWorker& worker, const Command& command) -> std::optional<Micros> {
    if (!armed || !std::holds_alternative<Vote>(command)) return std::nullopt;
    return worker.core->rank() == Rank(0) ? 1 * kMs : 60 * kMs;
  };
  world.after_worker_output = [&](SimWorker& worker, const WorkerOutput& output) {
    if (const auto* answer = Message<SurveyAnswer>(output)) {
      told = told || answer->state.pending_result.has_value();
    }
    const auto* report = Message<membership::Report>(output);
    if (!armed || report == nullptr || report->result.at.step < Step(10)) return;
    armed = false;
    world.queue().After(1, [&world, slot = worker.slot] { world.Notice(slot, 5 * kSecond); });
  };
  REQUIRE(ToRunning(world, 2));
  CHECK(told);
  FinishAll(world);
}

TEST_CASE("hole: the result of the last applied step heals the member that missed it", "[sim]") {
  // One rank applies and reports nothing (its stream is cut); the other never sees the vote end.
  WorldOptions options = Usual(2, 40);
  options.late_completion = 0;
  World world(options);
  Begin(world);
  REQUIRE(ToStep(world, 10));
  int64_t applied = 0;
  bool armed = true;
  world.completion_delay = [&](SimWorker& worker, const Command& command) -> std::optional<Micros> {
    if (!armed || !std::holds_alternative<Vote>(command)) return std::nullopt;
    if (worker.core->rank() == Rank(0)) {
      world.CutLink(worker.slot, true);
      return 1 * kMs;
    }
    return 300 * kMs;
  };
  world.after_worker_output = [&](SimWorker& worker, const WorkerOutput& output) {
    const auto* run = std::get_if<membership::Run>(&output);
    if (!armed || run == nullptr || !std::holds_alternative<Apply>(run->command)) return;
    armed = false;
    applied = worker.core->position().step.value() + 1;
    // The link heals before the silence is noticed, and the collective breaks.
    world.queue().After(5 * kMs, [&world, slot = worker.slot] {
      world.BreakCollective(slot == 0 ? 1 : 0);
      world.ResetStream(slot);
      world.CutLink(slot, false);
    });
  };
  REQUIRE(world.RunUntil([&] { return applied > 0; }, 10 * kSecond));
  const int64_t computed = world.computed();
  REQUIRE(ToStep(world, applied + 1));
  CHECK(world.computed() - computed <= 2 * 12);  // the decided step was not computed again
  FinishAll(world);
  CHECK(world.restores() == 0);
}

TEST_CASE(
    "hole: only the dead member's vote was seen, and the Form that says so is lost with the "
    "coordinator",
    "[sim]") {
  WorldOptions options = Usual(2, 40);
  options.late_completion = 0;
  World world(options);
  Begin(world);
  REQUIRE(ToStep(world, 10));
  bool armed = true;
  world.completion_delay = [&](SimWorker& worker, const Command& command) -> std::optional<Micros> {
    if (!armed || !std::holds_alternative<Vote>(command)) return std::nullopt;
    return worker.core->rank() == Rank(0) ? 1 * kMs : 400 * kMs;
  };
  world.after_worker_output = [&](SimWorker& worker, const WorkerOutput& output) {
    const auto* report = Message<membership::Report>(output);
    if (!armed || report == nullptr || report->result.at.step < Step(10)) return;
    armed = false;
    world.queue().After(3 * kMs, [&world, slot = worker.slot] { world.Kill(slot, true); });
  };
  bool crashed = false;
  world.after_coordinator_output = [&](const membership::CoordinatorOutput& output) {
    const auto* persist = std::get_if<Persist>(&output);
    if (persist == nullptr || crashed || armed) return;
    const auto* form = std::get_if<FormRecord>(&persist->record);
    if (form == nullptr || !form->result) return;
    crashed = true;
    world.KillCoordinator();
  };
  REQUIRE(world.RunUntil([&] { return crashed; }, 20 * kSecond));
  world.RunFor(200 * kMs);
  world.StartCoordinator();
  REQUIRE(ToRunning(world, 1));
  FinishAll(world);
}

TEST_CASE("hole: generation numbers of abandoned proposals are not used twice", "[sim]") {
  World world(Usual(3, 40));
  std::set<Generation> used;
  bool twice = false;
  world.after_coordinator_output = [&](const membership::CoordinatorOutput& output) {
    const auto* persist = std::get_if<Persist>(&output);
    const auto* form = persist ? std::get_if<FormRecord>(&persist->record) : nullptr;
    if (form != nullptr) twice = !used.insert(form->view.generation).second || twice;
  };
  Begin(world);
  for (int outputs : {0, 1, 2, 3, 4, 5, 6}) {  // it dies between any two outputs of a change
    world.Kill(outputs % 3);
    world.KillCoordinatorAfter(outputs);
    world.RunFor(2 * kSecond);
    world.KillCoordinator();
    world.StartCoordinator();
    world.StartWorker(outputs % 3);
    REQUIRE(ToRunning(world, 3));
  }
  CHECK_FALSE(twice);
  CHECK(used.size() > 7);
  FinishAll(world);
}

TEST_CASE("hole: a ledger line of a step that was redone is the later view's", "[sim]") {
  // Rank 0 sees the vote alone, is cut off with its line and vanishes; the survivors make the step
  // anew. When it comes back, its line does not count.
  WorldOptions options = Usual(3, 60);
  options.late_completion = 0;
  World world(options);
  Begin(world);
  REQUIRE(ToStep(world, 10));
  SimWorker* lonely = nullptr;
  std::optional<VoteResult> seen;
  world.completion_delay = [&](SimWorker& worker, const Command& command) -> std::optional<Micros> {
    if (seen || !std::holds_alternative<Vote>(command)) return std::nullopt;
    if (worker.core->rank() != Rank(0)) return 3 * kSecond;
    lonely = &worker;
    world.CutLink(worker.slot, true);
    return 1 * kMs;
  };
  world.on_decided = [&](const VoteResult& result) {
    if (lonely != nullptr && !seen) seen = result;
  };
  REQUIRE(world.RunUntil(
      [&] { return lonely != nullptr && lonely->core->state().pending_result.has_value(); },
      20 * kSecond));
  seen = lonely->core->state().pending_result;
  REQUIRE(world.RunUntil([&] { return world.coordinator()->view()->members.size() == 2; },
                         20 * kSecond));
  world.CutLink(lonely->slot, false);
  REQUIRE(world.RunUntil([&] { return !lonely->alive; }, 20 * kSecond));
  CHECK(lonely->exit_code == 76);
  FinishAll(world);
  for (const membership::LedgerLine& line : world.ledger()) {
    if (line.version == seen->After().version()) CHECK(line.generation > seen->generation);
  }
}

TEST_CASE("end: everybody is told to leave before the last step, and the rest is resumed",
          "[sim]") {
  WorldOptions options = Usual(3, 40);
  World world(options);
  Begin(world);
  REQUIRE(ToStep(world, 10));
  for (int slot : {0, 1, 2}) world.Notice(slot, 10 * kSecond);
  REQUIRE(world.RunUntil([&] { return world.ended().has_value(); }, 10 * kSecond));
  CHECK(world.ended()->exit_code == 75);
  CHECK(world.Told("checkpoint"));
  CHECK(world.Alive().empty());
  const int64_t at = world.decided();
  world.KillCoordinator();
  world.StartCoordinator();
  for (int slot : {0, 1, 2}) world.StartWorker(slot);
  REQUIRE(ToRunning(world, 3));
  CHECK(world.coordinator()->GetStatus(world.queue().time()).position.step.value() >= at);
  FinishAll(world);
}

TEST_CASE("end: the coordinator dies after `done`, and stragglers are still released", "[sim]") {
  World world(Usual(2, 10));
  Begin(world);
  bool crashed = false;
  world.after_coordinator_output = [&](const membership::CoordinatorOutput& output) {
    const auto* persist = std::get_if<Persist>(&output);
    if (persist == nullptr || !std::holds_alternative<membership::DoneRecord>(persist->record))
      return;
    crashed = true;
    world.KillCoordinator();
  };
  REQUIRE(world.RunUntil([&] { return crashed; }, 20 * kSecond));
  world.after_coordinator_output = nullptr;
  world.RunFor(100 * kMs);
  CHECK(world.Alive().size() == 2);
  world.StartCoordinator();
  FinishAll(world);
  CHECK(world.Alive().empty());
}

TEST_CASE("resize: drains the newest, and a stop is refused nothing", "[sim]") {
  World world(Usual(4, 400));
  Begin(world);
  world.Request({.id = 1, .kind = UserRequest::Kind::kResize, .target_workers = 2});
  REQUIRE(ToRunning(world, 2));
  CHECK(world.Find(3) == nullptr);
  world.Request({.id = 2, .kind = UserRequest::Kind::kStop, .reason = "Ctrl-C"});
  REQUIRE(world.RunUntil([&] { return world.ended().has_value(); }, 10 * kSecond));
  CHECK(world.ended()->exit_code == 75);
  CHECK(world.failure().empty());
}

}  // namespace starling::sim
