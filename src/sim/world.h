// A simulated run: one coordinator and its workers, all of them the production cores, over a
// modelled network, journal, disk and training step. A reader starts here.
//
//   EventQueue ── deliveries, completions, wakes ──► Receive() of a core ──► outputs ──► EventQueue
//
// What a process does is delayed while it is paused and forgotten when it dies. What the
// coordinator journals is encoded and decoded by the production code. Every fact goes to the
// checkers; the first contradiction stops the run (`failure()`). One thread; a seed replays
// exactly.
//
// world.cc holds processes and time, world_worker.cc a worker's shell, world_streams.cc the control
// streams, world_coordinator.cc the coordinator's driver.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "sim/checkers.h"
#include "sim/facts.h"
#include "sim/queue.h"
#include "starling/membership/coordinator_core.h"
#include "starling/membership/worker_core.h"

namespace starling::sim {

struct WorldOptions {
  uint64_t seed = 1;
  membership::Options protocol;
  int slots = 3;                // names of workers: w0 …
  Micros micro_batch = 20'000;  // of a usual worker
  Micros latency = 300;         // of a message, and as much again at random
  double skip = 0;              // share of votes with each outcome
  double repeat = 0;
  double part_failure = 0;  // of writing a checkpoint part
  double manifest_failure = 0;
  double late_completion = 0.3;  // a collective that is over completes in spite of Close
  Micros copy = 3'000;           // of a state, in the background; as much again at random
  double stale_message = 0;      // messages of a broken stream that arrive all the same
};

// Small settings that make a run of a few simulated seconds interesting.
WorldOptions SmallWorld(uint64_t seed, int workers, int64_t micro_batches, int64_t steps);

// Time in which members of an ended generation wait for the next one to become active.
struct Stall {
  Micros sum = 0;
  Micros longest = 0;
  int64_t count = 0;
};

struct SimWorker {
  int slot = 0;
  membership::Member member;
  std::unique_ptr<membership::WorkerCore> core;
  Model model;
  bool alive = true;
  bool paused = false;
  int64_t slowness = 1;  // times the usual micro-batch time
  int exit_code = -1;
  uint64_t stream = 0;  // 0 = none
  int64_t connects = 0;
  std::optional<membership::Command> running;
  uint64_t command = 0;                    // number of the running one
  uint64_t finishing = 0;                  // its completion is on the way
  uint64_t token = 0;                      // of the newest word on it
  std::set<std::string> unreachable;       // names it has no data path to
  std::deque<std::function<void()>> held;  // while paused
  Generation closed;
  Generation ready;                  // it said so
  bool active = false;               // in its newest generation
  std::optional<Micros> stalled_at;  // its generation ended, and it is not in the next one yet
  Micros hold_votes_until = 0;       // as a donor in the last round of a copy
};

// One control stream between a worker and a life of the coordinator.
struct SimStream {
  uint64_t id = 0;
  Registration registration;
  uint64_t life = 0;
  Incarnation worker;
  bool coordinator_end = true;  // open, as that end sees it
  bool worker_end = true;
  Micros last_up = 0, last_down = 0;        // messages stay in order
  std::deque<std::function<void()>> stuck;  // while the link is cut
};

struct DiskPart {
  uint64_t chain = 0;
  int64_t updates = 0;
};
struct DiskCheckpoint {
  Version version;
  uint64_t chain = 0;
  int64_t updates = 0;
  bool readable = true;
};

class World {
 public:
  explicit World(WorldOptions options);
  ~World();

  // ---- processes --------------------------------------------------------------------------------
  SimWorker* StartWorker(int slot);           // a new incarnation
  void Kill(int slot, bool noticed = false);  // noticed: a launcher tells the coordinator
  void Pause(int slot);
  void Resume(int slot);
  void Slow(int slot, int64_t times);
  void Notice(int slot, Micros deadline);  // SIGTERM
  void ResetStream(int slot);
  void CutLink(int slot, bool cut);       // to the coordinator: silence, no error
  void CutPeers(int a, int b, bool cut);  // no new data connections between two workers
  void HealPeers();
  void BreakCollective(int slot);  // a data connection resets, everybody lives
  void StartCoordinator();
  void KillCoordinator();
  // The next `outputs` are done, then it dies; a record under way may be torn.
  void KillCoordinatorAfter(int outputs) { outputs_left_ = outputs; }
  void PauseCoordinator(Micros duration);
  void LoseJournal();
  void SpoilNewestCheckpoint();
  void Request(membership::UserRequest request);

  // ---- time -------------------------------------------------------------------------------------
  void RunFor(Micros duration);
  // False when `limit` passed first or a checker failed.
  bool RunUntil(const std::function<bool()>& done, Micros limit);

  // ---- looking ----------------------------------------------------------------------------------
  const std::string& failure() const { return failure_; }
  void Fail(const std::string& text);
  membership::CoordinatorCore* coordinator() { return coordinator_.get(); }
  SimWorker* Find(int slot);  // the live one of that name, or null
  SimWorker* Find(Incarnation incarnation);
  std::vector<SimWorker*> Alive();
  bool Running() const;                         // phase running with exactly the live workers
  int64_t decided() const { return decided_; }  // highest applied step, on any timeline
  const std::optional<membership::Ended>& ended() const { return ended_; }
  const std::vector<membership::LedgerLine>& ledger() const { return ledger_; }
  const std::vector<membership::Event>& events() const { return told_; }
  bool Told(const std::string& event) const;
  int64_t computed() const { return computed_; }  // micro-batches, by all workers
  int64_t recomputed() const { return recomputed_; }
  const Stall& stall() const { return stall_; }
  void CheckRest();
  EventQueue& queue() { return queue_; }
  Random& random() { return random_; }
  uint64_t hash() const { return hash_; }
  const WorldOptions& options() const { return options_; }
  int64_t forms() const { return forms_; }
  int64_t restores() const { return restores_; }

