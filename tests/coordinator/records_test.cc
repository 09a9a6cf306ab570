// The lines of the run folder's files, the goodput, the metrics and the status page.
#include "coordinator/records.h"

#include <catch2/catch_test_macros.hpp>

#include "coordinator/goodput.h"
#include "coordinator/http_page.h"

namespace starling::coordinator {
namespace {

TEST_CASE("records: a ledger line, has exactly the documented text", "[coordinator]") {
  membership::LedgerLine line;
  line.version = {Timeline(2), Step(3)};
  line.generation = Generation(5);
  line.micro_batches = {
      plan::IntervalSet::Of({{0, 2}, {4, 6}}), {}, plan::IntervalSet::Of({{2, 4}})};
  CHECK(LedgerText(line, 8) ==
        R"({"timeline":2,"step":3,"generation":5,"members":3,)"
        R"("micro_batches":[[0,[[0,2],[4,6]]],[2,[[2,4]]]],"samples":[16,23],"skipped":false})"
        "\n");
  line.digest = membership::Digest{1, 2, 3, 0xfull};
  line.skipped = true;
  const std::string text = LedgerText(line, 8);
  CHECK(text.find(R"("skipped":true,"digest":"00000000000000010000000000000002)"
                  R"(0000000000000003000000000000000f"})") != std::string::npos);
  CHECK(VersionOfLine(text) == line.version);
  CHECK_FALSE(VersionOfLine("nonsense").has_value());
  CHECK_FALSE(VersionOfLine("{\"step\":1}").has_value());
}

TEST_CASE("records: an evaluation, gives means over what was counted", "[coordinator]") {
  const std::string text = EvaluationText({Timeline(1), Step(4)}, {6.0, 4, 1, 1.0, 2, 2},
                                          absl::FromUnixMicros(1'500'000));
  CHECK(text ==
        R"({"timeline":1,"step":4,"time":"1970-01-01T00:00:01.500000Z","eval_loss":1.5,)"
        R"("eval_accuracy":0.25,"eval_masked":4,"eval_sop_loss":0.5,"eval_sop_accuracy":1.0,)"
        R"("eval_pairs":2})"
        "\n");
  // Nothing counted is no division by zero.
  CHECK(EvaluationText({}, {}, absl::UnixEpoch()).find("\"eval_loss\":0.0") != std::string::npos);
}

TEST_CASE("records: an event with bytes that are no UTF-8, still is JSON", "[coordinator]") {
  membership::Event event{.event = "lost", .worker = "w\xff", .reason = "a\"b\nc"};
  event.phase_ms["detect"] = 1.5;
  const std::string text = EventText(event, Term(3), absl::UnixEpoch(), 42);
  CHECK(text.find('\n') == text.size() - 1);
  CHECK(text.find("\"phase_ms\":{\"detect\":1.5}") != std::string::npos);
  CHECK(text.find("\"mono_ns\":42,\"term\":3") != std::string::npos);
}

TEST_CASE("goodput: the share of running time, without what was found to be lost",
          "[coordinator]") {
  const absl::Time start = absl::UnixEpoch();
  Goodput goodput;
  goodput.Observe(false, start);
  CHECK(goodput.ratio() == 1.0);
  goodput.Observe(true, start + absl::Seconds(10));  // the first view: counting begins
  goodput.Observe(true, start + absl::Seconds(16));
  CHECK(goodput.ratio() == 1.0);
  goodput.Observe(false, start + absl::Seconds(18));
  goodput.Observe(true, start + absl::Seconds(20));
  CHECK(goodput.ratio() == 0.8);
  goodput.Stalled(absl::Seconds(3));
  CHECK(goodput.ratio() == 0.5);
}

rpc::StatusReport Report() {
  rpc::StatusReport report;
  report.run = "a <b> & c";
  report.status.phase = "forming";
  report.status.position.step = Step(7);
  report.status.workers.push_back(
      {{Incarnation(1), "<script>", "host", 3, ""}, Rank(0), "active", 1.5, absl::Seconds(1)});
  report.total_steps = 10;
  return report;
}

TEST_CASE("page: names from outside, are no markup", "[coordinator]") {
  const std::string html = PageHtml(Report(), {3.0, 2.5, std::nan(""), 2.0});
  CHECK(html.find("<script>") == std::string::npos);
  CHECK(html.find("&lt;script&gt;") != std::string::npos);
  CHECK(html.find("a &lt;b&gt; &amp; c") != std::string::npos);
  CHECK(html.find("<polyline") != std::string::npos);
  CHECK(html.find("nan") == std::string::npos);
}

TEST_CASE("page: its paths, answer on a free port", "[coordinator]") {
  Metrics metrics;
  absl::StatusOr<rpc::StatusReport> report = Report();
  auto page = HttpPage::Start(
      "127.0.0.1:0", [&] { return report; }, &metrics);
  INFO(page.status());
  REQUIRE(page.ok());
  CHECK((*page)->address().find("127.0.0.1:") == 0);
  CHECK((*page)->address() != "127.0.0.1:0");
  CHECK((*page)->Respond("/healthz").code == 200);
  CHECK((*page)->Respond("/readyz").code == 503);
  CHECK((*page)->Respond("/etc/passwd").code == 404);
  report->status.phase = "running";
  CHECK((*page)->Respond("/readyz").code == 200);
  membership::VoteResult result;
  result.count = 2;
  result.mlm_loss = 6;
  result.tokens = 50;
  metrics.CountStep(result, 0.5, 8);
  metrics.CountEvent({.event = "lost", .phase_ms = {{"survey", 20}}});
  const std::string text = (*page)->Respond("/metrics").body;
  for (const char* line :
       {"starling_workers{state=\"active\"} 1\n", "starling_train_loss 3\n",
        "starling_train_samples_total 8\n", "starling_train_tokens_total 50\n",
        "starling_membership_changes_total{cause=\"lost\"} 1\n", "starling_members 1\n",
        "starling_reconfiguration_seconds_count{phase=\"survey\"} 1\n",
        "starling_checkpoint_failures_total 0\n"}) {
    INFO(line);
    CHECK(text.find(line) != std::string::npos);
  }
  report = absl::UnavailableError("gone");
  CHECK((*page)->Respond("/healthz").code == 503);
  const auto taken = HttpPage::Start((*page)->address(), [&] { return report; }, &metrics);
  CHECK_FALSE(taken.ok());
}

}  // namespace
}  // namespace starling::coordinator
