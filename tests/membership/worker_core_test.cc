// The worker's core, command by command.
#include "starling/membership/worker_core.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

namespace starling::membership {
namespace {

using Phase = WorkerCore::Phase;

Member MemberOf(uint64_t id) { return {Incarnation(id), "w", "h", 1, "addr"}; }

plan::IntervalSet Set(int64_t begin, int64_t end) { return plan::IntervalSet::Of({{begin, end}}); }

Options SmallOptions() {
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

}  // namespace

TEST_CASE("worker: a step is compute, reduce, vote, apply", "[membership]") {
  Worker w;
  CHECK(w.Said<Register>().size() == 1);
  w.Begin();
  REQUIRE(w.Runs<Compute>());
  CHECK(w.Ran<Compute>().back().index == 0);
  CHECK(w.Ran<Compute>().back().upcoming == Set(1, 2));
  w.Done();
  w.Done();
  REQUIRE(w.Runs<Reduce>());
  w.Done();
  REQUIRE(w.Runs<Vote>());
  CHECK(w.Ran<Vote>().back().count == 2);
  CHECK(w.Ran<Vote>().back().mix == Set(0, 2).MixSum());
  w.Done({.vote = w.Result()});
  REQUIRE(w.Runs<Apply>());
  REQUIRE(w.Said<Report>().size() == 1);
  CHECK(w.Said<Report>()[0].line->micro_batches == std::vector{Set(0, 2), Set(2, 4)});
  w.Done();
  CHECK(w.core.position().step == Step(1));
  CHECK(w.core.state().updates == 1);
  CHECK(w.Runs<ClearAccumulator>());
}

TEST_CASE("worker: a repeat clears and computes the same step again", "[membership]") {
  Worker w;
  w.Begin();
  w.Hear(RequestCheckpoint{});
  w.ToVote();
  CHECK(w.Ran<Vote>().back().request_checkpoint);
  w.Done({.vote = w.Result(Outcome::kRepeat)});
  w.Done();
  CHECK(w.core.position() == Position{Timeline(1), Step(0), Attempt(1)});
  CHECK(w.core.state().updates == 0);
  w.Done();  // ClearAccumulator
  w.ToVote();
  CHECK(w.Ran<Vote>().back().request_checkpoint);  // no version came of the first
}

TEST_CASE("worker: a sum that is not each micro-batch once stops everything with 70",
          "[membership]") {
  Worker w;
  w.Begin();
  w.ToVote();
  VoteResult twice = w.Result();
  twice.mix += 1;
  w.Done({.vote = twice});
  REQUIRE(w.Exit());
  CHECK(w.Exit()->exit_code == 70);
  CHECK(w.Ran<Apply>().empty());
  CHECK(w.Said<Leaving>().back().exit_code == 70);
}

TEST_CASE("worker: the survey is answered when the micro-batch under way is whole",
          "[membership]") {
  Worker w;
  w.Begin();
  w.Hear(Revoke{Term(1), Generation(1), "w2 died"});
  CHECK(w.Closed().back().generation == Generation(1));
  CHECK(w.Said<FormProgress>().size() == 1);
  CHECK(w.Said<SurveyAnswer>().empty());
  w.Done();
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].state.accumulated == Set(0, 1));
  CHECK(w.core.phase() == Phase::kRevoked);
  CHECK(w.Ran<Compute>().size() == 1);  // nothing new begins
}

TEST_CASE("worker: a vote that completes after Revoke is in the answer", "[membership]") {
  Worker w;
  w.Begin();
  w.ToVote();
  w.Hear(Revoke{Term(1), Generation(1), "w2 died"});
  CHECK(w.Said<SurveyAnswer>().empty());
  const VoteResult result = w.Result();
  w.Done({.vote = result});
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].state.pending_result == result);
  CHECK(w.Said<SurveyAnswer>()[0].state.has_reduced);
  CHECK(w.Ran<Apply>().empty());
}

TEST_CASE("worker: an apply that has begun is finished before the answer", "[membership]") {
  Worker w;
  w.Begin();
  w.ToVote();
  const VoteResult result = w.Result();
  w.Done({.vote = result});
  w.Hear(Revoke{Term(1), Generation(1), "w2 died"});
  CHECK(w.Said<SurveyAnswer>().empty());
  w.Done();
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].state.position.step == Step(1));
  CHECK(w.Said<SurveyAnswer>()[0].state.last_result == result);  // others may need it
}

