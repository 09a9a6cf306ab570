// A worker's core with a hand-made coordinator and executor.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "starling/membership/worker_core.h"

namespace starling::membership::fixture {

inline Member MemberOf(uint64_t id) { return {Incarnation(id), "w", "h", 1, "addr"}; }

inline plan::IntervalSet Set(int64_t begin, int64_t end) {
  return plan::IntervalSet::Of({{begin, end}});
}

inline Options SmallOptions() {
  Options o;
  o.run_id = "run";
  o.micro_batches = 4;
  o.total_steps = 3;
  return o;
}

// Worker 1 with a hand-made coordinator and executor.
class Worker {
 public:
  explicit Worker(Options options = SmallOptions())
      : core(std::move(options), {MemberOf(1), "run", "n1", 1, 2, 3}) {
    In(StreamOpened{});
    Hear(Registered{Term(1), Registration(1)});
  }
  void In(const WorkerInput& input) { core.Receive(input, &all); }
  void Hear(CoordinatorMessage message) { In(FromCoordinator{std::move(message)}); }
  void Done(Completion completion = {}) { In(completion); }

  template <typename T>
  std::vector<T> Ran() const {
    std::vector<T> found;
    for (const WorkerOutput& o : all) {
      const auto* run = std::get_if<Run>(&o);
      if (run == nullptr) continue;
      if (const auto* command = std::get_if<T>(&run->command)) found.push_back(*command);
    }
    return found;
  }
  // The newest command is a T.
  template <typename T>
  bool Runs() const {
    for (auto it = all.rbegin(); it != all.rend(); ++it) {
      if (const auto* run = std::get_if<Run>(&*it)) return std::holds_alternative<T>(run->command);
    }
    return false;
  }
  template <typename T>
  std::vector<T> Said() const {
    std::vector<T> found;
    for (const WorkerOutput& o : all) {
      const auto* send = std::get_if<SendToCoordinator>(&o);
      if (send == nullptr) continue;
      if (const auto* message = std::get_if<T>(&send->message)) found.push_back(*message);
    }
    return found;
  }
  template <typename T>
  std::vector<T> RanBeside() const {
    std::vector<T> found;
    for (const WorkerOutput& o : all) {
      const auto* run = std::get_if<RunBeside>(&o);
      if (run == nullptr) continue;
      if (const auto* command = std::get_if<T>(&run->command)) found.push_back(*command);
    }
    return found;
  }
  std::optional<ExitProcess> Exit() const {
    for (const WorkerOutput& o : all) {
      if (const auto* exit = std::get_if<ExitProcess>(&o)) return *exit;
    }
    return std::nullopt;
  }
  std::vector<Close> Closed() const {
    std::vector<Close> found;
    for (const WorkerOutput& o : all) {
      if (const auto* close = std::get_if<Close>(&o)) found.push_back(*close);
    }
    return found;
  }

  // A Form of workers 1 and 2 in which this one computes [0, 2).
  Form FormOf(uint64_t generation, int64_t step = 0) const {
    Form f;
    f.term = Term(1);
    f.view = std::make_shared<View>(View{Generation(generation), {MemberOf(1), MemberOf(2)}});
    f.position = {Timeline(1), Step(step), Attempt(0)};
    f.updates = step;
    f.claims.resize(2);
    f.assignment = {Set(0, 2), Set(2, 4)};
    return f;
  }
  VoteResult Result(Outcome outcome = Outcome::kCommit) const {
    VoteResult r;
    r.generation = core.generation();
    r.at = core.position();
    r.outcome = outcome;
    r.count = 4;
    r.mix = plan::IntervalSet::Whole(4).MixSum();
    r.update = core.state().updates + (outcome == Outcome::kCommit ? 1 : 0);
    r.speeds = {100, 100};
    return r;
  }
  // A proposal of workers 2 and 1 in which 1, a newcomer, receives the state.
  Prepare PrepareOf(uint64_t generation, uint64_t term = 1) const {
    Prepare p;
    p.term = Term(term);
    p.view = std::make_shared<View>(View{Generation(generation), {MemberOf(2), MemberOf(1)}});
    p.secret = "secret";
    p.transfers = {{Rank(0), Rank(1)}};
    return p;
  }
  // The Form that follows it, at version `step`.
  Form JoinOf(const Prepare& p, int64_t step) const {
    Form f = FormOf(p.view->generation.value(), step);
    f.view = p.view;
    return f;
  }
  // The order to hand over from one to the other, in generation 1.
  static HandOver OrderOf(uint64_t from, uint64_t to, uint64_t term = 1) {
    HandOver h;
    h.term = Term(term);
    h.generation = Generation(1);
    h.channel = std::make_shared<View>(View{Generation(9), {MemberOf(from), MemberOf(to)}});
    h.secret = "channel";
    return h;
  }
  // Worker 2's accumulator arrives, of `step` + 1.
  void ReceiveHeld(plan::IntervalSet list, int64_t step = 0) {
    Hear(OrderOf(2, 1));
    const MemberState::Held held{Incarnation(2), {Timeline(1), Step(step), Attempt(0)}, list};
    In(BesideCompletion{.command = RanBeside<ReceiveAccumulator>().back(), .held = held});
  }
  // Worker 2 left: generation 10 is of worker 1 alone, which counts the held list if it is to.
  Form AloneOf(int64_t step, plan::IntervalSet claim, bool merges) const {
    Form f = FormOf(10, step);
    f.view = std::make_shared<View>(View{Generation(10), {MemberOf(1)}});
    f.claims = {claim};
    f.assignment = {plan::IntervalSet::Whole(4)};
    f.assignment[0].Remove(claim);
    if (merges) f.merge = {{Rank(0), Incarnation(2)}};
    return f;
  }
  // Version 0, generation 1, active.
  void Begin() {
    Form f = FormOf(1);
    f.from_seed = true;
    Hear(f);
    Done();  // InitializeFromSeed
    Done();  // Connect
    Hear(Activate{Term(1), Generation(1)});
    Done();  // ClearAccumulator
  }
  // Both micro-batches and the reduced sums; the vote is running.
  void ToVote() {
    while (Runs<Compute>()) Done();
    Done();
    REQUIRE(Runs<Vote>());
  }

  WorkerCore core;
  WorkerOutputs all;
};

}  // namespace starling::membership::fixture
