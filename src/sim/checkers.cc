#include "sim/checkers.h"

#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::sim {
namespace {

using membership::FormRecord;
using membership::JournalRecord;
using membership::LedgerLine;
using membership::Outcome;
using membership::Position;
using membership::ToString;
using membership::View;

// I1: generations never fall or repeat, and are reserved before they are used.
class GenerationsGrow : public Checker {
 public:
  using Checker::Checker;
  void OnRecord(const JournalRecord& record) override {
    if (const auto* reserved = std::get_if<membership::GenerationsRecord>(&record)) {
      reserved_ = std::max(reserved_, reserved->up_to);
    }
    if (const auto* life = std::get_if<membership::TermRecord>(&record)) {
      if (life->term <= term_) Fail(absl::StrCat("I1: term ", life->term.value(), " began twice"));
      term_ = std::max(term_, life->term);
    }
    const auto* form = std::get_if<FormRecord>(&record);
    if (form == nullptr) return;
    const Generation g = form->view.generation;
    const bool adopted = adopting_;
    if (g <= last_ && !adopted) {
      Fail(absl::StrCat("I1: generation ", g.value(), " was journalled after ", last_.value()));
    }
    if (!adopted && g > reserved_) {
      Fail(
          absl::StrCat("I1: generation ", g.value(), " is above the reserved ", reserved_.value()));
    }
    adopting_ = false;
    last_ = std::max(last_, g);
  }
  // What no journal and no worker says cannot be known.
  void OnJournalLost() override {
    adopting_ = true;
    last_ = reserved_ = Generation();
    term_ = Term();
  }

 private:
  Term term_;
  Generation last_, reserved_;
  bool adopting_ = false;  // the view that workers report is journalled again
};

// I2: one view per generation, whoever looks. I3: ranks are 0 … n−1, each of one incarnation.
class OneViewPerGeneration : public Checker {
 public:
  using Checker::Checker;
  // A view is durable before anybody hears of it. (With the journal what it knew is gone.)
  void OnForm(const View& view) override {
    if (!lost_ && !journalled_.contains(view.generation)) {
      Fail(absl::StrCat("I2: generation ", view.generation.value(), " was sent, not journalled"));
    }
    Look(view);
  }
  // What was proposed, a lost journal does not say, nor do workers: secrets tell those apart.
  void OnProposal(const View& view) override {
    if (!lost_) Look(view);
  }
  void OnRecord(const JournalRecord& record) override {
    const auto* form = std::get_if<FormRecord>(&record);
    if (form == nullptr) return;
    journalled_.insert(form->view.generation);
    Look(form->view);
  }
  void OnJournalLost() override {
    views_.clear();
    lost_ = true;
  }

 private:
  void Look(const View& view) {
    const auto [it, added] = views_.emplace(view.generation, view);
    if (!added) {
      if (!(it->second == view)) {
        Fail(absl::StrCat("I2: two views of generation ", view.generation.value(), " with ",
                          it->second.members.size(), " and ", view.members.size(), " members"));
      }
      return;
    }
    std::set<Incarnation> seen;
    std::set<std::string> names;
    for (const membership::Member& member : view.members) {
      if (!seen.insert(member.incarnation).second || !names.insert(member.name).second) {
        Fail(absl::StrCat("I3: generation ", view.generation.value(), " holds ", member.name,
                          " twice"));
      }
    }
    if (view.members.empty()) {
      Fail(absl::StrCat("I3: generation ", view.generation.value(), " is empty"));
    }
  }
  std::map<Generation, View> views_;
  std::set<Generation> journalled_;
  bool lost_ = false;
};

// I5: at most one generation makes progress. A vote is decided in the newest view that continues
// the same history only. (A group that is cut off as a whole and was replaced by a restore goes on
// alone; nothing of it is ever accepted, which I6 and I13 check.)
class OneGenerationAtATime : public Checker {
 public:
  using Checker::Checker;
  void OnDecided(const DecidedFact& fact) override {
    Generation& newest = decided_[fact.result.at.timeline];
    if (fact.result.generation < newest && !lost_) {
      Fail(absl::StrCat("I5: generation ", fact.result.generation.value(),
                        " decided the step after ", ToString(fact.result.at), " when generation ",
                        newest.value(), " had already decided one"));
    }
    newest = std::max(newest, fact.result.generation);
  }
  // Nobody can stop a group that no journal and no worker tells of.
  void OnJournalLost() override { lost_ = true; }