TEST_CASE("worker: it follows a result that it missed, with the sums it has kept", "[membership]") {
  Worker w;
  w.Begin();
  w.ToVote();
  const VoteResult result = w.Result();
  w.Hear(Revoke{Term(1), Generation(1), "w2 died"});
  w.Done({.ok = false, .aborted = true});
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].state.has_reduced);
  Form f = w.FormOf(2, 1);
  f.result = result;
  w.Hear(f);
  REQUIRE(w.Runs<Apply>());
  CHECK(w.Ran<Apply>().back().result == result);
  w.Done();
  REQUIRE(w.Runs<Connect>());
  w.Done();
  REQUIRE(w.Said<Ready>().size() == 2);
  CHECK(w.core.position().step == Step(1));
  // It knows who contributed what to the step it missed.
  CHECK(w.Said<Ready>().back().unsettled.back().micro_batches == std::vector{Set(0, 2), Set(2, 4)});
  CHECK(w.Said<Ready>().back().unsettled.back().generation == Generation(1));
}

TEST_CASE("worker: claims are kept, and only the rest is computed", "[membership]") {
  Worker w;
  w.Begin();
  w.Done();  // micro-batch 0
  w.Hear(Revoke{Term(1), Generation(1), "w2 died"});
  w.Done();  // and 1
  Form f = w.FormOf(2);
  f.view = std::make_shared<View>(View{Generation(2), {MemberOf(1)}});
  f.claims = {Set(0, 2)};
  f.assignment = {Set(2, 4)};
  w.Hear(f);
  w.Done();
  w.Hear(Activate{Term(1), Generation(2)});
  CHECK(w.Ran<ClearAccumulator>().size() == 1);  // that of the beginning
  CHECK(w.Ran<Compute>().back().index == 2);
  w.ToVote();
  CHECK(w.Ran<Vote>().back().count == 4);
}

TEST_CASE("worker: sums of an older generation are not voted on in a newer one", "[membership]") {
  Worker w;
  w.Begin();
  w.ToVote();
  w.Hear(Revoke{Term(1), Generation(1), "reset"});
  w.Done({.ok = false, .aborted = true});
  Form f = w.FormOf(2);
  f.claims = {Set(0, 2), Set(2, 4)};
  f.assignment = {{}, {}};
  w.Hear(f);
  w.Done();
  w.Hear(Activate{Term(1), Generation(2)});
  CHECK(w.Runs<Reduce>());
  CHECK(w.Ran<Reduce>().back().generation == Generation(2));
}

TEST_CASE("worker: stale Forms, older terms and late Activates are ignored", "[membership]") {
  Worker w;
  w.Begin();
  w.Done();
  w.Hear(Revoke{Term(2), Generation(5), "newer coordinator"});
  w.Done();
  const size_t ran = w.Ran<Connect>().size();
  w.Hear(w.FormOf(5));  // the closed generation
  Form old_term = w.FormOf(7);
  w.Hear(old_term);  // term 1
  w.Hear(Activate{Term(2), Generation(5)});
  CHECK(w.Ran<Connect>().size() == ran);
  CHECK(w.core.phase() == Phase::kRevoked);
  Form next = w.FormOf(7);
  next.term = Term(2);
  w.Hear(next);
  CHECK(w.core.phase() == Phase::kForming);
}

TEST_CASE("worker: a joiner whose copy was cut off has no version", "[membership]") {
  Worker w;
  Form f = w.FormOf(4, 9);
  f.transfers = {{Rank(1), Rank(0)}};
  w.Hear(f);
  w.Done();
  REQUIRE(w.Runs<CopyState>());
  w.Hear(Revoke{Term(1), Generation(4), "w2 died"});
  w.Done({.ok = false, .aborted = true});
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK_FALSE(w.Said<SurveyAnswer>()[0].state.complete);
  w.Hear(f);  // late: must not revive it
  CHECK(w.core.phase() == Phase::kRevoked);
}

TEST_CASE("worker: a joiner that never got its Form answers the survey all the same",
          "[membership]") {
  Worker w;
  w.Hear(Revoke{Term(1), Generation(4), "w2 died"});
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].generation == Generation(4));
  CHECK_FALSE(w.Said<SurveyAnswer>()[0].state.complete);
}

