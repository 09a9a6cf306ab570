// The journal: every record comes back, a torn tail is cut off, damage in the middle is named.
#include "starling/membership/journal.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace starling::membership {
namespace {

VoteResult SomeResult() {
  VoteResult r;
  r.generation = Generation(6);
  r.at = {Timeline(2), Step(41), Attempt(1)};
  r.outcome = Outcome::kSkip;
  r.count = 12;
  r.mix = 0xfedcba9876543210u;
  r.update = 40;
  r.learning_rate = 1e-3;
  r.mlm_loss = 3.5;
  r.sop_loss = 0.25;
  r.tokens = 4096;
  r.grad_norm = 1.25;
  r.clip_factor = 0.8;
  r.weight_squares = {1, 2, 3};
  r.update_squares = {0.5};
  r.speeds = {7, 0, 4'000'000'000};
  r.checkpoint_requested = true;
  r.digests = {{1, 2, 3, 4}, {5, 6, 7, 8}};
  return r;
}

FormRecord SomeForm() {
  FormRecord form;
  form.view.generation = Generation(7);
  form.view.members = {{Incarnation(11), "h0/0", "h0", 100, "tcp://h0:1"},
                       {Incarnation(12), "h1/0", "h1", 101, ""}};
  form.purpose = Purpose::kStop;
  form.position = {Timeline(3), Step(42), Attempt(2)};
  form.updates = 41;
  form.restore = RestoreSource{"step-42.t2", {Timeline(2), Step(42)}};
  form.forked_from = Version{Timeline(2), Step(42)};
  form.claims = {plan::IntervalSet::Of({{0, 3}, {5, 6}}), {}};
  form.assignment = {{}, plan::IntervalSet::Of({{3, 5}})};
  form.reason = "w2 died";
  form.result = SomeResult();
  form.latest_evaluation = Version{Timeline(2), Step(40)};
  return form;
}

std::vector<JournalRecord> AllRecords() {
  FormRecord plain = SomeForm();
  plain.restore.reset();
  plain.forked_from.reset();
  plain.result.reset();
  plain.view.generation = Generation(6);
  return {RunRecord{"run-1", 1, 2, 3},
          TermRecord{Term(4)},
          GenerationsRecord{Generation(16)},
          plain,
          SomeForm(),
          CheckpointRecord{"step-42.t2", {Timeline(2), Step(42)}, true},
          CheckpointRecord{"step-40.t2", {Timeline(2), Step(40)}, false},
          TargetRecord{5},
          DrainRecord{Incarnation(12)},
          DoneRecord{{Timeline(3), Step(100)}}};
}

}  // namespace

TEST_CASE("journal: all records come back", "[membership]") {
  std::string bytes;
  for (const JournalRecord& record : AllRecords()) bytes += EncodeRecord(record);
  const auto content = DecodeJournal(bytes);
  REQUIRE(content.ok());
  CHECK(content->valid_bytes == bytes.size());
  const RestoredState& state = content->state;
  CHECK(state.journal_found);
  CHECK(state.run == RunRecord{"run-1", 1, 2, 3});
  CHECK(state.term == Term(4));
  CHECK(state.generations_up_to == Generation(16));
  CHECK(state.form == SomeForm());
  CHECK(state.forks == std::map<Timeline, Version>{{Timeline(3), {Timeline(2), Step(42)}}});
  CHECK(state.fenced.empty());
  REQUIRE(state.checkpoints.size() == 1);
  CHECK(state.checkpoints[0].folder == "step-42.t2");
  CHECK(state.bad_checkpoints == std::set<std::string>{"step-40.t2"});
  CHECK(state.target_workers == 5);
  CHECK(state.draining == std::set<Incarnation>{Incarnation(12)});
  CHECK(state.done == Version{Timeline(3), Step(100)});
}

TEST_CASE("journal: every record alone is read as it was written", "[membership]") {
  for (const JournalRecord& record : AllRecords()) {
    RestoredState folded;
    folded.Fold(record);
    const auto content = DecodeJournal(EncodeRecord(record));
    REQUIRE(content.ok());
    CHECK(content->state.form == folded.form);
    CHECK(content->state.checkpoints == folded.checkpoints);
    CHECK(content->state.run == folded.run);
  }
}

TEST_CASE("journal: members that a later view omits are fenced", "[membership]") {
  FormRecord later = SomeForm();
  later.view.generation = Generation(8);
  later.view.members.erase(later.view.members.begin());
  const auto content = DecodeJournal(EncodeRecord(SomeForm()) + EncodeRecord(later));
  REQUIRE(content.ok());
  CHECK(content->state.fenced == std::set<Incarnation>{Incarnation(11)});
}

TEST_CASE("journal: an empty one is no journal", "[membership]") {
  const auto content = DecodeJournal("");
  REQUIRE(content.ok());
  CHECK_FALSE(content->state.journal_found);
  CHECK(content->valid_bytes == 0);
}

TEST_CASE("journal: a tail torn at any byte is cut off", "[membership]") {
  const std::string head = EncodeRecord(TermRecord{Term(1)}) + EncodeRecord(TermRecord{Term(2)});
  const std::string last = EncodeRecord(SomeForm());
  for (size_t cut = 0; cut < last.size(); ++cut) {
    const auto content = DecodeJournal(head + last.substr(0, cut));
    if (!content.ok()) FAIL("cut at " << cut << ": " << content.status().message());
    if (content->valid_bytes != head.size()) FAIL("cut at " << cut);
    if (content->state.term != Term(2) || content->state.form) FAIL("cut at " << cut);
  }
  // Space that was allocated and never written reads as zeros.
  const auto zeros = DecodeJournal(head + std::string(100, '\0'));
  REQUIRE(zeros.ok());
  CHECK(zeros->valid_bytes == head.size());
}

TEST_CASE("journal: any flipped byte in the middle is an error that names the offset",
          "[membership]") {
  const std::string head = EncodeRecord(TermRecord{Term(1)});
  const std::string middle = EncodeRecord(SomeForm());
  const std::string tail = EncodeRecord(TermRecord{Term(2)});
  for (size_t at = 0; at < middle.size(); ++at) {
    std::string damaged = middle;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    const auto content = DecodeJournal(head + damaged + tail);
    if (content.ok()) FAIL("byte " << at << " went unnoticed");
    if (content.status().code() != absl::StatusCode::kDataLoss) FAIL("byte " << at);
    if (!absl::StrContains(std::string(content.status().message()),
                           absl::StrCat("offset ", head.size()))) {
      FAIL(content.status().message());
    }
  }
}

TEST_CASE("journal: a damaged length is not taken for a torn record", "[membership]") {
  std::string bytes = EncodeRecord(TermRecord{Term(1)});
  bytes[2] = static_cast<char>(0x7f);  // as if most of the record were still to come
  const auto content = DecodeJournal(bytes + EncodeRecord(TermRecord{Term(2)}));
  CHECK(content.status().code() == absl::StatusCode::kDataLoss);
}

}  // namespace starling::membership