 private:
  std::map<Timeline, Generation> decided_;
  bool lost_ = false;
};

// I6: an incarnation that a journalled view omits never returns.
class FencedStaysOut : public Checker {
 public:
  using Checker::Checker;
  void OnRecord(const JournalRecord& record) override {
    const auto* form = std::get_if<FormRecord>(&record);
    if (form == nullptr) return;
    for (const membership::Member& member : form->view.members) {
      if (fenced_.contains(member.incarnation)) {
        Fail(absl::StrCat("I6: ", member.name, " ", ToHex(member.incarnation),
                          " was omitted by an earlier view and is in generation ",
                          form->view.generation.value()));
      }
    }
    for (const membership::Member& member : last_.members) {
      if (!form->view.RankOf(member.incarnation)) fenced_.insert(member.incarnation);
    }
    last_ = form->view;
  }
  void OnJournalLost() override { last_ = View(); }

 private:
  View last_;
  std::set<Incarnation> fenced_;
};

// I7: a committed step's gradient holds exactly the micro-batches 0 … M−1, each once.
class EachMicroBatchOnce : public Checker {
 public:
  using Checker::Checker;
  void OnDecided(const DecidedFact& fact) override {
    votes_.insert(fact.result.tokens);
    if (fact.result.outcome == Outcome::kRepeat) return;
    Multiset sum;
    for (const plan::IntervalSet& set : fact.contributions) {
      for (const plan::Interval& i : set.intervals()) {
        for (int64_t v = i.begin; v < i.end; ++v) ++sum[v];
      }
    }
    Compare(fact.result, sum, "was decided with");
  }
  void OnApplied(const AppliedFact& fact) override {
    if (!votes_.contains(fact.result.tokens)) {
      Fail(absl::StrCat("I7: ", ToHex(fact.worker), " follows a vote after ",
                        ToString(fact.result.at), " that was never decided"));
    }
    if (fact.result.outcome != Outcome::kCommit || fact.reduced == verified_) return;
    verified_ = fact.reduced;  // one object for all ranks
    Compare(fact.result, fact.reduced->sum, "was applied with");
  }

 private:
  void Compare(const membership::VoteResult& result, const Multiset& sum, const char* what) {
    for (int64_t i = 0; i < run_->micro_batches; ++i) {
      const auto it = sum.find(i);
      const int times = it == sum.end() ? 0 : it->second;
      if (times != 1) {
        Fail(absl::StrCat("I7: the step after ", ToString(result.at), " of generation ",
                          result.generation.value(), " ", what, " micro-batch ", i, " ", times,
                          " times"));
      }
    }
    if (static_cast<int64_t>(sum.size()) != run_->micro_batches) {
      Fail(absl::StrCat("I7: the step after ", ToString(result.at), " ", what, " ", sum.size(),
                        " different micro-batches of ", run_->micro_batches));
    }
  }
  std::shared_ptr<const Reduced> verified_;
  std::set<int64_t> votes_;  // the modelled communicator numbers them
};

// I8: all that decide a version by one vote have the same bits; so have all members of the views
// that begin at it, whether they computed, copied or loaded it. (A member that saw a vote alone and
// vanished has other bits of that step: it is fenced, and the survivors' sum is another one.)
class SameBits : public Checker {
 public:
  using Checker::Checker;
  void OnRecord(const JournalRecord& record) override {
    const auto* form = std::get_if<FormRecord>(&record);
    if (form == nullptr || !form->forked_from) return;
    const auto base = bits_.find(*form->forked_from);
    if (base != bits_.end()) bits_[form->position.version()] = base->second;
  }
  void OnApplied(const AppliedFact& fact) override {
    if (fact.result.outcome == Outcome::kRepeat) return;
    const auto key = std::pair(fact.result.After().version(), fact.result.tokens);
    const auto [it, added] = applied_.emplace(key, fact.chain_after);
    if (!added && it->second != fact.chain_after) {
      Fail(absl::StrCat("I8: ", ToHex(fact.worker), " has other bits after the vote of generation ",
                        fact.result.generation.value(), " that decided ", ToString(key.first)));
    }
  }
  void OnActive(const ActiveFact& fact) override {
    if (!fact.whole) {
      Fail(absl::StrCat("I8: ", ToHex(fact.worker), " is active at ", ToString(fact.position),
                        " with an incomplete state"));
    }
    Look(fact.worker, fact.position.version(), fact.chain);
  }
  void OnJournalLost() override {
    bits_.clear();
    applied_.clear();
  }

