// Messages as one-line text, for logs and golden scenario files.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "starling/membership/messages.h"

namespace starling::membership {
namespace {

std::string Members(const View& view) {
  return absl::StrJoin(view.members, ",", [](std::string* out, const Member& member) {
    absl::StrAppend(out, member.name);
  });
}

std::string State(const MemberState& state) {
  if (!state.complete) return "incomplete";
  return absl::StrCat(
      ToString(state.position), " has=", state.accumulated.ToString(),
      state.has_reduced ? " reduced" : "", state.pending_result ? " pending=" : "",
      state.pending_result ? std::string(ToString(state.pending_result->outcome)) : "");
}

std::string Sets(const std::vector<plan::IntervalSet>& sets) {
  return absl::StrJoin(sets, "|", [](std::string* out, const plan::IntervalSet& set) {
    absl::StrAppend(out, set.ToString());
  });
}

std::string Line(const Register& m) {
  return absl::StrCat("Register ", m.member.name,
                      m.view ? absl::StrCat(" g", m.view->generation.value(),
                                            m.active ? " active " : " ", State(m.state))
                             : " new");
}
std::string Line(const Heartbeat& m) { return absl::StrCat("Heartbeat progress=", m.progress); }
std::string Line(const SurveyAnswer& m) {
  return absl::StrCat("SurveyAnswer g", m.generation.value(), " ", State(m.state));
}
std::string Line(const Report& m) {
  return absl::StrCat("Report g", m.result.generation.value(), " ",
                      std::string(ToString(m.result.outcome)), " after ", ToString(m.result.at));
}
std::string Line(const CommFailed& m) {
  return absl::StrCat("CommFailed g", m.generation.value(), " ", m.reason);
}
std::string Line(const Ready& m) { return absl::StrCat("Ready g", m.generation.value()); }
std::string Line(const ConnectFailed& m) {
  return absl::StrCat("ConnectFailed g", m.generation.value(), " ", m.reason);
}
std::string Line(const FormProgress& m) {
  return absl::StrCat("FormProgress g", m.generation.value());
}
std::string Line(const RestoreFailed& m) {
  return absl::StrCat("RestoreFailed ", m.checkpoint, " ", m.reason);
}
std::string Line(const DrainNotice& m) { return absl::StrCat("DrainNotice ", m.reason); }
std::string Line(const Leaving& m) { return absl::StrCat("Leaving ", m.exit_code, " ", m.reason); }
std::string Line(const PartWritten& m) {
  return absl::StrCat("PartWritten ", ToString(m.version), " r", m.rank.value(),
                      m.ok ? " ok" : " failed");
}
std::string Line(const Evaluated& m) {
  return absl::StrCat("Evaluated ", ToString(m.version), " r", m.rank.value());
}
std::string Line(const Prepared& m) {
  return absl::StrCat("Prepared g", m.generation.value(), " round ", m.round,
                      m.copied ? " at " + ToString(*m.copied) : "",
                      m.ok ? "" : " failed: ", m.reason);
}
std::string Line(const HandedOver& m) {
  return absl::StrCat("HandedOver by g", m.channel.value(), " ", ToString(m.held.position), " ",
                      m.held.micro_batches.ToString());
}

std::string Line(const Registered& m) {
  return absl::StrCat("Registered term=", m.term.value(), m.expects_activity ? " go on" : "");
}
std::string Line(const Refused& m) { return absl::StrCat("Refused ", m.exit_code, " ", m.reason); }
std::string Line(const Revoke& m) {
  return absl::StrCat("Revoke g", m.generation.value(), " ", m.reason);
}
std::string Line(const Prepare& m) { return absl::StrCat("Prepare g", m.view->generation.value()); }
std::string Line(const Form& m) {
  std::string text = absl::StrCat("Form g", m.view->generation.value(), " [", Members(*m.view),
                                  "] ", ToString(m.position));
  if (m.purpose == Purpose::kStop) text += " stop";
  if (m.from_seed) text += " seed";
  if (m.restore) absl::StrAppend(&text, " restore=", m.restore->checkpoint);
  absl::StrAppend(&text, " claims=", Sets(m.claims), " assignment=", Sets(m.assignment));
  for (const Transfer& transfer : m.transfers) {
    absl::StrAppend(&text, " copy=", transfer.from.value(), ">", transfer.to.value());
  }
  return text;
}
std::string Line(const Activate& m) { return absl::StrCat("Activate g", m.generation.value()); }
std::string Line(const Settled& m) { return absl::StrCat("Settled ", ToString(m.version)); }
std::string Line(const RequestCheckpoint&) { return "RequestCheckpoint"; }
std::string Line(const Release& m) { return absl::StrCat("Release ", m.exit_code, " ", m.reason); }
std::string Line(const HandOver& m) {
  return absl::StrCat("HandOver g", m.generation.value(), " by g", m.channel->generation.value());
}

}  // namespace

std::string ToString(const WorkerMessage& message) {
  return std::visit([](const auto& m) { return Line(m); }, message);
}
std::string ToString(const CoordinatorMessage& message) {
  return std::visit([](const auto& m) { return Line(m); }, message);
}

}  // namespace starling::membership
