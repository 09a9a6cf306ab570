#include "starling/membership/types.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace starling::membership {

std::optional<Rank> View::RankOf(Incarnation incarnation) const {
  for (size_t r = 0; r < members.size(); ++r) {
    if (members[r].incarnation == incarnation) return Rank(static_cast<int32_t>(r));
  }
  return std::nullopt;
}

bool Sends(const std::vector<Transfer>& transfers, Rank rank) {
  return std::any_of(transfers.begin(), transfers.end(),
                     [&](const Transfer& t) { return t.from == rank; });
}

bool Receives(const std::vector<Transfer>& transfers, Rank rank) {
  return std::any_of(transfers.begin(), transfers.end(),
                     [&](const Transfer& t) { return t.to == rank; });
}

Position VoteResult::After() const {
  if (outcome == Outcome::kRepeat) return {at.timeline, at.step, at.attempt.Next()};
  return {at.timeline, at.step.Next(), Attempt(0)};
}

EvaluationPart& EvaluationPart::operator+=(const EvaluationPart& other) {
  mlm_loss += other.mlm_loss;
  masked += other.masked;
  masked_correct += other.masked_correct;
  sop_loss += other.sop_loss;
  pairs += other.pairs;
  pairs_correct += other.pairs_correct;
  return *this;
}

std::vector<std::string> Options::Validate() const {
  std::vector<std::string> problems;
  if (micro_batches < 1)
    problems.push_back("training.global_batch / training.micro_batch must be at least 1");
  if (min_workers < 1) problems.push_back("elastic.min_workers must be at least 1");
  if (max_workers < min_workers) {
    problems.push_back(absl::StrCat("elastic.max_workers ", max_workers,
                                    " is below elastic.min_workers ", min_workers));
  }
  if (detection < absl::Milliseconds(100)) {
    problems.push_back("elastic.detection must be at least 100ms");
  }
  return problems;
}

std::string ToString(const Version& version) {
  return absl::StrCat("t", version.timeline.value(), ":s", version.step.value());
}

std::string ToString(const Position& position) {
  std::string text = ToString(position.version());
  if (position.attempt.value() > 0) absl::StrAppend(&text, "+a", position.attempt.value());
  return text;
}

std::string_view ToString(Outcome outcome) {
  switch (outcome) {
    case Outcome::kCommit:
      return "commit";
    case Outcome::kSkip:
      return "skip";
    case Outcome::kRepeat:
      return "repeat";
  }
  return "?";
}

}  // namespace starling::membership