 private:
  void Look(Incarnation worker, const Version& version, uint64_t chain) {
    const auto [it, added] = bits_.emplace(version, chain);
    if (!added && it->second != chain) {
      Fail(absl::StrCat("I8: ", ToHex(worker), " has other bits at ", ToString(version),
                        " than another worker: ", chain, " and ", it->second));
    }
  }
  // Without a journal timelines and generations may be numbered anew.
  std::map<Version, uint64_t> bits_;
  std::map<std::pair<Version, int64_t>, uint64_t> applied_;
};

// I9: within a timeline the decided step never falls; a new timeline begins only by a journalled
// restore, and only when no reachable member holds the state.
class TimelinesGrow : public Checker {
 public:
  using Checker::Checker;
  void OnRecord(const JournalRecord& record) override {
    const auto* form = std::get_if<FormRecord>(&record);
    if (form == nullptr) return;
    const Timeline timeline = form->position.timeline;
    if (timeline < timeline_) {
      Fail(absl::StrCat("I9: timeline ", timeline.value(), " came after ", timeline_.value()));
    }
    if (timeline > timeline_ && timeline_.value() > 0) {
      if (!form->forked_from) {
        Fail(absl::StrCat("I9: timeline ", timeline.value(), " began without a restore"));
      }
      if (form->forked_from && !lost_ && !Continues(*form->forked_from)) {
        Fail(absl::StrCat("I9: timeline ", timeline.value(), " continues ",
                          ToString(*form->forked_from), ", which is not of the history of ",
                          timeline_.value()));
      }
      if (const auto holder = run_->reachable_holder()) {
        Fail(absl::StrCat("I9: timeline ", timeline.value(), " began although ", *holder));
      }
    }
    const auto highest = highest_.find(timeline);
    if (highest != highest_.end() && form->position < highest->second && !adopting_) {
      Fail(absl::StrCat("I9: generation ", form->view.generation.value(), " begins at ",
                        ToString(form->position), " after ", ToString(highest->second)));
    }
    adopting_ = false;
    if (form->forked_from) forks_[timeline] = *form->forked_from;
    timeline_ = std::max(timeline_, timeline);
    Raise(form->position);
  }
  void OnLedger(const LedgerLine& line) override {
    Raise({line.version.timeline, line.version.step, Attempt(0)});
  }
  void OnJournalLost() override {
    adopting_ = lost_ = true;
    timeline_ = Timeline();
    highest_.clear();
  }

