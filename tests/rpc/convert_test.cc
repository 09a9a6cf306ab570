// Every message goes through protobuf and back and must come out as it went in, with every field
// filled; damaged messages must be refused, by name, and never crash.
#include "rpc/convert.h"

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <random>

#include "absl/time/clock.h"
#include "rpc/library_log.h"
#include "rpc/messages_for_tests.h"

namespace starling::rpc {
namespace {

using namespace membership;  // NOLINT: the messages' own words
using testing::AllCoordinatorMessages;
using testing::AllWorkerMessages;

template <typename Domain, typename Proto>
std::string RoundTrip(const Domain& message) {
  Proto wire;
  ToProto(message, &wire);
  Proto parsed;
  REQUIRE(parsed.ParseFromString(wire.SerializeAsString()));
  const auto back = FromProto(parsed);
  REQUIRE(back.ok());
  // The wire form shows every field; equal wire forms of values that came through are equality.
  Proto again;
  ToProto(*back, &again);
  CHECK(back->index() == message.index());
  CHECK(again.SerializeAsString() == wire.SerializeAsString());
  return wire.SerializeAsString();
}

TEST_CASE("convert: every worker message with all fields filled, comes back equal", "[rpc]") {
  for (const WorkerMessage& message : AllWorkerMessages()) {
    INFO(ToString(message));
    CHECK_FALSE((RoundTrip<WorkerMessage, pb::WorkerMessage>(message).empty()));
  }
}

TEST_CASE("convert: every coordinator message with all fields filled, comes back equal", "[rpc]") {
  for (const CoordinatorMessage& message : AllCoordinatorMessages()) {
    INFO(ToString(message));
    CHECK_FALSE((RoundTrip<CoordinatorMessage, pb::CoordinatorMessage>(message).empty()));
  }
}

TEST_CASE("convert: no message leaves a field of the schema unset", "[rpc]") {
  // Guards the test above: a field that nobody fills would compare equal whatever became of it.
  const auto check = [](const google::protobuf::Message& wire) {
    const auto visit = [](const auto& self, const google::protobuf::Message& m) -> void {
      const auto* descriptor = m.GetDescriptor();
      const auto* reflection = m.GetReflection();
      for (int i = 0; i < descriptor->field_count(); ++i) {
        const auto* field = descriptor->field(i);
        INFO(field->full_name());
        if (field->is_repeated()) {
          CHECK(reflection->FieldSize(m, field) > 0);
          if (field->message_type() != nullptr)
            self(self, reflection->GetRepeatedMessage(m, field, 0));
        } else if (field->real_containing_oneof() != nullptr) {
          if (reflection->HasField(m, field)) self(self, reflection->GetMessage(m, field));
        } else {
          CHECK(reflection->HasField(m, field));
          if (field->message_type() != nullptr) self(self, reflection->GetMessage(m, field));
        }
      }
    };
    visit(visit, wire);
  };
  for (const WorkerMessage& message : AllWorkerMessages()) {
    pb::WorkerMessage wire;
    ToProto(message, &wire);
    check(wire);
  }
  for (const CoordinatorMessage& message : AllCoordinatorMessages()) {
    pb::CoordinatorMessage wire;
    ToProto(message, &wire);
    check(wire);
  }
}

TEST_CASE("convert: values are equal field by field, not only on the wire", "[rpc]") {
  const VoteResult result = testing::SomeVote();
  pb::VoteResult wire;
  ToProto(result, &wire);
  VoteResult back;
  REQUIRE(FromProto(wire, &back).ok());
  CHECK(back == result);
  const MemberState state = testing::SomeState();
  pb::MemberState state_wire;
  ToProto(state, &state_wire);
  MemberState state_back;
  REQUIRE(FromProto(state_wire, &state_back).ok());
  CHECK(state_back == state);
  const LedgerLine line = testing::SomeLine();
  pb::LedgerLine line_wire;
  ToProto(line, &line_wire);
  LedgerLine line_back;
  REQUIRE(FromProto(line_wire, &line_back).ok());
  CHECK(line_back == line);
}

std::string ErrorOf(const pb::WorkerMessage& message) {
  return std::string(FromProto(message).status().message());
}

TEST_CASE("convert: untrusted input, refused with the field's name", "[rpc]") {
  pb::WorkerMessage message;
  CHECK(ErrorOf(message) == "message: is empty, or of a kind unknown here");

  message.mutable_heartbeat()->set_micro_batches_per_second(
      std::numeric_limits<double>::quiet_NaN());
  CHECK(ErrorOf(message) == "heartbeat: micro_batches_per_second: is no speed");

  auto* member = message.mutable_register_()->mutable_member();
  CHECK(ErrorOf(message) == "register: member: incarnation: is 0");
  member->set_incarnation(1);
  CHECK(ErrorOf(message) == "register: member: name: is empty");
  member->set_name(std::string(kMaxName + 1, 'x'));
  CHECK(ErrorOf(message) == "register: member: name: 1025 bytes are too many");

  message.mutable_survey_answer()->mutable_state()->mutable_accumulated()->add_bounds(3);
  CHECK(ErrorOf(message) == "survey_answer: state: accumulated: bounds: an interval has no end");
  message.mutable_survey_answer()->mutable_state()->mutable_accumulated()->add_bounds(3);
  CHECK(ErrorOf(message).find("survey_answer: state: accumulated: bounds: [3,3)") == 0);

  message.mutable_report()->mutable_result()->set_outcome(3);
  CHECK(ErrorOf(message) == "report: result: outcome: 3 is unknown");
  message.mutable_part_written()->set_rank(-1);
  CHECK(ErrorOf(message) == "part_written: rank: -1 is no rank");
  message.mutable_leaving()->set_exit_code(256);
  CHECK(ErrorOf(message) == "leaving: exit_code: 256 is no exit code");
  message.mutable_leaving()->set_exit_code(1);
  message.mutable_leaving()->set_reason(std::string(kMaxText + 1, 'x'));
  CHECK(ErrorOf(message) == "leaving: reason: 65537 bytes are too many");
}

TEST_CASE("convert: a Form that contradicts itself, refused", "[rpc]") {
  pb::CoordinatorMessage good;
  for (const CoordinatorMessage& message : AllCoordinatorMessages()) {
    if (std::holds_alternative<Form>(message)) ToProto(message, &good);
  }
  REQUIRE(FromProto(good).ok());
  const auto error = [](const pb::CoordinatorMessage& message) {
    return std::string(FromProto(message).status().message());
  };
  pb::CoordinatorMessage bad = good;
  bad.mutable_form()->clear_claims();
  CHECK(error(bad) == "form: claims: 0 entries for 3 members");
  bad = good;
  bad.mutable_form()->mutable_transfers(0)->set_to(3);
  CHECK(error(bad).find("form: transfers: rank ") == 0);
  bad = good;
  bad.mutable_form()->set_purpose(2);
  CHECK(error(bad) == "form: purpose: 2 is unknown");
  bad = good;
  *bad.mutable_form()->mutable_view()->mutable_members(1) = bad.form().view().members(0);
  CHECK(error(bad) == "form: view: members[1]: incarnation: is there twice");
}

TEST_CASE("convert: free text of any bytes and of any length, passes or is cut", "[rpc]") {
  CommFailed failed{Generation(1), "broken \xff\xfe name", {}};
  pb::WorkerMessage wire;
  ToProto(WorkerMessage(failed), &wire);
  pb::WorkerMessage parsed;
  REQUIRE(parsed.ParseFromString(wire.SerializeAsString()));
  CHECK(std::get<CommFailed>(*FromProto(parsed)).reason == failed.reason);
  failed.reason = std::string(3 * kMaxText, 'y');
  wire.Clear();
  ToProto(WorkerMessage(failed), &wire);
  CHECK(std::get<CommFailed>(*FromProto(wire)).reason.size() == kMaxText);
}

TEST_CASE("convert: damaged bytes, never crash and never pass half", "[rpc]") {
  RouteLibraryLogs();
  const uint64_t seed = 20260;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  int refused = 0, passed = 0;
  for (const WorkerMessage& message : AllWorkerMessages()) {
    pb::WorkerMessage wire;
    ToProto(message, &wire);
    const std::string bytes = wire.SerializeAsString();
    for (int i = 0; i < 300; ++i) {
      std::string damaged = bytes;
      for (int flips = 0; flips < 3; ++flips) {
        damaged[random() % damaged.size()] = static_cast<char>(random());
      }
      if (random() % 4 == 0) damaged.resize(random() % damaged.size());
      pb::WorkerMessage parsed;
      if (!parsed.ParseFromString(damaged)) continue;
      const auto back = FromProto(parsed);
      if (!back.ok()) {
        ++refused;
        CHECK(absl::IsInvalidArgument(back.status()));
        continue;
      }
      // What passed is a valid message: it survives another round.
      ++passed;
      pb::WorkerMessage again;
      ToProto(*back, &again);
      CHECK(FromProto(again).ok());
    }
  }
  CHECK(refused > 100);
  CHECK(passed > 100);
}

TEST_CASE("convert: a view of 10,000 members, converts in a fraction of a second", "[rpc]") {
  Form form;
  auto view = std::make_shared<View>();
  view->generation = Generation(1);
  for (uint64_t i = 1; i <= 10000; ++i) {
    view->members.push_back({Incarnation(i), "host/" + std::to_string(i), "host", 1, "10.0.0.1:1"});
    form.claims.emplace_back();
    form.assignment.push_back(
        plan::IntervalSet::Of({{static_cast<int64_t>(2 * i), 2 * static_cast<int64_t>(i) + 2}}));
  }
  form.view = view;
  const absl::Time start = absl::Now();
  pb::CoordinatorMessage wire;
  ToProto(CoordinatorMessage(form), &wire);
  const std::string bytes = wire.SerializeAsString();
  pb::CoordinatorMessage parsed;
  REQUIRE(parsed.ParseFromString(bytes));
  REQUIRE(FromProto(parsed).ok());
  CHECK(bytes.size() < 1'000'000);
  CHECK(absl::Now() - start < absl::Seconds(2));  // typically some 10 ms
}

TEST_CASE("convert: a status report, comes back equal", "[rpc]") {
  const StatusReport report = testing::SomeReport();
  pb::StatusReply wire;
  ToProto(report, &wire);
  const auto back = FromProto(wire);
  REQUIRE(back.ok());
  pb::StatusReply again;
  ToProto(*back, &again);
  CHECK(again.SerializeAsString() == wire.SerializeAsString());
  CHECK(back->status.workers.size() == 2);
  CHECK(back->status.workers[0].rank == Rank(0));
  CHECK_FALSE(back->status.workers[1].rank.has_value());
  CHECK(back->goodput == report.goodput);
}

}  // namespace
}  // namespace starling::rpc
