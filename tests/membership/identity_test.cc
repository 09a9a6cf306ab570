// Which checkpoints and which configurations belong to a run: what the core says of them.
#include <catch2/catch_test_macros.hpp>
#include <limits>

#include "cluster.h"
#include "starling/base/exit_codes.h"
#include "starling/base/status.h"

namespace starling::membership {
namespace {

using testing::Cluster;
using testing::SmallOptions;

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

Version At(uint64_t timeline, int64_t step) { return {Timeline(timeline), Step(step)}; }

// A checkpoint of the first step of the view's timeline; what the core orders for it.
Ancestry AncestryOfNextManifest(Cluster& c) {
  const Position position = c.LastForm(1).position;
  const int64_t step = position.step.value() + 1;
  c.Vote(step, position.timeline.value());
  const Version version = At(position.timeline.value(), step);
  c.Say(1, PartWritten{version, c.core->view()->generation, Rank(0), step, true, "{}"});
  const auto orders = c.Out<WriteManifest>();
  REQUIRE(orders.size() == 1);
  CHECK(orders[0].version == version);
  CHECK(orders[0].data_hash == 3);
  return orders[0].ancestry;
}

TEST_CASE("manifest: the ancestry is the way back through the restores", "[membership]") {
  RestoredState state;
  state.checkpoints = {{"step-5.t1", At(1, 5), true}, {"step-9.t1", At(1, 9), true}};
  state.bad_checkpoints = {"step-9.t1"};
  Cluster c(SmallOptions(1), state);
  c.Begin({1});
  CHECK(AncestryOfNextManifest(c) == Ancestry{At(2, kAll), At(1, 5)});
}

TEST_CASE("manifest: after a lost journal everything older counts, as it does for a restore",
          "[membership]") {
  RestoredState state;  // no journal: what is on the disk
  state.checkpoints = {
      {"step-4.t1", At(1, 4), true}, {"step-8.t2", At(2, 8), true}, {"step-9.t3", At(3, 9), true}};
  Cluster c(SmallOptions(1), state);
  Register m = c.Introduction(1);
  m.view = std::make_shared<View>(View{Generation(40), {Cluster::MemberOf(1)}});
  m.active = true;
  m.state = c.Complete(10, {}, 3);
  c.Join(m);
  REQUIRE(c.Told("adopted"));
  c.Answer(1, c.Complete(10, {}, 3));
  c.ReadyAll();
  CHECK(AncestryOfNextManifest(c) == Ancestry{At(3, kAll), At(2, kAll), At(1, kAll)});
}

TEST_CASE("configuration: a changed one is refused without --accept-config-change",
          "[membership]") {
  Cluster c(SmallOptions(1));
  CHECK(CheckIdentity(SmallOptions(1), c.journal).ok());
  Options other = SmallOptions(1);
  other.run_id = "other";
  other.accept_config_change = true;  // of another run it says nothing
  CHECK(ExitCodeFor(CheckIdentity(other, c.journal)) == ExitCode::kConfig);
  Options changed = SmallOptions(1);
  changed.config_hash = 99;
  CHECK(ExitCodeFor(CheckIdentity(changed, c.journal)) == ExitCode::kConfig);
  changed.accept_config_change = true;
  REQUIRE(CheckIdentity(changed, c.journal).ok());
  Cluster accepted(changed, c.journal);
  CHECK(accepted.Told("config_changed"));
  changed.accept_config_change = false;  // journalled: from now on it is the run's meaning
  CHECK(CheckIdentity(changed, accepted.journal).ok());
}

}  // namespace
}  // namespace starling::membership