 private:
  // Whether the newest timeline went through this version.
  bool Continues(const Version& version) const {
    Step highest(std::numeric_limits<int64_t>::max());
    for (Timeline at = timeline_; version.step.value() > 0;) {
      if (at == version.timeline) return version.step <= highest;
      const auto fork = forks_.find(at);
      if (fork == forks_.end()) return false;
      highest = std::min(highest, fork->second.step);
      at = fork->second.timeline;
    }
    return true;  // step 0 is everybody's
  }
  std::map<Timeline, Version> forks_;
  bool lost_ = false;
  void Raise(const Position& position) {
    Position& highest = highest_[position.timeline];
    highest = std::max(highest, position);
  }
  Timeline timeline_;
  bool adopting_ = false;
  std::map<Timeline, Position> highest_;
};

// I10 and I13: one ledger line per (timeline, step), without gaps; it says what the decided sum
// held and covers each micro-batch once; and at rest every step of the surviving history has one.
class LedgerIsComplete : public Checker {
 public:
  using Checker::Checker;
  void OnRecord(const JournalRecord& record) override {
    const auto* form = std::get_if<FormRecord>(&record);
    if (form != nullptr && form->forked_from) {
      forks_[form->position.timeline] = *form->forked_from;
    }
  }
  void OnDecided(const DecidedFact& fact) override {
    if (fact.result.outcome == Outcome::kRepeat) return;
    decided_[{fact.result.After().version(), fact.result.generation}] = {
        fact.contributions, fact.result.outcome == Outcome::kSkip};
  }
  void OnLedger(const LedgerLine& line) override {
    if (!lines_.emplace(line.version, line.generation).second) {
      Fail(absl::StrCat("I13: two ledger lines of ", ToString(line.version)));
    }
    const auto decided = decided_.find({line.version, line.generation});
    if (decided == decided_.end()) {
      Fail(absl::StrCat("I13: a ledger line of ", ToString(line.version), " by generation ",
                        line.generation.value(), ", which never decided it"));
      return;
    }
    if (decided->second.second != line.skipped) {
      Fail(absl::StrCat("I13: the ledger line of ", ToString(line.version),
                        line.skipped ? " says it was skipped" : " does not say it was skipped"));
    }
    if (decided->second.first != line.micro_batches) {
      Fail(absl::StrCat("I13: the ledger line of ", ToString(line.version), " by generation ",
                        line.generation.value(), " does not say who contributed what"));
    }
    plan::IntervalSet all;
    for (const plan::IntervalSet& set : line.micro_batches) {
      if (set.Intersects(all)) {
        Fail(absl::StrCat("I10: ", ToString(line.version), " consumed a sample twice"));
      }
      all.Add(set);
    }
    if (!(all == plan::IntervalSet::Whole(run_->micro_batches))) {
      Fail(absl::StrCat("I10: ", ToString(line.version), " consumed only ", all.ToString()));
    }
  }
  void OnApplied(const AppliedFact& fact) override {
    if (fact.result.outcome == Outcome::kRepeat) return;
    applied_[fact.result.After().version()].insert(fact.result.generation);
  }
  void OnRest(const Version& version) override {
    for (Version at = version; at.step.value() > 0;) {
      const auto fork = forks_.find(at.timeline);
      if (fork != forks_.end() && at.step <= fork->second.step) {
        at = fork->second;
        continue;
      }
      const auto line = lines_.find(at);
      if (line == lines_.end()) {
        Fail(absl::StrCat("I13: at rest at ", ToString(version), " the ledger lacks ",
                          ToString(at)));
        return;
      }
      const auto applied = applied_.find(at);
      if (applied == applied_.end() || !applied->second.contains(line->second)) {
        Fail(absl::StrCat("I13: the ledger line of ", ToString(at), " is of generation ",
                          line->second.value(), ", but another one's sum was applied"));
      }
      at.step = Step(at.step.value() - 1);
    }
  }

 private:
  std::map<Version, Generation> lines_;
  std::map<Version, std::set<Generation>> applied_;
  std::map<std::pair<Version, Generation>, std::pair<std::vector<plan::IntervalSet>, bool>>
      decided_;
  std::map<Timeline, Version> forks_;
};

}  // namespace

// I4 (who takes part in a collective), I11 (holders) and I12 (limits) are checked where the facts
// are: in the modelled communicator and in the world.
std::vector<std::unique_ptr<Checker>> AllCheckers(const RunFacts* run) {
  std::vector<std::unique_ptr<Checker>> all;
  all.push_back(std::make_unique<GenerationsGrow>(run));
  all.push_back(std::make_unique<OneViewPerGeneration>(run));
  all.push_back(std::make_unique<OneGenerationAtATime>(run));
  all.push_back(std::make_unique<FencedStaysOut>(run));
  all.push_back(std::make_unique<EachMicroBatchOnce>(run));
  all.push_back(std::make_unique<SameBits>(run));
  all.push_back(std::make_unique<TimelinesGrow>(run));
  all.push_back(std::make_unique<LedgerIsComplete>(run));
  return all;
}

}  // namespace starling::sim