TEST_CASE("worker: a checkpoint is bad when it cannot be read, not when loading is cut off",
          "[membership]") {
  Worker w;
  Form f = w.FormOf(2, 5);
  f.restore = RestoreSource{"step-5.t1", {Timeline(1), Step(5)}};
  f.transfers = {{Rank(0), Rank(1)}};
  w.Hear(f);
  REQUIRE(w.Runs<LoadCheckpoint>());
  SECTION("cut off") {
    w.Hear(Revoke{Term(1), Generation(2), "w2 died"});
    w.Done({.ok = false, .aborted = true});
    CHECK(w.Said<RestoreFailed>().empty());
  }
  SECTION("unreadable") {
    w.Done({.ok = false, .reason = "wrong CRC32C"});
    REQUIRE(w.Said<RestoreFailed>().size() == 1);
    CHECK(w.Said<RestoreFailed>()[0].checkpoint == "step-5.t1");
    w.Hear(Revoke{Term(1), Generation(2), "unreadable"});
  }
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK_FALSE(w.Said<SurveyAnswer>()[0].state.complete);
}

TEST_CASE("worker: a failed collective closes its generation at once", "[membership]") {
  Worker w;
  w.Begin();
  while (w.Runs<Compute>()) w.Done();
  w.Done({.ok = false, .reason = "connection reset", .suspects = {Incarnation(2)}});
  REQUIRE(w.Said<CommFailed>().size() == 1);
  CHECK(w.Said<CommFailed>()[0].suspects == std::vector{Incarnation(2)});
  CHECK(w.Closed().back().generation == Generation(1));
  CHECK(w.core.phase() == Phase::kRevoked);
  // The report may have been lost with the stream: it is said again.
  w.In(StreamLost{});
  w.In(StreamOpened{});
  w.Hear(Registered{Term(2), Registration(2)});
  CHECK(w.Said<CommFailed>().size() == 2);
}

TEST_CASE("worker: after reconnecting it says again what may have been lost", "[membership]") {
  Options options = SmallOptions();
  options.total_steps = 1;
  options.evaluation = true;
  Worker w(options);
  w.Begin();
  w.ToVote();
  w.Done({.vote = w.Result()});
  w.Done();  // Apply
  REQUIRE(w.Runs<Snapshot>());
  w.Done();
  REQUIRE(w.Runs<Evaluate>());
  w.Done();
  w.In(PartDone{{{Timeline(1), Step(1)}, Generation(1), Rank(0), 1, true, "{}"}});
  w.In(StreamLost{});
  w.In(StreamOpened{});
  CHECK(w.Said<Register>().back().active);
  CHECK(w.Said<Register>().back().unsettled.size() == 1);
  w.Hear(Registered{Term(2), Registration(2)});
  CHECK(w.Said<PartWritten>().size() == 2);
  CHECK(w.Said<Evaluated>().size() == 2);
  CHECK(w.Said<Report>().size() == 2);
  w.Hear(Settled{{Timeline(1), Step(1)}});
  w.In(StreamOpened{});
  CHECK(w.Said<Register>().back().unsettled.empty());
}

TEST_CASE("worker: training goes on without a coordinator", "[membership]") {
  Worker w;
  w.Begin();
  w.In(StreamLost{});
  w.ToVote();
  w.Done({.vote = w.Result()});
  w.Done();
  w.Done();
  CHECK(w.Runs<Compute>());
  CHECK(w.core.position().step == Step(1));
}

