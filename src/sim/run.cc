#include "starling/sim/run.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/world.h"

namespace starling::sim {
namespace {

using membership::ToString;

constexpr Micros kSecond = 1'000'000;

enum Fault {
  kCrash,
  kPauseAndResume,
  kReplaceZombie,  // a new incarnation while the old one is paused
  kSlowNode,
  kDrain,
  kMassPreemption,
  kCoordinatorCrash,
  kCoordinatorTorn,  // between two of its outputs
  kCoordinatorPause,
  kJournalLost,
  kStreamReset,
  kLinkCut,
  kPeersCut,
  kBrokenCollective,
  kBadCheckpoint,
  kUserCheckpoint,
  kResize,
  kEverybodyDies,
  kFaults,
};

// By Fault; then the rates that are part of the world.
constexpr const char* kNames[] = {"crash",       "pause",      "zombie",
                                  "slow",        "drain",      "preemption",
                                  "coordinator", "torn",       "coordinator-pause",
                                  "journal",     "stream",     "link",
                                  "peers",       "collective", "bad-checkpoint",
                                  "checkpoint",  "resize",     "everybody",
                                  "skip",        "repeat",     "disk",
                                  "late",        "stale"};
static_assert(std::string_view(kNames[kEverybodyDies]) == "everybody");

Micros ToMicros(double seconds) { return static_cast<Micros>(seconds * kSecond); }

class Swarm {
 public:
  explicit Swarm(const Options& options)
      : random_(options.seed * 3 + 1), world_(Choose(options, &random_)) {
    world_.trace = options.trace;
    for (int f = 0; f < kFaults; ++f) {
      const bool picked = random_.Chance(0.4);
      enabled_.push_back(options.faults ? options.faults->contains(kNames[f]) : picked);
      if (enabled_.back()) any_ = true;
    }
    pause_between_ = random_.Between(100'000, 3 * kSecond);
    restart_delay_ = random_.Between(50'000, 2 * kSecond);
    restarts_ = random_.Chance(0.8);
    if (options.seconds) {
      seconds_ = ToMicros(*options.seconds);
      restarts_ = true;
      // A cluster of any size makes progress between two faults.
      const membership::Options& p = world_.options().protocol;
      const Micros step = world_.options().micro_batch * p.micro_batches / world_.options().slots;
      pause_between_ = std::max(pause_between_, 3 * step);
    }
  }

  Summary Run() {
    const int slots = world_.options().slots;
    world_.StartCoordinator();
    for (int slot = 0; slot < slots; ++slot) world_.StartWorker(slot);
    Micros faults_end = random_.Between(3, 20) * kSecond;
    if (seconds_) faults_end = any_ ? *seconds_ * 3 / 4 : 0;
    while (world_.queue().now() < faults_end && world_.failure().empty()) {
      world_.RunFor(random_.Between(1000, pause_between_));
      Tend();
      if (world_.failure().empty()) Strike();
    }
    if (world_.failure().empty()) Quiet();
    const Stall& stall = world_.stall();
    return {.seed = world_.options().seed,
            .hash = world_.hash(),
            .failure = world_.failure(),
            .events = world_.queue().ran(),
            .workers = world_.options().slots,
            .steps = world_.decided(),
            .views = world_.forms(),
            .restores = world_.restores(),
            .computed = world_.computed(),
            .recomputed = world_.recomputed(),
            .stall_seconds = static_cast<double>(stall.sum) / kSecond,
            .longest_stall = static_cast<double>(stall.longest) / kSecond,
            .stalls = stall.count,
            .simulated_seconds = static_cast<double>(world_.queue().now()) / kSecond};
  }

 private:
  static WorldOptions Choose(const Options& options, Random* random) {
    const int workers = static_cast<int>(random->Between(options.min_workers, options.max_workers));
    WorldOptions world =
        SmallWorld(options.seed, workers, random->Between(3, 24), random->Between(20, 250));
    membership::Options& p = world.protocol;
    p.min_workers = static_cast<int>(random->Between(1, std::max(1, workers / 2)));
    p.checkpoint_every = random->Chance(0.7) ? random->Between(2, 20) : 0;
    p.digest_every = random->Chance(0.5) ? random->Between(1, 6) : 0;
    p.evaluate_every = random->Chance(0.3) ? random->Between(3, 20) : 0;
    p.evaluation = random->Chance(0.5);
    p.final_checkpoint = random->Chance(0.8);
    p.max_workers = std::max(p.max_workers, workers);
    if (random->Chance(0.2)) p.max_workers = std::max(p.min_workers, workers - 1);
    p.expected_workers = std::min(p.expected_workers, p.max_workers);
    world.micro_batch = random->Between(2'000, 40'000);
    world.copy = random->Between(500, 20'000) * (random->Chance(0.3) ? 30 : 1);
    p.join_stall_max = absl::Milliseconds(random->Between(10, 3000));
    world.skip = random->Chance(0.3) ? 0.1 : 0;
    world.repeat = random->Chance(0.3) ? 0.15 : 0;
    world.part_failure = random->Chance(0.2) ? 0.05 : 0;
    world.manifest_failure = random->Chance(0.2) ? 0.1 : 0;
    world.late_completion = random->Chance(0.5) ? 0.5 : 0;
    world.stale_message = random->Chance(0.4) ? 0.3 : 0;
    Override(options, &world);
    return world;
  }

  // What was given replaces what the seed has picked.
  static void Override(const Options& options, WorldOptions* world) {
    membership::Options& p = world->protocol;
    if (options.micro_batches) p.micro_batches = *options.micro_batches;
    if (options.step_seconds) {
      world->micro_batch =
          std::max<Micros>(1, ToMicros(*options.step_seconds) * world->slots / p.micro_batches);
    }
    if (options.detection) {
      p.detection = absl::Seconds(*options.detection);
      p.patience = std::max(p.patience, 2 * p.detection);
      p.stuck_after = std::max(p.stuck_after, 2 * p.detection);
      p.gather_after = std::max(p.gather_after, p.detection);
    }
    if (options.seconds) p.total_steps = 1'000'000'000;
    if (!options.faults) return;
    const auto rate = [&](const char* name, double value) {
      return options.faults->contains(name) ? value : 0;
    };
    world->skip = rate("skip", 0.1);
    world->repeat = rate("repeat", 0.15);
    world->part_failure = rate("disk", 0.05);
    world->manifest_failure = rate("disk", 0.1);
    world->late_completion = rate("late", 0.5);
    world->stale_message = rate("stale", 0.3);
  }

  int AnySlot() { return static_cast<int>(random_.Below(world_.options().slots)); }
  Micros Now() { return world_.queue().now(); }
  void Later(Micros delay, std::function<void()> action) {
    world_.queue().After(delay, std::move(action));
  }

  // Complete, or without a checkpoint that can be read: then only a person can go on.
  bool Over() {
    return world_.ended() && (world_.ended()->exit_code == 0 || world_.ended()->exit_code == 65);
  }

  // What launchers do: start again what ended, but not what was told to stay away.
  void Tend() {
    // A person looks after a run without a journal.
    if (journal_lost_) {
      world_.Request({.id = 3, .kind = membership::UserRequest::Kind::kAdopt});
    }
    if (!world_.coordinator() || world_.ended()) {
      if (Over()) return;
      if (world_.ended()) world_.KillCoordinator();
      if (!coordinator_due_) coordinator_due_ = Now() + random_.Between(10'000, 3 * kSecond);
      if (Now() >= *coordinator_due_) {
        coordinator_due_.reset();
        world_.StartCoordinator();
      }
    }
    if (!restarts_) return;
    for (int slot = 0; slot < world_.options().slots; ++slot) {
      if (world_.Find(slot) == nullptr && !starting_.contains(slot)) {
        starting_.insert(slot);
        Later(random_.Between(1000, restart_delay_), [this, slot] { Start(slot); });
      }
    }
  }

  void Start(int slot) {
    starting_.erase(slot);
    if (world_.Find(slot) == nullptr && !Over()) world_.StartWorker(slot);
  }

  void Strike() {
    const auto fault = static_cast<Fault>(random_.Below(kFaults));
    if (!enabled_[fault]) return;
    const int slot = AnySlot();
    const Micros longest =
        std::max(4 * kSecond, 2 * absl::ToInt64Microseconds(world_.options().protocol.detection));
    const Micros span = random_.Between(10'000, longest);
    switch (fault) {
      case kCrash:
        return world_.Kill(slot, random_.Chance(0.5));
      case kPauseAndResume:
        world_.Pause(slot);
        return Later(span, [this, slot] { world_.Resume(slot); });
      case kReplaceZombie:
        if (world_.Find(slot) == nullptr) return;
        world_.Pause(slot);
        Later(span / 2, [this, slot] { world_.StartWorker(slot); });
        return Later(span, [this, slot] { world_.Resume(slot); });
      case kSlowNode:
        return world_.Slow(slot, random_.Between(1, 6));
      case kDrain:
        return world_.Notice(slot, random_.Between(20'000, 3 * kSecond));
      case kMassPreemption:
        for (int s = 0; s < world_.options().slots; ++s) {
          if (random_.Chance(0.4)) world_.Kill(s, random_.Chance(0.5));
        }
        return;
      case kCoordinatorCrash:
        return world_.KillCoordinator();
      case kCoordinatorTorn:
        return world_.KillCoordinatorAfter(static_cast<int>(random_.Below(12)));
      case kCoordinatorPause:
        return world_.PauseCoordinator(span);
      case kJournalLost:
        return LoseJournal();
      case kStreamReset:
        return world_.ResetStream(slot);
      case kLinkCut:
        world_.CutLink(slot, true);
        return Later(span, [this, slot] { world_.CutLink(slot, false); });
      case kPeersCut: {
        const int other = AnySlot();
        if (other == slot) return;
        world_.CutPeers(slot, other, true);
        return Later(span, [this, slot, other] { world_.CutPeers(slot, other, false); });
      }
      case kBrokenCollective:
        return world_.BreakCollective(slot);
      case kBadCheckpoint:
        return world_.SpoilNewestCheckpoint();
      case kUserCheckpoint:
        return world_.Request({.id = 1, .kind = membership::UserRequest::Kind::kCheckpoint});
      case kResize:
        return world_.Request(
            {.id = 2,
             .kind = membership::UserRequest::Kind::kResize,
             .target_workers = static_cast<int>(random_.Between(1, world_.options().slots))});
      case kEverybodyDies:
        if (!random_.Chance(0.3)) return;
        for (int s = 0; s < world_.options().slots; ++s) world_.Kill(s, random_.Chance(0.5));
        return;
      case kFaults:
        return;
    }
  }

  // Without a journal nothing tells a member from one that was dropped: those are gone first.
  void LoseJournal() {
    if (!world_.coordinator() || !world_.coordinator()->view()) return;
    if (!world_.Running()) return;
    world_.KillCoordinator();
    world_.LoseJournal();
    journal_lost_ = true;
  }

  // Faults stop; whoever is there must finish the run within a bound computed from the options.
  void Quiet() {
    for (int slot = 0; slot < world_.options().slots; ++slot) {
      world_.CutLink(slot, false);
      world_.Resume(slot);
      world_.Slow(slot, 1);
    }
    world_.HealPeers();
    world_.KillCoordinatorAfter(1'000'000'000);
    restarts_ = true;
    const membership::Options& p = world_.options().protocol;
    const Micros detection = absl::ToInt64Microseconds(p.detection);
    // Reconnect, silence, patience for a silent holder, a few generations, and held-off names.
    const Micros settle = 10 * kSecond + 8 * detection +
                          absl::ToInt64Microseconds(p.patience + p.gather_after + p.stuck_after);
    const auto over = [&] { return Over(); };
    const Micros first = Now();
    bool running = false;
    while (!over() && !running && Now() - first < 3 * settle && world_.failure().empty()) {
      Tend();
      running = world_.RunUntil([&] { return over() || Settled(); }, 100'000);
      running = running && !over();
    }
    if (!world_.failure().empty()) return;
    if (!over() && !running) return Stuck("L1: is not running with exactly the live workers");
    // A step takes at most all its micro-batches one after the other, and repeats.
    const Micros step = (p.micro_batches * 2 * world_.options().micro_batch + 100'000) * 2;
    if (seconds_) return ToTheSecond(3 * step);
    const Micros bound = (p.total_steps + 5) * step + 3 * settle;
    const Micros second = Now();
    while (!over() && Now() - second < bound && world_.failure().empty()) {
      Tend();
      world_.RunUntil(over, 500'000);
    }
    if (!world_.failure().empty()) return;
    if (!over()) {
      // A last checkpoint that cannot be written ends the run with 74, again and again.
      return Stuck("L1: does not come to its end");
    }
    world_.CheckRest();
    if (world_.ended()->exit_code != 0) return;
    if (world_.decided() < p.total_steps) Stuck("L1: ended too early");
    world_.RunFor(3 * kSecond);
    for (SimWorker* worker : world_.Alive()) {
      // Who was cut off or paused at the end finds nobody, and leaves by its own patience.
      if (worker->core->view() && worker->stream != 0)
        Stuck(absl::StrCat("L1: ", worker->member.name, " did not leave"));
    }
  }

  // To the end of the given time. L2: steps advance.
  void ToTheSecond(Micros enough) {
    const Micros begun = Now();
    const int64_t before = world_.decided();
    while (Now() < *seconds_ && !Over() && world_.failure().empty()) {
      Tend();
      world_.RunFor(std::min<Micros>(*seconds_ - Now(), 10 * kSecond));
    }
    if (!world_.failure().empty() || Over()) return;
    if (Now() - begun > enough && world_.decided() == before) Stuck("L2: no step is decided");
    world_.CheckRest();
  }

  bool Settled() {
    // Above max_workers somebody stays a spare.
    const int limit = world_.options().protocol.max_workers;
    if (limit >= world_.options().slots) return world_.Running();
    return world_.coordinator() &&
           world_.coordinator()->phase() == membership::CoordinatorCore::Phase::kRunning &&
           static_cast<int>(world_.coordinator()->view()->members.size()) == limit;
  }

  void Stuck(const std::string& what) {
    std::string state =
        world_.coordinator()
            ? absl::StrCat(
                  "coordinator ", ToString(world_.coordinator()->phase()), " (",
                  world_.coordinator()->GetStatus(world_.queue().time()).phase_reason, ") at ",
                  ToString(world_.coordinator()->GetStatus(world_.queue().time()).position))
            : "no coordinator";
    for (SimWorker* worker : world_.Alive()) {
      absl::StrAppend(&state, "; ", worker->member.name, " phase ",
                      static_cast<int>(worker->core->phase()), " gen ",
                      worker->core->generation().value(), " at ",
                      ToString(worker->core->position()), worker->stream == 0 ? " offline" : "",
                      worker->running ? absl::StrCat(" runs ", worker->running->index()) : "");
    }
    world_.Fail(absl::StrCat(what, "; ", state));
  }

  Random random_;
  World world_;
  std::vector<bool> enabled_;
  Micros pause_between_ = 0;
  Micros restart_delay_ = 0;
  bool restarts_ = true;
  bool journal_lost_ = false;
  bool any_ = false;               // of the faults is enabled
  std::optional<Micros> seconds_;  // that the run lasts; else to its last step
  std::set<int> starting_;
  std::optional<Micros> coordinator_due_;
};

}  // namespace

std::vector<std::string> FaultNames() { return {std::begin(kNames), std::end(kNames)}; }

Summary Run(const Options& options) { return Swarm(options).Run(); }

std::vector<std::string> LastEvents(Options options, size_t count) {
  std::deque<std::string> last;
  options.trace = [&](const std::string& line) {
    if (last.size() == count) last.pop_front();
    last.push_back(line);
  };
  Run(options);
  return {last.begin(), last.end()};
}

}  // namespace starling::sim
