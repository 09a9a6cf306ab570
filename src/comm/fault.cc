#include "starling/comm/fault.h"

#include <signal.h>
#include <unistd.h>

#include <limits>
#include <map>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "starling/base/log.h"
#include "starling/base/status.h"

namespace starling::comm {
namespace {

constexpr char kForms[] =
    "kill@gen=G,rank=R,call=C  fail@gen=G,rank=R,call=C  stall@gen=G,rank=R,call=C,ms=T  "
    "kill@[gen=G,][rank=R,]point=P[,nth=N][,ms=T]  stall@[gen=G,][rank=R,]point=P[,nth=N],ms=T  "
    "pace@ms=T  (G and R may be *; several parted by ';')";

constexpr std::pair<const char*, FaultPoint> kPoints[] = {
    {"compute", FaultPoint::kCompute},
    {"computed", FaultPoint::kComputed},
    {"reduce", FaultPoint::kReduce},
    {"gather", FaultPoint::kGather},
    {"norm", FaultPoint::kNorm},
    {"normed", FaultPoint::kNormed},
    {"vote", FaultPoint::kVote},
    {"voted", FaultPoint::kVoted},
    {"apply", FaultPoint::kApply},
    {"applied", FaultPoint::kApplied},
    {"connect", FaultPoint::kConnect},
    {"connected", FaultPoint::kConnected},
    {"copy", FaultPoint::kCopy},
    {"copied", FaultPoint::kCopied},
    {"part", FaultPoint::kPart},
    {"part_written", FaultPoint::kPartWritten},
    {"hand_over", FaultPoint::kHandOver},
    {"handing_over", FaultPoint::kHandingOver},
    {"handed_over", FaultPoint::kHandedOver},
    {"manifest", FaultPoint::kManifest},
    {"manifest_written", FaultPoint::kManifestWritten}};

absl::Status BadFault(const std::string& part, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("fault \"", part, "\": ", why, "; accepted: ", kForms));
}

absl::StatusOr<Fault::Kind> ParseKind(const std::string& part, const std::string& name) {
  if (name == "kill") return Fault::Kind::kKill;
  if (name == "fail") return Fault::Kind::kFail;
  if (name == "stall") return Fault::Kind::kStall;
  if (name == "pace") return Fault::Kind::kPace;
  return BadFault(part, absl::StrCat("\"", name, "\" is not a kind of fault"));
}

// "key=value" pairs of one fault.
absl::StatusOr<std::map<std::string, std::string>> ParseFields(const std::string& part,
                                                               const std::string& text) {
  std::map<std::string, std::string> fields;
  for (const auto& piece : absl::StrSplit(text, ',')) {
    const std::vector<std::string> pair = absl::StrSplit(piece, absl::MaxSplits('=', 1));
    if (pair.size() != 2 || !fields.emplace(pair[0], pair[1]).second) {
      return BadFault(part, absl::StrCat("\"", piece, "\" is not one key=value"));
    }
  }
  return fields;
}

// Takes the number of `key` out of `fields`; nothing for "*" where that is allowed.
absl::StatusOr<std::optional<int64_t>> TakeNumber(const std::string& part,
                                                  std::map<std::string, std::string>* fields,
                                                  const std::string& key, int64_t min,
                                                  bool star_allowed) {
  const auto found = fields->find(key);
  if (found == fields->end()) return BadFault(part, absl::StrCat("\"", key, "\" is missing"));
  const std::string text = found->second;
  fields->erase(found);
  if (star_allowed && text == "*") return std::optional<int64_t>();
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < min) {
    return BadFault(part, absl::StrCat(key, "=", text, " is not a number of at least ", min));
  }
  return std::optional<int64_t>(value);
}

using Fields = std::map<std::string, std::string>;

// gen and rank; `must` they be there?
absl::Status TakePlace(const std::string& part, bool must, Fields* fields, Fault* fault) {
  if (must || fields->contains("gen")) {
    STARLING_ASSIGN_OR_RETURN(const auto generation, TakeNumber(part, fields, "gen", 0, true));
    if (generation) fault->generation = Generation(static_cast<uint64_t>(*generation));
  }
  if (must || fields->contains("rank")) {
    STARLING_ASSIGN_OR_RETURN(const auto rank, TakeNumber(part, fields, "rank", 0, true));
    if (rank && *rank > std::numeric_limits<int32_t>::max()) {
      return BadFault(part, absl::StrCat("rank=", *rank, " is too large"));
    }
    if (rank) fault->rank = Rank(static_cast<int32_t>(*rank));
  }
  return absl::OkStatus();
}

