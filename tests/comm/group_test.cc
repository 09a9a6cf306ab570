// The fence around the current generation, and faults injected at exact calls.
#include "starling/comm/group.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "comm/world.h"
#include "starling/base/clock.h"
#include "starling/comm/fault.h"

namespace starling::comm::testing {
namespace {

std::unique_ptr<Communicator> Alone(uint64_t generation) {
  World world(Backend::kThread, 1, generation);
  return std::move(world.ranks[0]);
}

TEST_CASE("group: only a generation that is open is given out", "[comm]") {
  Group group;
  CHECK(absl::IsFailedPrecondition(group.Get(Generation(1)).status()));
  group.Install(Alone(4));
  CHECK(group.Get(Generation(4)).ok());
  CHECK(absl::IsFailedPrecondition(group.Get(Generation(3)).status()));
  CHECK(absl::IsFailedPrecondition(group.Get(Generation(5)).status()));
}

TEST_CASE("group: the next generation beside the current one, closing ends all older", "[comm]") {
  Group group;
  group.Install(Alone(4));
  const auto older = *group.Get(Generation(4));
  group.Install(Alone(6));
  CHECK(older->Barrier(kPatience).ok());
  group.Close(Generation(5), "a newer view forms");
  CHECK(absl::IsAborted(older->Barrier(kPatience)));
  CHECK((*group.Get(Generation(6)))->Barrier(kPatience).ok());
}

TEST_CASE("group: a finished generation is gone, older ones stay open", "[comm]") {
  Group group;
  group.Install(Alone(4));
  group.Install(Alone(6));
  group.Finish(Generation(6));
  group.Finish(Generation(7));  // never was there
  CHECK(absl::IsFailedPrecondition(group.Get(Generation(6)).status()));
  CHECK(group.Get(Generation(4)).ok());
}

TEST_CASE("group: a closed generation stays closed, also when it is installed later", "[comm]") {
  Group group;
  group.Install(Alone(4));
  const auto current = *group.Get(Generation(4));
  group.Close(Generation(5), "revoked");
  CHECK(absl::IsAborted(current->Barrier(kPatience)));
  CHECK(absl::IsFailedPrecondition(group.Get(Generation(4)).status()));
  group.Install(Alone(5));
  CHECK(absl::IsFailedPrecondition(group.Get(Generation(5)).status()));
  group.Install(Alone(6));
  CHECK(group.Get(Generation(6)).ok());
}

TEST_CASE("group: close reaches a communicator that another thread is blocked in", "[comm]") {
  World world(Backend::kThread, 2);
  Group group;
  group.Install(std::move(world.ranks[0]));
  const auto current = *group.Get(Generation(1));
  absl::Status status;
  std::thread training([&] { status = current->Barrier(kPatience); });
  group.Close(Generation(1), "revoked");
  training.join();
  CHECK(absl::IsAborted(status));
}

TEST_CASE("fault: every accepted form is parsed", "[comm]") {
  const auto faults = ParseFaults(
      "kill@gen=2,rank=1,call=5; fail@gen=*,rank=*,call=1;stall@gen=3,rank=0,call=2,ms=3000;"
      "pace@ms=50");
  REQUIRE(faults.ok());
  REQUIRE(faults->size() == 4);
  CHECK((*faults)[0].kind == Fault::Kind::kKill);
  CHECK((*faults)[0].generation == Generation(2));
  CHECK((*faults)[0].rank == Rank(1));
  CHECK((*faults)[0].call == 5);
  CHECK_FALSE((*faults)[1].generation.has_value());
  CHECK_FALSE((*faults)[1].rank.has_value());
  CHECK((*faults)[2].duration == absl::Seconds(3));
  CHECK((*faults)[3].kind == Fault::Kind::kPace);
  CHECK((*faults)[3].duration == absl::Milliseconds(50));
  CHECK(ParseFaults("")->empty());
  const auto points = *ParseFaults(
      "kill@point=vote;kill@gen=2,rank=*,point=compute,nth=5,ms=20;stall@rank=1,point=copy,ms=30");
  CHECK(points[0].point == FaultPoint::kVote);
  CHECK(points[0].nth == 1);
  CHECK(points[1].generation == Generation(2));
  CHECK(points[1].nth == 5);
  CHECK(points[1].duration == absl::Milliseconds(20));
  CHECK(points[2].rank == Rank(1));
}

TEST_CASE("fault: malformed text is refused with the offending part", "[comm]") {
  for (const std::string text :
       {"kill", "boom@gen=1,rank=0,call=1", "kill@gen=1,rank=0", "kill@gen=1,rank=0,call=0",
        "kill@gen=x,rank=0,call=1", "kill@gen=1,rank=0,call=*", "kill@gen=1,rank=0,call=1,ms=5",
        "stall@gen=1,rank=0,call=1", "pace@ms=-1", "kill@gen=1,gen=2,rank=0,call=1",
        "kill@gen=1,rank=99999999999,call=1", "pace@ms", "kill@point=nowhere",
        "kill@point=vote,nth=0", "stall@point=vote", "kill@point=vote,call=1",
        "fail@gen=1,rank=0,point=vote"}) {
    CAPTURE(text);
    const absl::Status status = ParseFaults("pace@ms=1;" + text).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK(std::string(status.message()).find(text) != std::string::npos);
  }
}

TEST_CASE("fault: fail acts at its generation, rank and call, and the peers see a broken peer",
          "[comm]") {
  const auto faults = *ParseFaults("fail@gen=1,rank=1,call=3");
  World world(Backend::kThread, 2);
  for (auto& rank : world.ranks) rank = WithFaults(std::move(rank), faults);
  std::vector<int> good(2);
  const auto statuses = world.Run([&](Communicator& rank) {
    while (true) {
      if (absl::Status status = rank.Barrier(kPatience); !status.ok()) return status;
      ++good[static_cast<size_t>(rank.rank().value())];
    }
  });
  CHECK(good == std::vector<int>{2, 2});
  CHECK(absl::IsUnavailable(statuses[0]));
  CHECK(absl::IsUnavailable(statuses[1]));
  CHECK(world[1].suspects() == std::vector<Rank>{Rank(0)});
  CHECK(absl::IsUnavailable(world[1].Barrier(kPatience)));
}

TEST_CASE("fault: a point acts at its generation and rank, the n-th time", "[comm]") {
  FaultPoints points(*ParseFaults("stall@gen=2,rank=1,point=vote,nth=2,ms=30;pace@ms=1"));
  const auto passes = [&](FaultPoint point, uint64_t generation, int rank) {
    const absl::Time begin = SystemClock::Get().Now();
    points.Pass(point, Generation(generation), Rank(rank));
    return SystemClock::Get().Now() - begin < absl::Milliseconds(30);
  };
  CHECK(passes(FaultPoint::kVote, 2, 1));
  CHECK(passes(FaultPoint::kVote, 2, 0));
  CHECK(passes(FaultPoint::kVote, 1, 1));
  CHECK(passes(FaultPoint::kVoted, 2, 1));
  CHECK_FALSE(passes(FaultPoint::kVote, 2, 1));
  CHECK(passes(FaultPoint::kVote, 2, 1));
}

TEST_CASE("fault: others are left alone and get the communicator itself", "[comm]") {
  std::unique_ptr<Communicator> alone = Alone(7);
  Communicator* raw = alone.get();
  alone = WithFaults(std::move(alone), *ParseFaults("fail@gen=6,rank=0,call=1;pace@ms=5"));
  CHECK(alone.get() == raw);
}

TEST_CASE("fault: a stall delays the call and ends with an abort", "[comm]") {
  const absl::Time begin = SystemClock::Get().Now();
  auto stalled = WithFaults(Alone(1), *ParseFaults("stall@gen=*,rank=*,call=1,ms=30"));
  CHECK(stalled->Barrier(kPatience).ok());
  CHECK(SystemClock::Get().Now() - begin >= absl::Milliseconds(30));
  auto endless = WithFaults(Alone(1), *ParseFaults("stall@gen=*,rank=*,call=1,ms=600000"));
  absl::Status status;
  std::thread training([&] { status = endless->Barrier(kPatience); });
  endless->Abort("over");
  training.join();
  CHECK(absl::IsAborted(status));
}

}  // namespace
}  // namespace starling::comm::testing