TEST_CASE("worker: SIGTERM twice is one notice; release ends it", "[membership]") {
  Worker w;
  w.Begin();
  w.In(LeaveNotice{10'000, "SIGTERM"});
  w.In(LeaveNotice{10'000, "SIGTERM"});
  CHECK(w.Said<DrainNotice>().size() == 1);
  CHECK_FALSE(w.Exit());
  w.Hear(Release{75, "drained"});
  CHECK(w.Exit()->exit_code == 75);
  CHECK(w.core.phase() == Phase::kStopped);
}

TEST_CASE("worker: asked to leave before it knows anybody, it leaves at once", "[membership]") {
  Worker w;
  w.In(StreamLost{});
  w.In(LeaveNotice{10'000, "SIGTERM"});
  REQUIRE(w.Exit().has_value());
  CHECK(w.Exit()->exit_code == 75);
}

TEST_CASE("worker: a command of its own that fails makes it leave", "[membership]") {
  Worker w;
  w.Begin();
  w.Done({.ok = false, .reason = "out of memory"});
  CHECK(w.Said<Leaving>().size() == 1);
  CHECK(w.Exit()->exit_code == 1);
}

TEST_CASE("worker: in a stopping view it checkpoints and waits", "[membership]") {
  Worker w;
  Form f = w.FormOf(1);
  f.from_seed = true;
  f.purpose = Purpose::kStop;
  w.Hear(f);
  w.Done();
  w.Done();
  w.Hear(Activate{Term(1), Generation(1)});
  REQUIRE(w.Runs<Snapshot>());
  CHECK(w.Ran<Snapshot>().back().version == Version{Timeline(1), Step(0)});
  w.Done();
  CHECK(w.Ran<Compute>().empty());
}

TEST_CASE("newcomer: what it copied beside needs no other copy", "[membership]") {
  Worker w;
  const Prepare p = w.PrepareOf(4);
  w.Hear(p);
  REQUIRE(w.RanBeside<PrepareView>().size() == 1);
  CHECK(w.RanBeside<PrepareView>()[0].rank == Rank(1));
  CHECK(w.Said<Prepared>().empty());
  w.In(BesideCompletion{.command = w.RanBeside<PrepareView>()[0],
                        .copied = Version{Timeline(1), Step(7)},
                        .updates = 6});
  REQUIRE(w.Said<Prepared>().size() == 1);
  CHECK(w.Said<Prepared>()[0].generation == Generation(4));
  CHECK(w.Said<Prepared>()[0].copied == Version{Timeline(1), Step(7)});
  CHECK_FALSE(w.core.state().complete);  // nothing counts before the Form
  w.Hear(w.JoinOf(p, 7));
  REQUIRE(w.Runs<Connect>());
  w.Done();
  CHECK(w.Ran<CopyState>().empty());
  CHECK(w.Said<Ready>().size() == 1);
  CHECK(w.core.position().step == Step(7));
  CHECK(w.core.state().updates == 6);
}

TEST_CASE("newcomer: a Form that counts on a copy it lacks is a failed generation",
          "[membership]") {
  Worker w;
  const Prepare p = w.PrepareOf(4);
  w.Hear(p);
  BesideCompletion done{.command = w.RanBeside<PrepareView>()[0]};
  SECTION("of another version") { done.copied = Version{Timeline(1), Step(6)}; }
  SECTION("of several versions") {}
  SECTION("failed") { done.ok = false; }
  w.In(done);
  REQUIRE(w.Said<Prepared>().size() == 1);
  CHECK(w.Said<Prepared>()[0].ok == done.ok);
  w.Hear(w.JoinOf(p, 7));
  w.Done();  // Connect
  REQUIRE(w.Said<CommFailed>().size() == 1);
  CHECK(w.Said<CommFailed>()[0].generation == Generation(4));
  CHECK(w.Said<CommFailed>()[0].suspects.empty());
  CHECK(w.Closed().back().generation == Generation(4));
  CHECK(w.core.phase() == Phase::kRevoked);
  CHECK(w.Said<Ready>().empty());
}

TEST_CASE("newcomer: a copy that is made again does not count meanwhile", "[membership]") {
  Worker w;
  Prepare p = w.PrepareOf(4);
  w.Hear(p);
  w.In(BesideCompletion{.command = w.RanBeside<PrepareView>()[0],
                        .copied = Version{Timeline(1), Step(7)}});
  p.round = 1;
  w.Hear(p);
  REQUIRE(w.RanBeside<PrepareView>().size() == 2);
  CHECK(w.RanBeside<PrepareView>()[1].round == 1);
  w.In(BesideCompletion{.command = w.RanBeside<PrepareView>()[1], .ok = false, .aborted = true});
  w.Hear(w.JoinOf(p, 7));
  w.Done();  // Connect
  CHECK(w.Said<CommFailed>().size() == 1);
}

TEST_CASE("newcomer: no command runs while the state is written beside", "[membership]") {
  Worker w;
  const Prepare p = w.PrepareOf(4);
  w.Hear(p);
  Form f = w.JoinOf(p, 7);
  f.transfers = p.transfers;
  f.view = std::make_shared<View>(View{Generation(5), f.view->members});
  w.Hear(f);                                             // the change was made unprepared
  CHECK(w.Closed().back().generation == Generation(4));  // which ends the copy
  CHECK(w.Ran<Connect>().empty());
  w.In(BesideCompletion{.command = w.RanBeside<PrepareView>()[0], .ok = false, .aborted = true});
  CHECK(w.Said<Prepared>().empty());
  CHECK(w.Runs<Connect>());
  w.Done();
  CHECK(w.Runs<CopyState>());
}

TEST_CASE("prepare: a donor computes on and answers", "[membership]") {
  Worker w;
  w.Begin();
  Prepare p = w.PrepareOf(4);
  p.view = std::make_shared<View>(View{Generation(4), {MemberOf(1), MemberOf(2), MemberOf(3)}});
  p.transfers = {{Rank(0), Rank(2)}};
  p.hold = true;
  w.Hear(p);
  REQUIRE(w.RanBeside<PrepareView>().size() == 1);
  CHECK(w.RanBeside<PrepareView>()[0].hold);
  w.Done();
  CHECK(w.Ran<Compute>().size() == 2);
  w.In(BesideCompletion{.command = w.RanBeside<PrepareView>()[0],
                        .ok = false,
                        .reason = "cannot connect",
                        .suspects = {Incarnation(3)}});
  REQUIRE(w.Said<Prepared>().size() == 1);
  CHECK_FALSE(w.Said<Prepared>()[0].ok);
  CHECK(w.Said<Prepared>()[0].unreachable == std::vector{Incarnation(3)});
  CHECK(w.core.phase() == Phase::kActive);
}

TEST_CASE("prepare: proposals and orders of the past are ignored", "[membership]") {
  Worker w;
  w.Begin();
  w.Hear(Registered{Term(2), Registration(2)});
  w.Hear(w.PrepareOf(4, 1));  // of an older term
  w.Hear(Worker::OrderOf(1, 2, 1));
  w.Hear(Worker::OrderOf(2, 1, 1));
  w.Hear(w.PrepareOf(1, 2));  // of a generation that is no longer ahead
  HandOver other = Worker::OrderOf(1, 2, 2);
  other.generation = Generation(2);  // that is not this worker's
  w.Hear(other);
  Prepare foreign = w.PrepareOf(4, 2);
  foreign.view = std::make_shared<View>(View{Generation(4), {MemberOf(2), MemberOf(3)}});
  w.Hear(foreign);
  w.Done();
  CHECK(w.RanBeside<PrepareView>().empty());
  CHECK(w.RanBeside<SendAccumulator>().empty());
  CHECK(w.RanBeside<ReceiveAccumulator>().empty());
  CHECK(w.Ran<Compute>().size() == 2);
  w.Hear(Revoke{Term(2), Generation(5), "w2 died"});
  w.Done();
  w.Hear(w.PrepareOf(5, 2));  // closed
  CHECK(w.RanBeside<PrepareView>().empty());
}

TEST_CASE("leaver: it hands over what it has, whole, and computes nothing more", "[membership]") {
  Worker w;
  w.Begin();
  w.Hear(Worker::OrderOf(1, 2));
  CHECK(w.RanBeside<SendAccumulator>().empty());  // the micro-batch under way is finished first
  w.Done();
  REQUIRE(w.RanBeside<SendAccumulator>().size() == 1);
  const SendAccumulator sent = w.RanBeside<SendAccumulator>()[0];
  CHECK(sent.secret == "channel");
  CHECK(sent.channel->generation == Generation(9));
  CHECK(sent.held == MemberState::Held{Incarnation(1), w.core.position(), Set(0, 1)});
  CHECK(w.Ran<Compute>().size() == 1);
  SECTION("nor when it is sent") {
    w.In(BesideCompletion{.command = sent});
    CHECK(w.Said<Prepared>().empty());  // the receiver says that it is there
  }
  SECTION("nor when that failed, which it says") {
    w.In(BesideCompletion{.command = sent, .ok = false, .reason = "connection reset"});
    REQUIRE(w.Said<Prepared>().size() == 1);
    CHECK_FALSE(w.Said<Prepared>()[0].ok);
    CHECK(w.Said<Prepared>()[0].generation == Generation(9));
  }
  CHECK(w.Ran<Compute>().size() == 1);
  CHECK(w.RanBeside<SendAccumulator>().size() == 1);
  // Kept after all, it counts what it has.
  w.Hear(Revoke{Term(1), Generation(1), "w2 died"});
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].state.accumulated == Set(0, 1));
  w.Hear(w.AloneOf(0, Set(0, 1), false));
  w.Done();  // Connect
  w.Hear(Activate{Term(1), Generation(10)});
  CHECK(w.Ran<Compute>().back().index == 1);
}

TEST_CASE("leaver: the survey is answered while the accumulator is sent, and nothing runs",
          "[membership]") {
  Worker w;
  w.Begin();
  w.Hear(Worker::OrderOf(1, 2));
  w.Done();
  w.Hear(Revoke{Term(1), Generation(1), "w2 died"});
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].state.accumulated == Set(0, 1));
  const size_t connects = w.Ran<Connect>().size();
  w.Hear(w.AloneOf(0, Set(0, 1), false));
  CHECK(w.Closed().back().generation == Generation(9));  // which ends the channel
  CHECK(w.Ran<Connect>().size() == connects);
  w.In(
      BesideCompletion{.command = w.RanBeside<SendAccumulator>()[0], .ok = false, .aborted = true});
  CHECK(w.Ran<Connect>().size() == connects + 1);
  CHECK(w.Said<Prepared>().empty());
}

TEST_CASE("leaver: without a coordinator it computes on, for the others need its share",
          "[membership]") {
  Worker w;
  w.Begin();
  w.Hear(Worker::OrderOf(1, 2));
  SECTION("before it has begun to hand over") {
    w.In(StreamLost{});
    w.Done();
    CHECK(w.RanBeside<SendAccumulator>().empty());
  }
  SECTION("once what it sends is sent") {
    w.Done();
    w.In(StreamLost{});
    CHECK(w.Ran<Compute>().size() == 1);
    w.In(BesideCompletion{.command = w.RanBeside<SendAccumulator>()[0]});
  }
  CHECK(w.Ran<Compute>().size() == 2);
  w.ToVote();
  CHECK(w.Ran<Vote>().back().count == 2);
}

TEST_CASE("leaver: it hands over out of a collective, where it may wait for another leaver",
          "[membership]") {
  Worker w;
  w.Begin();
  while (w.Runs<Compute>()) w.Done();
  REQUIRE(w.Runs<Reduce>());
  const bool voting = GENERATE(false, true);
  if (voting) w.Done();
  w.Hear(Worker::OrderOf(1, 2));
  REQUIRE(w.RanBeside<SendAccumulator>().size() == 1);
  CHECK(w.RanBeside<SendAccumulator>()[0].held.micro_batches == Set(0, 2));
  // The others came all the same: what follows writes, and waits until all is sent.
  w.Done({.vote = voting ? std::optional(w.Result()) : std::nullopt});
  CHECK(w.Ran<Vote>().size() == (voting ? 1 : 0));
  CHECK(w.Ran<Apply>().empty());
  w.In(BesideCompletion{.command = w.RanBeside<SendAccumulator>()[0]});
  if (!voting) {
    REQUIRE(w.Runs<Vote>());
    w.Done({.vote = w.Result()});
  }
  REQUIRE(w.Runs<Apply>());
  w.Done();
  w.Done();  // ClearAccumulator
  CHECK(w.core.position().step == Step(1));
  CHECK(w.RanBeside<SendAccumulator>().size() == 1);
  CHECK(w.Ran<Compute>().size() == 2);  // its share of the next step is others' after the switch
}

TEST_CASE("leaver: sums that were reduced meanwhile are handed over before the vote",
          "[membership]") {
  Worker w;
  w.Begin();
  while (w.Runs<Compute>()) w.Done();
  w.Hear(Worker::OrderOf(1, 2));
  w.Done();                       // Reduce
  w.Hear(Worker::OrderOf(1, 2));  // of the next proposal, while the first is being followed
  CHECK(w.RanBeside<SendAccumulator>().size() == 1);
  w.In(BesideCompletion{.command = w.RanBeside<SendAccumulator>()[0]});
  REQUIRE(w.RanBeside<SendAccumulator>().size() == 2);
  CHECK(w.Ran<Vote>().empty());
  w.In(BesideCompletion{.command = w.RanBeside<SendAccumulator>()[1]});
  CHECK(w.Runs<Vote>());
}

TEST_CASE("receiver: what it holds is in its answer, and enters the sum where the Form says so",
          "[membership]") {
  Worker w;
  w.Begin();
  w.ReceiveHeld(Set(2, 3));
  REQUIRE(w.Said<HandedOver>().size() == 1);
  CHECK(w.Said<HandedOver>()[0].channel == Generation(9));
  CHECK(w.Said<HandedOver>()[0].held.micro_batches == Set(2, 3));
  CHECK(w.Ran<Compute>().size() == 1);  // it computes meanwhile
  w.Done();
  w.Hear(Revoke{Term(1), Generation(1), "w2 drains"});
  w.Done();
  REQUIRE(w.Said<SurveyAnswer>().size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].state.held.size() == 1);
  CHECK(w.Said<SurveyAnswer>()[0].state.accumulated == Set(0, 2));
  SECTION("merged") {
    w.Hear(w.AloneOf(0, Set(0, 3), true));
    w.Done();  // Connect
    REQUIRE(w.Runs<MergeHeld>());
    CHECK(w.Ran<MergeHeld>()[0].owners == std::vector{Incarnation(2)});
    w.Done();
    CHECK(w.core.state().accumulated == Set(0, 3));
    CHECK(w.Said<Ready>().size() == 2);
    CHECK(w.Ran<ClearAccumulator>().size() == 1);  // that of the beginning
    w.Hear(Activate{Term(1), Generation(10)});
    CHECK(w.Ran<Compute>().back().index == 3);
    w.ToVote();
    CHECK(w.Ran<Vote>().back().count == 4);
  }
  SECTION("dropped: its owner stays") {
    w.Hear(w.AloneOf(0, Set(0, 2), false));
    w.Done();
    CHECK(w.Ran<MergeHeld>().empty());
    CHECK(w.Said<Ready>().size() == 2);
    CHECK(w.core.state().accumulated == Set(0, 2));
  }
  SECTION("merged, and then that generation fails: it is this member's own now") {
    w.Hear(w.AloneOf(0, Set(0, 3), true));
    w.Done();
    w.Hear(Revoke{Term(1), Generation(10), "again"});
    w.Done();  // MergeHeld
    REQUIRE(w.Said<SurveyAnswer>().size() == 2);
    CHECK(w.Said<SurveyAnswer>()[1].state.accumulated == Set(0, 3));
    CHECK(w.Said<SurveyAnswer>()[1].state.held.empty());
  }
  CHECK(w.core.state().held.empty());
}

TEST_CASE("receiver: rolled forward, it clears the last step's sum before it adds the leaver's",
          "[membership]") {
  Worker w;
  w.Begin();
  w.ToVote();
  w.ReceiveHeld(Set(2, 3), 1);  // the leaver is a step ahead
  CHECK(w.Said<HandedOver>().size() == 1);
  const VoteResult result = w.Result();
  w.Hear(Revoke{Term(1), Generation(1), "w2 drains"});
  w.Done({.vote = result});
  Form f = w.AloneOf(1, Set(2, 3), true);
  f.result = result;
  w.Hear(f);
  w.Done();  // Apply
  w.Done();  // Connect
  REQUIRE(w.Runs<ClearAccumulator>());
  CHECK(w.Ran<ClearAccumulator>().back().position.step == Step(1));
  w.Done();
  REQUIRE(w.Runs<MergeHeld>());
  w.Done();
  w.Hear(Activate{Term(1), Generation(10)});
  REQUIRE(w.Runs<Compute>());  // and not another ClearAccumulator
  CHECK(w.Ran<Compute>().back().index == 0);
  w.ToVote();
  CHECK(w.Ran<Vote>().back().count == 4);
}

TEST_CASE("receiver: when the step is decided, what it holds of it is over", "[membership]") {
  Worker w;
  w.Begin();
  w.ReceiveHeld(Set(2, 3));
  CHECK(w.core.state().held.size() == 1);
  w.Done();
  w.ToVote();
  w.Done({.vote = w.Result()});
  w.Done();  // Apply
  CHECK(w.core.state().held.empty());
  w.ReceiveHeld(Set(2, 3));  // late
  CHECK(w.core.state().held.empty());
  CHECK(w.Said<HandedOver>().size() == 1);
  REQUIRE(w.Said<Prepared>().size() == 1);  // and nobody waits for it
  CHECK_FALSE(w.Said<Prepared>()[0].ok);
  CHECK(w.Said<Prepared>()[0].generation == Generation(9));
}

TEST_CASE("receiver: a newer accumulator of one owner takes the place of the older",
          "[membership]") {
  Worker w;
  w.Begin();
  w.ReceiveHeld(Set(2, 3));
  w.ReceiveHeld(Set(2, 4));
  REQUIRE(w.core.state().held.size() == 1);
  CHECK(w.core.state().held[0].micro_batches == Set(2, 4));
}

}  // namespace starling::membership