absl::Status TakePoint(const std::string& part, Fields* fields, Fault* fault) {
  const auto found = fields->find("point");
  for (const auto& [name, point] : kPoints) {
    if (found->second == name) fault->point = point;
  }
  if (!fault->point) {
    std::string names;
    for (const auto& [name, point] : kPoints) absl::StrAppend(&names, " ", name);
    return BadFault(part, absl::StrCat("\"", found->second, "\" is not a point of", names));
  }
  fields->erase(found);
  if (!fields->contains("nth")) return absl::OkStatus();
  STARLING_ASSIGN_OR_RETURN(const auto nth, TakeNumber(part, fields, "nth", 1, false));
  fault->nth = *nth;
  return absl::OkStatus();
}

absl::StatusOr<Fault> ParseFault(const std::string& part) {
  const std::vector<std::string> halves = absl::StrSplit(part, absl::MaxSplits('@', 1));
  if (halves.size() != 2) return BadFault(part, "there is no \"@\"");
  Fault fault;
  STARLING_ASSIGN_OR_RETURN(fault.kind, ParseKind(part, halves[0]));
  STARLING_ASSIGN_OR_RETURN(Fields fields, ParseFields(part, halves[1]));
  const bool at_point = fields.contains("point") &&
                        (fault.kind == Fault::Kind::kKill || fault.kind == Fault::Kind::kStall);
  if (at_point) STARLING_RETURN_IF_ERROR(TakePoint(part, &fields, &fault));
  if (fault.kind != Fault::Kind::kPace) {
    STARLING_RETURN_IF_ERROR(TakePlace(part, !at_point, &fields, &fault));
  }
  if (fault.kind != Fault::Kind::kPace && !at_point) {
    STARLING_ASSIGN_OR_RETURN(const auto call, TakeNumber(part, &fields, "call", 1, false));
    fault.call = *call;
  }
  if (fault.kind == Fault::Kind::kPace || fault.kind == Fault::Kind::kStall ||
      (at_point && fields.contains("ms"))) {
    STARLING_ASSIGN_OR_RETURN(const auto ms, TakeNumber(part, &fields, "ms", 0, false));
    fault.duration = absl::Milliseconds(*ms);
  }
  if (!fields.empty()) {
    return BadFault(part, absl::StrCat("\"", fields.begin()->first, "\" does not belong here"));
  }
  return fault;
}

bool Concerns(const Fault& fault, Generation generation, Rank rank) {
  return fault.generation.value_or(generation) == generation && fault.rank.value_or(rank) == rank;
}

const char* NameOf(FaultPoint point) {
  for (const auto& [name, known] : kPoints) {
    if (known == point) return name;
  }
  return "?";
}

class FaultyCommunicator final : public Communicator {
 public:
  FaultyCommunicator(std::unique_ptr<Communicator> inner, std::vector<Fault> faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}

  Rank rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Generation generation() const override { return inner_->generation(); }

  absl::Status ReduceScatter(ConstBuffer in, Buffer out, const Layout& layout,
                             absl::Duration timeout) override {
    STARLING_RETURN_IF_ERROR(BeforeCall());
    return inner_->ReduceScatter(in, out, layout, timeout);
  }
  absl::Status AllGather(Buffer buffer, const Layout& layout, absl::Duration timeout) override {
    STARLING_RETURN_IF_ERROR(BeforeCall());
    return inner_->AllGather(buffer, layout, timeout);
  }
  absl::Status AllReduce(std::span<const ReducePart> parts, absl::Duration timeout) override {
    STARLING_RETURN_IF_ERROR(BeforeCall());
    return inner_->AllReduce(parts, timeout);
  }
  absl::Status Broadcast(Buffer buffer, Rank root, absl::Duration timeout) override {
    STARLING_RETURN_IF_ERROR(BeforeCall());
    return inner_->Broadcast(buffer, root, timeout);
  }
  absl::Status Barrier(absl::Duration timeout) override {
    STARLING_RETURN_IF_ERROR(BeforeCall());
    return inner_->Barrier(timeout);
  }
  absl::Status Send(ConstBuffer buffer, Rank to, absl::Duration timeout) override {
    STARLING_RETURN_IF_ERROR(BeforeCall());
    return inner_->Send(buffer, to, timeout);
  }
  absl::Status Receive(Buffer buffer, Rank from, absl::Duration timeout) override {
    STARLING_RETURN_IF_ERROR(BeforeCall());
    return inner_->Receive(buffer, from, timeout);
  }

