#include "starling/comm/fault.h"

#include <signal.h>
#include <unistd.h>

#include <limits>
#include <map>
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
    "pace@ms=T  (G and R may be *; several parted by ';')";

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

absl::StatusOr<Fault> ParseFault(const std::string& part) {
  const std::vector<std::string> halves = absl::StrSplit(part, absl::MaxSplits('@', 1));
  if (halves.size() != 2) return BadFault(part, "there is no \"@\"");
  Fault fault;
  STARLING_ASSIGN_OR_RETURN(fault.kind, ParseKind(part, halves[0]));
  STARLING_ASSIGN_OR_RETURN(auto fields, ParseFields(part, halves[1]));
  if (fault.kind != Fault::Kind::kPace) {
    STARLING_ASSIGN_OR_RETURN(const auto generation, TakeNumber(part, &fields, "gen", 0, true));
    STARLING_ASSIGN_OR_RETURN(const auto rank, TakeNumber(part, &fields, "rank", 0, true));
    STARLING_ASSIGN_OR_RETURN(const auto call, TakeNumber(part, &fields, "call", 1, false));
    if (generation.has_value()) fault.generation = Generation(static_cast<uint64_t>(*generation));
    if (rank.has_value() && *rank > std::numeric_limits<int32_t>::max()) {
      return BadFault(part, absl::StrCat("rank=", *rank, " is too large"));
    }
    if (rank.has_value()) fault.rank = Rank(static_cast<int32_t>(*rank));
    fault.call = *call;
  }
  if (fault.kind == Fault::Kind::kPace || fault.kind == Fault::Kind::kStall) {
    STARLING_ASSIGN_OR_RETURN(const auto ms, TakeNumber(part, &fields, "ms", 0, false));
    fault.duration = absl::Milliseconds(*ms);
  }
  if (!fields.empty()) {
    return BadFault(part, absl::StrCat("\"", fields.begin()->first, "\" does not belong here"));
  }
  return fault;
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
    const bool here = fault.generation.value_or(inner->generation()) == inner->generation() &&
                      fault.rank.value_or(inner->rank()) == inner->rank();
    if (here && fault.kind != Fault::Kind::kPace) matching.push_back(fault);
  }
  if (matching.empty()) return inner;
  return std::make_unique<FaultyCommunicator>(std::move(inner), std::move(matching));
}

}  // namespace starling::comm
