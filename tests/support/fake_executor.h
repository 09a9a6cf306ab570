// The executor of a worker without a model (fake_worker.h). A gradient is the set of micro-batches
// it holds; the weights are 64 numbers that count what was applied, so copies can be compared bit
// by bit.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "starling/base/fs.h"
#include "starling/checkpoint/reader.h"
#include "starling/checkpoint/writer.h"
#include "starling/membership/worker_core.h"
#include "support/fake_network.h"

namespace starling::testing {

// The executor of one worker: does a command and says how it ended. One thread, a second one for
// DoBeside, and any for Close.
class FakeExecutor {
 public:
  FakeExecutor(FakeNetwork* network, membership::Options options, Incarnation self,
               std::string checkpoints)
      : network_(network),
        options_(std::move(options)),
        self_(self),
        checkpoints_(std::move(checkpoints)) {}

  // From any thread.
  void Close(Generation generation) { network_->Leave(generation, self_); }

  membership::Completion Do(const membership::Command& command) {
    return std::visit([this](const auto& c) { return On(c); }, command);
  }
  membership::BesideCompletion DoBeside(const membership::BesideCommand& command) {
    membership::BesideCompletion completion =
        std::visit([this](const auto& c) { return Beside(c); }, command);
    completion.command = command;
    return completion;
  }
  // Set by Snapshot: a part that is durable now.
  std::optional<membership::PartWritten> TakePart() { return std::exchange(part_, std::nullopt); }

  Weights weights() const {
    absl::MutexLock lock(&mutex_);
    return weights_;
  }

 private:
  using Completion = membership::Completion;

  membership::BesideCompletion Beside(const membership::PrepareView& c) {
    membership::BesideCompletion completion;
    const std::string tag = absl::StrCat("prepare", c.round);
    {
      absl::MutexLock lock(&mutex_);
      network_->Post(c.view->generation, tag, c.rank,
                     {.weights = weights_, .updates = updates_, .version = version_});
    }
    const bool all = c.round == 0;  // later rounds are the copiers' own
    for (size_t r = 0; r < c.view->members.size(); ++r) {
      const Rank from(static_cast<int32_t>(r));
      const bool donor = std::any_of(
          c.transfers.begin(), c.transfers.end(),
          [&](const membership::Transfer& t) { return t.to == c.rank && t.from == from; });
      if (!all && !donor) continue;
      FakePayload got;
      const auto end = network_->Await(self_, *c.view, tag, from, &got, &completion.suspects);
      if (end != FakeNetwork::End::kOk) {
        completion.ok = false;
        completion.aborted = end == FakeNetwork::End::kAborted;
        return completion;
      }
      if (!donor) continue;
      completion.copied = completion.copied && *completion.copied != got.version
                              ? Version{Timeline(~uint64_t{0}), Step(0)}
                              : got.version;
      completion.updates = got.updates;
      SetWeights(got.weights, got.version, got.updates);
    }
    return completion;
  }
  membership::BesideCompletion Beside(const membership::SendAccumulator& c) {
    network_->Post(c.channel->generation, "hand", Rank(0),
                   {.micro_batches = accumulator_, .position = c.held.position});
    return {};
  }
  membership::BesideCompletion Beside(const membership::ReceiveAccumulator& c) {
    membership::BesideCompletion completion;
    FakePayload got;
    const auto end =
        network_->Await(self_, *c.channel, "hand", Rank(0), &got, &completion.suspects);
    completion.ok = end == FakeNetwork::End::kOk;
    completion.aborted = end == FakeNetwork::End::kAborted;
    if (!completion.ok) return completion;
    const Incarnation owner = c.channel->members[0].incarnation;
    completion.held = {owner, got.position, got.micro_batches};
    absl::MutexLock lock(&mutex_);
    held_[owner] = got.micro_batches;
    return completion;
  }