  // ---- hooks of scenarios -----------------------------------------------------------------------
  std::function<void(SimWorker&, const membership::WorkerOutput&)> after_worker_output;
  std::function<void(const membership::CoordinatorOutput&)> after_coordinator_output;
  std::function<void(const membership::VoteResult&)> on_decided;
  std::function<std::optional<Micros>(SimWorker&, const membership::Command&)> completion_delay;
  std::function<void(const std::string&)> trace;

  void DeliverToWorker(SimWorker& worker, const membership::CoordinatorMessage& message);

 private:
  friend class Communicator;
  friend class Background;
  using Process = std::function<void(SimWorker&)>;
  void Schedule(Incarnation worker, Micros delay, Process action);
  void ToWorkerCore(SimWorker& worker, const membership::WorkerInput& input);
  void Do(SimWorker& worker, const membership::WorkerOutput& output);
  void Execute(SimWorker& worker, const membership::Command& command);
  void Complete(SimWorker& worker, uint64_t command, Micros delay, membership::Completion done);
  void Finish(SimWorker& worker, const membership::Command& command, membership::Completion done);
  void DoMerge(SimWorker& worker, const membership::MergeHeld& command);
  void DoCompute(SimWorker& worker, const membership::Compute& command);
  bool SeenBefore(const membership::Compute& command);
  void DoApply(SimWorker& worker, const membership::Apply& command);
  void DoLoad(SimWorker& worker, const membership::LoadCheckpoint& command,
              membership::Completion* done);
  void DoSnapshot(SimWorker& worker, const membership::Snapshot& command);
  void Exit(SimWorker& worker, int code, const std::string& reason);
  void Die(SimWorker& worker);
  void Connect(SimWorker& worker, Micros delay);
  void Heartbeat(Incarnation worker);
  void SendUp(SimWorker& worker, membership::WorkerMessage message);
  void SendDown(SimStream& stream, membership::CoordinatorMessage message);
  void Link(SimStream& stream, Micros time, std::function<void()> action);
  void CloseEnd(SimStream& stream, bool coordinator_end);
  SimStream* StreamOf(Registration registration);

  void ToCoordinator(const membership::CoordinatorInput& input);
  void Do(const membership::CoordinatorOutput& output);
  void ScheduleWake();
  void CheckActivate(Generation generation);
  void CheckCopies(const SimWorker& worker, const membership::Form& form);
  void CheckSettled(const membership::LedgerLine& line);
  void WriteManifest(const membership::WriteManifest& manifest);
  std::optional<std::string> ReachableHolder();
  void Hash(uint64_t value) { hash_ = Mix64(hash_ ^ value) + 1; }
  void Hash(const std::string& text);
  void Trace(const std::string& text);
  template <typename F>
  void Tell(F f) {
    for (const auto& checker : checkers_) {
      f(*checker);
      if (!checker->failure().empty()) Fail(checker->failure());
    }
  }

  WorldOptions options_;
  EventQueue queue_;
  Random random_;
  RunFacts facts_;
  std::vector<std::unique_ptr<Checker>> checkers_;
  std::unique_ptr<class Communicator> communicator_;
  std::unique_ptr<class Background> background_;
  std::map<Incarnation, std::unique_ptr<SimWorker>> workers_;
  std::map<int, std::vector<SimWorker*>> lives_;  // by slot: those alive, oldest first
  std::map<uint64_t, SimStream> streams_;
  std::map<Registration, uint64_t> stream_ids_;  // of this life
  std::set<int> cut_;                            // slots whose link to the coordinator is cut
  uint64_t next_stream_ = 1;
  uint64_t next_incarnation_ = 1;
  uint64_t next_token_ = 0;

  std::unique_ptr<membership::CoordinatorCore> coordinator_;
  uint64_t life_ = 0;
  uint64_t next_registration_ = 1;
  uint64_t wake_ = 0;
  bool coordinator_paused_ = false;
  std::deque<membership::CoordinatorInput> backlog_;  // while it is paused
  std::optional<int> outputs_left_;
  std::string journal_;
  membership::View last_view_;  // newest journalled
  Timeline last_timeline_;
  membership::Position last_position_;
  Generation activated_;
  // The newest votes and where they lead.
  std::map<std::pair<Generation, membership::Position>, membership::Position> decided_votes_;
  std::map<std::string, DiskCheckpoint> disk_;
  std::map<std::tuple<Version, Generation, Rank>, DiskPart> parts_;
  std::vector<membership::LedgerLine> ledger_;
  std::vector<membership::Event> told_;
  std::optional<membership::Ended> ended_;
  std::set<Incarnation> excused_;  // replaced by a newer incarnation of their name

  std::string failure_;
  int64_t decided_ = 0;
  int64_t computed_ = 0;
  int64_t recomputed_ = 0;
  // Which micro-batches somebody has computed, of the newest steps and attempts.
  std::map<std::pair<Step, Attempt>, std::vector<bool>> seen_;
  Stall stall_;
  int64_t forms_ = 0;
  int64_t restores_ = 0;
  uint64_t hash_ = 0;
};

}  // namespace starling::sim