  void Abort(const std::string& reason) override {
    {
      absl::MutexLock lock(&mutex_);
      aborted_ = true;  // ends a stall
    }
    inner_->Abort(reason);
  }
  std::vector<Rank> suspects() const override {
    {
      absl::MutexLock lock(&mutex_);
      if (!failed_.ok()) return {NextRank()};
    }
    return inner_->suspects();
  }
  Traffic traffic() const override { return inner_->traffic(); }

 private:
  // The peer that an injected failure blames; this rank itself when it is alone.
  Rank NextRank() const { return Rank((inner_->rank().value() + 1) % inner_->size()); }

  absl::Status BeforeCall() {
    ++call_;
    for (const Fault& fault : faults_) {
      if (fault.call == call_) Act(fault);
    }
    absl::MutexLock lock(&mutex_);
    return failed_;
  }

  void Act(const Fault& fault) {
    STARLING_LOG(Warning) << "gen=" << generation().value() << " rank=" << rank().value()
                          << " injected fault before call " << call_;
    if (fault.kind == Fault::Kind::kKill) kill(getpid(), SIGKILL);
    if (fault.kind == Fault::Kind::kStall) {
      absl::MutexLock lock(&mutex_);
      mutex_.AwaitWithTimeout(absl::Condition(&aborted_), fault.duration);
    }
    if (fault.kind == Fault::Kind::kFail) Fail();
  }

  void Fail() {
    {
      absl::MutexLock lock(&mutex_);
      failed_ = absl::UnavailableError(absl::StrCat("generation ", generation().value(),
                                                    ": connection to rank ", NextRank().value(),
                                                    " broke (injected before call ", call_, ")"));
    }
    inner_->Abort("injected failure");
  }

  const std::unique_ptr<Communicator> inner_;
  const std::vector<Fault> faults_;
  int64_t call_ = 0;  // calls begun in this generation; the issuing thread's
  mutable absl::Mutex mutex_;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);  // set by kFail, for good
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

absl::StatusOr<std::vector<Fault>> ParseFaults(std::string_view text) {
  std::vector<Fault> faults;
  const std::string copy(text);
  for (const auto& piece : absl::StrSplit(copy, ';', absl::SkipWhitespace())) {
    const std::string part(absl::StripAsciiWhitespace(piece));
    STARLING_ASSIGN_OR_RETURN(faults.emplace_back(), ParseFault(part));
  }
  return faults;
}

std::unique_ptr<Communicator> WithFaults(std::unique_ptr<Communicator> inner,
                                         const std::vector<Fault>& faults) {
  std::vector<Fault> matching;
  for (const Fault& fault : faults) {
    const bool in_calls = fault.kind != Fault::Kind::kPace && !fault.point;
    if (in_calls && Concerns(fault, inner->generation(), inner->rank())) matching.push_back(fault);
  }
  if (matching.empty()) return inner;
  return std::make_unique<FaultyCommunicator>(std::move(inner), std::move(matching));
}

FaultPoints::FaultPoints(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    if (fault.point) faults_.push_back({fault});
  }
}

void FaultPoints::PassSlowly(FaultPoint point, Generation generation, Rank rank) {
  for (Counted& counted : faults_) {
    const Fault& fault = counted.fault;
    if (*fault.point != point || !Concerns(fault, generation, rank)) continue;
    {
      absl::MutexLock lock(&mutex_);
      if (++counted.passed != fault.nth) continue;
    }
    STARLING_LOG(Warning) << "gen=" << generation.value() << " rank=" << rank.value()
                          << " injected fault at point " << NameOf(point);
    const auto wait = [duration = absl::ToChronoNanoseconds(fault.duration)] {
      std::this_thread::sleep_for(duration);
    };
    if (fault.kind == Fault::Kind::kStall) {
      wait();
    } else if (fault.duration == absl::ZeroDuration()) {
      kill(getpid(), SIGKILL);
    } else {
      std::thread([wait] {
        wait();
        kill(getpid(), SIGKILL);
      }).detach();
    }
  }
}

}  // namespace starling::comm