  Completion On(const membership::InitializeFromSeed& c) {
    SetWeights(Weights(kFakeWeights, 0.0f), c.version, 0);
    return {};
  }
  Completion On(const membership::LoadCheckpoint& c) {
    const auto opened = checkpoint::OpenCheckpoint(JoinPath(checkpoints_, c.source.checkpoint));
    if (!opened.ok()) return Failure(std::string(opened.status().message()));
    Weights loaded(kFakeWeights);
    const absl::Status read =
        opened->ReadInto("w", checkpoint::TensorKind::kParameter, 0, kFakeWeights, loaded.data());
    if (!read.ok()) return Failure(std::string(read.message()));
    SetWeights(std::move(loaded), c.version, opened->manifest().optimizer_steps);
    return {.updates = opened->manifest().optimizer_steps};
  }
  Completion On(const membership::Connect& c) {
    view_ = c.view;
    rank_ = c.rank;
    return Exchange("connect", {}, nullptr);
  }
  Completion On(const membership::CopyState& c) {
    FakePayload mine{.weights = weights(), .updates = updates()};
    Completion completion;
    for (const membership::Transfer& transfer : c.transfers) {
      if (transfer.from == rank_) network_->Post(c.generation, "copy", rank_, mine);
      if (transfer.to != rank_) continue;
      FakePayload got;
      const auto end =
          network_->Await(self_, *view_, "copy", transfer.from, &got, &completion.suspects);
      if (end != FakeNetwork::End::kOk) return Broken("copy", end, std::move(completion));
      SetWeights(got.weights, c.version, got.updates);
      completion.updates = got.updates;
    }
    return completion;
  }
  Completion On(const membership::Compute& c) {
    if (!network_->TakeTurn(view_->generation, self_)) {
      return {.ok = false, .aborted = true, .reason = "closed"};
    }
    if (accumulator_.Contains(c.index)) {
      network_->Complain(absl::StrCat("micro-batch ", c.index, " computed twice by one worker"));
    }
    accumulator_.Add(c.index);
    return {};
  }
  Completion On(const membership::Reduce& c) {
    std::vector<FakePayload> all;
    Completion completion = Exchange("reduce" + membership::ToString(c.position),
                                     {.micro_batches = accumulator_}, &all);
    if (!completion.ok) return completion;
    plan::IntervalSet sum;
    for (const FakePayload& payload : all) {
      if (sum.Intersects(payload.micro_batches)) {
        network_->Complain("a micro-batch is in the sum twice: " +
                           payload.micro_batches.ToString());
      }
      sum.Add(payload.micro_batches);
    }
    if (sum.count() != options_.micro_batches) {
      network_->Complain("the sum is not whole: " + sum.ToString());
    }
    return completion;
  }
  Completion On(const membership::Vote& c) {
    std::vector<FakePayload> all;
    Completion completion = Exchange(
        "vote" + membership::ToString(c.position),
        {.count = c.count, .mix = c.mix, .request_checkpoint = c.request_checkpoint}, &all);
    if (!completion.ok) return completion;
    membership::VoteResult result{.generation = c.generation, .at = c.position};
    for (const FakePayload& payload : all) {
      result.count += payload.count;
      result.mix += payload.mix;
      result.checkpoint_requested = result.checkpoint_requested || payload.request_checkpoint;
      result.speeds.push_back(10'000);
    }
    result.update = c.update;
    result.learning_rate = 0.5;
    result.mlm_loss = 2.0 * static_cast<double>(result.count);
    result.sop_loss = 1.0 * static_cast<double>(result.count);
    result.tokens = 100 * result.count;
    result.grad_norm = 1.5;
    completion.vote = std::move(result);
    return completion;
  }
  Completion On(const membership::Apply& c) {
    Weights next = weights();
    if (c.result.outcome == membership::Outcome::kCommit) {
      next[static_cast<size_t>(c.result.After().step.value() % kFakeWeights)] += 1.0f;
    }
    SetWeights(std::move(next), c.result.After().version(), c.result.update);
    return {};
  }
  Completion On(const membership::ClearAccumulator&) {
    accumulator_ = {};
    return {};
  }
  Completion On(const membership::MergeHeld& c) {
    absl::MutexLock lock(&mutex_);
    for (Incarnation owner : c.owners) {
      if (accumulator_.Intersects(held_[owner])) {
        network_->Complain("a held accumulator has what is there already");
      }
      accumulator_.Add(held_[owner]);
    }
    return {};
  }
  Completion On(const membership::Evaluate&) {
    return {.evaluation = {.mlm_loss = 2.0, .masked = 4, .masked_correct = 1}};
  }
  Completion On(const membership::Snapshot& c) {
    const plan::Interval range =
        plan::FirstOwned(kFakeWeights, c.members, c.rank.value(), /*block=*/4);
    const Weights now = weights();
    const checkpoint::PartSpec spec{options_.run_id, c.version, c.generation, self_, c.rank, 0};
    std::vector<checkpoint::TensorSlice> slices;
    if (range.end > range.begin) {
      slices.push_back(
          {{"w",
            checkpoint::TensorKind::kParameter,
            DType::kFloat32,
            {kFakeWeights},
            range.begin,
            range.end},
           std::string_view(reinterpret_cast<const char*>(now.data() + range.begin),
                            sizeof(float) * static_cast<size_t>(range.end - range.begin))});
    }
    const auto part = checkpoint::WritePart(
        RealFs(), JoinPath(checkpoints_, checkpoint::FolderName(c.version)), spec, slices);
    part_ = membership::PartWritten{
        c.version,
        c.generation,
        c.rank,
        c.updates,
        part.ok(),
        part.ok() ? checkpoint::EncodePart(*part) : std::string(part.status().message())};
    return {};
  }

  // Everybody's payloads by rank.
  Completion Exchange(const std::string& tag, FakePayload mine, std::vector<FakePayload>* all) {
    network_->Post(view_->generation, tag, rank_, std::move(mine));
    Completion completion;
    for (size_t r = 0; r < view_->members.size(); ++r) {
      FakePayload got;
      const auto end = network_->Await(self_, *view_, tag, Rank(static_cast<int32_t>(r)), &got,
                                       &completion.suspects);
      if (end != FakeNetwork::End::kOk) return Broken(tag, end, std::move(completion));
      if (all != nullptr) all->push_back(std::move(got));
    }
    return completion;
  }
  static Completion Broken(const std::string& what, FakeNetwork::End end, Completion completion) {
    completion.ok = false;
    completion.aborted = end == FakeNetwork::End::kAborted;
    completion.reason = what + " broke";
    return completion;
  }
  static Completion Failure(std::string reason) {
    return {.ok = false, .reason = std::move(reason)};
  }
  void SetWeights(Weights weights, Version version, int64_t updates) {
    absl::MutexLock lock(&mutex_);
    weights_ = std::move(weights);
    version_ = version;
    updates_ = updates;
  }
  int64_t updates() const {
    absl::MutexLock lock(&mutex_);
    return updates_;
  }

  FakeNetwork* const network_;
  const membership::Options options_;
  const Incarnation self_;
  const std::string checkpoints_;
  std::shared_ptr<const membership::View> view_;
  Rank rank_;
  plan::IntervalSet accumulator_;
  std::optional<membership::PartWritten> part_;
  mutable absl::Mutex mutex_;
  int64_t updates_ ABSL_GUARDED_BY(mutex_) = 0;
  Version version_ ABSL_GUARDED_BY(mutex_);
  std::map<Incarnation, plan::IntervalSet> held_ ABSL_GUARDED_BY(mutex_);
  Weights weights_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace starling::testing
