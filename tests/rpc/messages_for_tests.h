// One message of every kind with every field set to something that is not its default. Pure.
#pragma once

#include <memory>
#include <vector>

#include "starling/membership/messages.h"
#include "starling/rpc/requests.h"

namespace starling::rpc::testing {

inline plan::IntervalSet SomeSet(int64_t from) {
  return plan::IntervalSet::Of({{from, from + 2}, {from + 5, from + 6}});
}
inline Version SomeVersion() { return {Timeline(3), Step(41)}; }
inline membership::Position SomePosition() { return {Timeline(3), Step(41), Attempt(2)}; }

inline membership::VoteResult SomeVote() {
  membership::VoteResult vote;
  vote.generation = Generation(7);
  vote.at = SomePosition();
  vote.outcome = membership::Outcome::kSkip;
  vote.count = 12;
  vote.mix = 0x8000000000000001u;
  vote.update = 40;
  vote.learning_rate = 2.5e-3;
  vote.mlm_loss = 101.5;
  vote.sop_loss = 8.25;
  vote.tokens = 4096;
  vote.grad_norm = 1.75;
  vote.clip_factor = 0.5;
  vote.weight_squares = {1.5, 2.5};
  vote.update_squares = {0.25, 0.125};
  vote.speeds = {1000, 2000};
  vote.checkpoint_requested = true;
  vote.digests = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  return vote;
}
inline membership::LedgerLine SomeLine() {
  return {SomeVersion(),
          Generation(7),
          {SomeSet(1), SomeSet(10)},
          true,
          membership::Digest{9, 10, 11, 12}};
}
inline membership::MemberState SomeState() {
  membership::MemberState state;
  state.complete = true;
  state.position = SomePosition();
  state.updates = 40;
  state.last_result = SomeVote();
  state.pending_result = SomeVote();
  state.pending_result->outcome = membership::Outcome::kRepeat;
  state.has_reduced = true;
  state.accumulated = SomeSet(2);
  state.held = {{Incarnation(99), SomePosition(), SomeSet(20)}};
  return state;
}
inline membership::Member SomeMember(uint64_t incarnation) {
  return {Incarnation(incarnation), "host/0", "host", 1234, "10.0.0.1:5"};
}
inline std::shared_ptr<const membership::View> SomeView() {
  auto view = std::make_shared<membership::View>();
  view->generation = Generation(7);
  view->members = {SomeMember(0xfedcba9876543210u), SomeMember(2), SomeMember(3)};
  return view;
}

inline std::shared_ptr<const membership::View> SomeChannel() {
  return std::make_shared<membership::View>(
      membership::View{Generation(9), {SomeMember(2), SomeMember(3)}});
}

inline std::vector<membership::WorkerMessage> AllWorkerMessages() {
  using namespace membership;  // NOLINT: one message of each kind
  Register reg;
  reg.member = SomeMember(5);
  reg.run_id = "run";
  reg.numerics_version = "n1";
  reg.config_hash = 11;
  reg.model_hash = 12;
  reg.data_hash = 13;
  reg.highest_term = Term(4);
  reg.view = SomeView();
  reg.active = true;
  reg.state = SomeState();
  reg.unsettled = {SomeLine(), SomeLine()};
  return {reg,
          Heartbeat{17, true, 3.5},
          SurveyAnswer{Generation(7), SomeState(), {SomeLine()}},
          Report{SomeVote(), SomeLine()},
          CommFailed{Generation(7), "reset", {Incarnation(2), Incarnation(3)}},
          Ready{Generation(7), {SomeLine()}},
          ConnectFailed{Generation(7), {Incarnation(2)}, "refused"},
          FormProgress{Generation(7)},
          RestoreFailed{Generation(7), "step-40.t3", "checksum"},
          DrainNotice{15000, "spot"},
          Leaving{70, "broken"},
          PartWritten{SomeVersion(), Generation(7), Rank(1), 40, true, "{\"file\":\"x\"}"},
          Evaluated{SomeVersion(), Generation(7), Rank(1), {1.5, 10, 4, 0.5, 6, 5}},
          Prepared{Generation(9), 2, true, "no route", {Incarnation(2)}, SomeVersion()},
          HandedOver{Generation(9), {Incarnation(99), SomePosition(), SomeSet(3)}}};
}

inline std::vector<membership::CoordinatorMessage> AllCoordinatorMessages() {
  using namespace membership;  // NOLINT: one message of each kind
  Form form;
  form.term = Term(4);
  form.view = SomeView();
  form.secret = "secret";
  form.purpose = Purpose::kStop;
  form.position = SomePosition();
  form.updates = 40;
  form.result = SomeVote();
  form.claims = {SomeSet(0), SomeSet(10), SomeSet(40)};
  form.assignment = {SomeSet(20), SomeSet(30), SomeSet(50)};
  form.merge = {{Rank(1), Incarnation(99)}};
  form.transfers = {{Rank(1), Rank(2)}, {Rank(1), Rank(0)}};
  form.restore = RestoreSource{"step-40.t3", SomeVersion()};
  form.from_seed = true;
  form.latest_checkpoint = SomeVersion();
  form.latest_evaluation = SomeVersion();
  return {Registered{Term(4), Registration(6), true},
          Refused{76, "old"},
          Revoke{Term(4), Generation(7), "lost"},
          Prepare{Term(4), SomeView(), "secret", {{Rank(2), Rank(1)}, {Rank(1), Rank(2)}}, 2, true},
          form,
          Activate{Term(4), Generation(7)},
          Settled{SomeVersion()},
          RequestCheckpoint{},
          Release{75, "drained"},
          HandOver{Term(4), Generation(7), SomeChannel(), "secret"}};
}

inline StatusReport SomeReport() {
  StatusReport report;
  report.run = "run";
  report.status.term = Term(4);
  report.status.generation = Generation(7);
  report.status.phase = "running";
  report.status.phase_reason = "training";
  report.status.position = SomePosition();
  report.status.settled = SomeVersion();
  report.status.target_workers = 3;
  report.status.workers = {{SomeMember(5), Rank(0), "active", 2.5, absl::Milliseconds(120)},
                           {SomeMember(6), std::nullopt, "joining", 0, absl::Milliseconds(20)}};
  report.status.latest_checkpoint = SomeVersion();
  report.status.last_result = SomeVote();
  report.goodput = 0.97;
  report.total_steps = 200;
  report.micro_batches = 12;
  report.http_address = "127.0.0.1:80";
  return report;
}

}  // namespace starling::rpc::testing
