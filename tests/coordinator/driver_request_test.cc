// The coordinator with real files, real gRPC and fake workers: what people ask of it, and what it
// refuses.
#include <catch2/catch_test_macros.hpp>

#include "absl/strings/str_cat.h"
#include "coordinator/run_fixture.h"

namespace starling::coordinator::testing {
namespace {

using membership::UserRequest;

TEST_CASE("driver: requests of people, over the wire", "[coordinator]") {
  RunFixture run(ProtocolOptions(100, 2));
  run.network.AllowUpTo(2 * kMicroBatches + 1);
  DriverOptions options = run.Options();
  options.http = "127.0.0.1:0";
  run.StartDriver(options);
  run.AddWorker("w0");
  run.AddWorker("w1");
  REQUIRE(run.watch.AwaitStep(2));
  const rpc::RequestClient client = run.Client();
  const auto status = client.Status(kDeadline);
  REQUIRE(status.ok());
  CHECK(status->run == "test");
  CHECK(status->status.workers.size() == 2);
  CHECK(status->total_steps == 100);
  CHECK(status->http_address == run.driver->http_address());
  const auto unknown =
      client.Ask({.kind = UserRequest::Kind::kDrain, .worker = "nobody"}, kDeadline);
  REQUIRE(unknown.ok());
  CHECK_FALSE(unknown->ok);
  CHECK_FALSE(client.Ask({.kind = UserRequest::Kind::kResize, .target_workers = 0}, kDeadline)->ok);
  CHECK(client.Ask({.kind = UserRequest::Kind::kResize, .target_workers = 3}, kDeadline)->ok);
  CHECK(run.watch.target() == 3);
  // A drained worker leaves with 75 and the others go on.
  CHECK(client.Ask({.kind = UserRequest::Kind::kDrain, .worker = "w1"}, kDeadline)->ok);
  run.network.AllowUpTo(8 * kMicroBatches + 1);  // it finishes the micro-batch under way
  CHECK(run.workers["w1"]->AwaitExit(kDeadline) == static_cast<int>(ExitCode::kDrained));
  REQUIRE(run.watch.AwaitStep(6));
  // A checkpoint on request is answered when it is durable.
  run.network.AllowUpTo(kNoLimit);
  const auto made = client.Ask({.kind = UserRequest::Kind::kCheckpoint}, kDeadline);
  REQUIRE(made.ok());
  CHECK(made->ok);
  run.AwaitEnd();
  run.CheckLedger(100);
}

TEST_CASE("driver: stop, checkpoints the version and everybody leaves with 75", "[coordinator]") {
  RunFixture run(ProtocolOptions(100000, 2));
  run.StartDriver();
  run.AddWorker("w0");
  run.AddWorker("w1");
  REQUIRE(run.watch.AwaitStep(3));
  UserRequest stop{.kind = UserRequest::Kind::kStop};
  stop.reason = "test";
  run.driver->Request(stop, [](rpc::RequestReply) {});
  run.AwaitEnd(ExitCode::kDrained);
  for (auto& [name, worker] : run.workers) {
    CHECK(worker->AwaitExit(kDeadline) == static_cast<int>(ExitCode::kDrained));
  }
  const int64_t last = run.Lines("ledger.jsonl").back()["step"];
  CHECK(checkpoint::Verify(run.path(absl::StrCat("checkpoints/step-", last, ".t1"))).ok());
}

TEST_CASE("driver: a second coordinator on one folder, refused and told who holds it",
          "[coordinator]") {
  RunFixture run(ProtocolOptions(10, 1));
  run.StartDriver();
  const auto second = Driver::Start(run.Options());
  REQUIRE_FALSE(second.ok());
  CHECK(ExitCodeFor(second.status()) == ExitCode::kCannotCreate);
  CHECK(std::string(second.status().message()).find(absl::StrCat("pid ", getpid())) !=
        std::string::npos);
  run.driver.reset();
  CHECK(Driver::Start(run.Options()).ok());
}

TEST_CASE("driver: another meaning of the run, refused with 78 unless accepted", "[coordinator]") {
  RunFixture run(ProtocolOptions(10, 1));
  run.StartDriver();
  run.driver.reset();
  DriverOptions changed = run.Options();
  changed.membership.config_hash = 99;
  CHECK(ExitCodeFor(Driver::Start(changed).status()) == ExitCode::kConfig);
  DriverOptions renamed = run.Options();
  renamed.membership.run_id = "other";
  CHECK(ExitCodeFor(Driver::Start(renamed).status()) == ExitCode::kConfig);
  changed.membership.accept_config_change = true;
  CHECK(Driver::Start(changed).ok());
  // Journalled: from now on it is the run's meaning.
  changed.membership.accept_config_change = false;
  CHECK(Driver::Start(changed).ok());
}

}  // namespace
}  // namespace starling::coordinator::testing
