#include "starling/train/trainer.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "starling/base/log.h"
#include "starling/base/status.h"
#include "starling/model/lean_albert.h"
#include "starling/optim/adamw.h"
#include "starling/optim/lamb.h"
#include "train/digest.h"
#include "train/flat_params.h"
#include "train/torch_status.h"

namespace starling::train {
namespace {

// A tensor over the batch's own memory; nobody writes to it.
at::Tensor BatchTensor(const std::vector<int64_t>& values, at::IntArrayRef shape) {
  return at::from_blob(const_cast<int64_t*>(values.data()), shape,
                       at::TensorOptions().dtype(at::kLong));
}

model::ModelInputs InputsOf(const data::Batch& batch) {
  const int64_t shape[2] = {batch.rows, batch.length};
  return {BatchTensor(batch.input_ids, shape), BatchTensor(batch.token_type_ids, shape),
          BatchTensor(batch.attention_mask, shape)};
}

// Shapes are checked here because libtorch would read past the end of a short vector.
absl::Status CheckBatch(const data::Batch& batch) {
  const auto positions = static_cast<size_t>(batch.rows * batch.length);
  if (batch.rows > 0 && batch.length > 0 && batch.input_ids.size() == positions &&
      batch.token_type_ids.size() == positions && batch.attention_mask.size() == positions &&
      batch.labels.size() == positions &&
      batch.sentence_order_labels.size() == static_cast<size_t>(batch.rows)) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("a batch of ", batch.rows, " rows and length ",
                                          batch.length, " holds ", batch.input_ids.size(),
                                          " tokens and ", batch.labels.size(), " labels"));
}

int64_t CountEqual(const at::Tensor& a, const at::Tensor& b) {
  return a.eq(b).sum().item<int64_t>();
}

double SumOfLosses(const at::Tensor& logits, const at::Tensor& labels) {
  return at::cross_entropy_loss(logits, labels, /*weight=*/{}, at::Reduction::Sum).item<double>();
}

optim::StepScalars StepScalarsOf(const UpdateScalars& scalars) {
  return {scalars.learning_rate, scalars.gradient_scale * scalars.clip_factor, scalars.update};
}

absl::Status CheckOptions(const TrainerOptions& options) {
  std::vector<std::string> problems = options.model.Validate();
  for (std::string& problem : options.optimizer.Validate()) problems.push_back(std::move(problem));
  if (options.threads < 1) {
    problems.push_back(absl::StrCat("threads is ", options.threads, ", but must be at least 1"));
  }
  if (options.sentence_order && !options.model.sop_head) {
    problems.push_back("the objective mlm_sop needs a model with a sentence-order head");
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(problems, "; "));
}

class LocalTrainer final : public Trainer {
 public:
  LocalTrainer(const TrainerOptions& options, FlatLayout layout, FlatBuffers buffers)
      : options_(options),
        layout_(std::move(layout)),
        buffers_(std::move(buffers)),
        model_(options.model, MakeParameterViews(layout_, &buffers_)) {}

  void InitializeFromSeed(const std::function<void()>& progressed) override {
    UseThreads();
    std::ranges::fill(buffers_.parameters.span(), 0.0f);  // padding stays zero
    model::InitializeParameters(options_.model, options_.seed, model_.parameters(), progressed);
    std::ranges::fill(buffers_.first_moment.span(), 0.0f);
    std::ranges::fill(buffers_.second_moment.span(), 0.0f);
    ClearAccumulator();
  }

  const FlatLayout& layout() const override { return layout_; }
  std::span<float> parameters() override { return buffers_.parameters.span(); }
  std::span<float> first_moment() override { return buffers_.first_moment.span(); }
  std::span<float> second_moment() override { return buffers_.second_moment.span(); }
  std::span<float> accumulator() override { return buffers_.accumulator.span(); }
  std::span<float> reduced() override { return buffers_.reduced.span(); }

  absl::StatusOr<MicroBatchLosses> Compute(const data::Batch& batch,
                                           uint64_t dropout_seed) override {
    MicroBatchLosses losses;
    STARLING_RETURN_IF_ERROR(CatchTorch("computing a micro-batch", [&]() -> absl::Status {
      STARLING_RETURN_IF_ERROR(CheckBatch(batch));
      UseThreads();
      losses = ForwardBackward(batch, dropout_seed);
      return CheckGradientViews(layout_, buffers_, model_.parameters());
    }));
    return losses;
  }

  void ClearAccumulator() override { std::ranges::fill(buffers_.accumulator.span(), 0.0f); }

  double SquaredNorm(std::span<const comm::Range> ranges) override {
    double sum = 0;
    for (const TensorPart& part : PartsOf(layout_, ranges)) {
      sum += optim::SquareSum(
          buffers_.reduced.span().subspan(static_cast<size_t>(part.range.begin), CountOf(part)));
    }
    return sum;
  }

  PartialNorms Measure(std::span<const comm::Range> ranges, const UpdateScalars& scalars) override {
    const size_t count = layout_.tensors.size();
    PartialNorms norms{std::vector<double>(count), std::vector<double>(count)};
    if (options_.optimizer.name != optim::Name::kLamb) return norms;
    for (const TensorPart& part : PartsOf(layout_, ranges)) {
      const optim::LambSums sums =
          optim::LambMeasure(options_.optimizer, StepScalarsOf(scalars), SliceOf(part));
      norms.weight_squares[part.tensor] += sums.weight_squares;
      norms.update_squares[part.tensor] += sums.update_squares;
    }
    return norms;
  }

  void Apply(std::span<const comm::Range> ranges, const UpdateScalars& scalars,
             const PartialNorms& norms) override {
    const size_t count = layout_.tensors.size();
    STARLING_CHECK(norms.weight_squares.size() == count && norms.update_squares.size() == count)
        << "norms of " << norms.weight_squares.size() << " tensors for " << count;
    for (const TensorPart& part : PartsOf(layout_, ranges)) {
      if (options_.optimizer.name == optim::Name::kAdamW) {
        optim::AdamWApply(options_.optimizer, StepScalarsOf(scalars), SliceOf(part));
        continue;
      }
      const float ratio = optim::LambTrustRatio(
          options_.optimizer,
          {norms.weight_squares[part.tensor], norms.update_squares[part.tensor]});
      optim::LambApply(options_.optimizer, StepScalarsOf(scalars), ratio, SliceOf(part));
    }
  }

  absl::StatusOr<EvaluationSums> Evaluate(const data::Batch& batch) override {
    EvaluationSums sums;
    STARLING_RETURN_IF_ERROR(CatchTorch("evaluating a batch", [&]() -> absl::Status {
      STARLING_RETURN_IF_ERROR(CheckBatch(batch));
      UseThreads();
      const at::NoGradGuard no_gradients;
      const model::ModelOutput output = model_.Forward(InputsOf(batch));
      AddMaskedTokens(batch, output.hidden, &sums);
      if (options_.sentence_order) AddSentencePairs(batch, output.pooled, &sums);
      return absl::OkStatus();
    }));
    return sums;
  }

  std::array<uint64_t, 4> Digest(std::span<const comm::Range> ranges) override {
    const std::span<const float> buffers[] = {
        buffers_.parameters.span(), buffers_.first_moment.span(), buffers_.second_moment.span()};
    return DigestOf(layout_, buffers, ranges);
  }

 private:
  static size_t CountOf(const TensorPart& part) {
    return static_cast<size_t>(part.range.end - part.range.begin);
  }

  optim::Slice SliceOf(const TensorPart& part) {
    const int64_t begin = part.range.begin;
    return {parameters().data() + begin,    first_moment().data() + begin,
            second_moment().data() + begin, reduced().data() + begin,
            part.range.end - begin,         layout_.tensors[part.tensor].decay};
  }

  // OpenMP keeps the number of threads per thread, and the training thread need not be the one that
  // created the trainer.
  void UseThreads() const {
    if (at::get_num_threads() != options_.threads) at::set_num_threads(options_.threads);
  }

  MicroBatchLosses ForwardBackward(const data::Batch& batch, uint64_t dropout_seed) {
    const int64_t shape[2] = {batch.rows, batch.length};
    model::PretrainingLabels labels;
    labels.labels = BatchTensor(batch.labels, shape);
    if (options_.sentence_order) {
      labels.sentence_order = BatchTensor(batch.sentence_order_labels, batch.rows);
    }
    model::ForwardOptions forward;
    forward.training = true;
    forward.dropout_seed = dropout_seed;
    const model::PretrainingLosses losses =
        model_.PretrainingLoss(InputsOf(batch), labels, forward);
    losses.Backward();
    return {losses.mlm.item<double>(), losses.sop.item<double>(), batch.tokens, batch.rows};
  }

  void AddMaskedTokens(const data::Batch& batch, const at::Tensor& hidden, EvaluationSums* sums) {
    const at::Tensor labels = BatchTensor(batch.labels, batch.rows * batch.length);
    const at::Tensor positions = at::nonzero(labels.ne(data::kIgnoredLabel)).flatten();
    if (positions.numel() == 0) return;
    const at::Tensor logits = model_.MlmLogits(hidden, positions);
    const at::Tensor expected = at::index_select(labels, 0, positions);
    sums->mlm_loss += SumOfLosses(logits, expected);
    sums->masked += positions.numel();
    sums->masked_correct += CountEqual(at::argmax(logits, 1), expected);
  }

  void AddSentencePairs(const data::Batch& batch, const at::Tensor& pooled, EvaluationSums* sums) {
    const at::Tensor labels = BatchTensor(batch.sentence_order_labels, batch.rows);
    const int64_t pairs = labels.ne(data::kIgnoredLabel).sum().item<int64_t>();
    if (pairs == 0) return;
    const at::Tensor logits = model_.SopLogits(pooled);
    sums->sop_loss += SumOfLosses(logits, labels);
    sums->pairs += pairs;
    sums->pairs_correct += CountEqual(at::argmax(logits, 1), labels);
  }

  const TrainerOptions options_;
  const FlatLayout layout_;
  FlatBuffers buffers_;
  const model::LeanAlbert model_;  // its parameters are views into `buffers_`
};

}  // namespace

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const TrainerOptions& options) {
  STARLING_RETURN_IF_ERROR(CheckOptions(options));
  FlatLayout layout = MakeFlatLayout(options.model);
  STARLING_ASSIGN_OR_RETURN(FlatBuffers buffers, FlatBuffers::Allocate(layout));
  std::unique_ptr<Trainer> trainer;
  STARLING_RETURN_IF_ERROR(CatchTorch("building the model", [&] {
    at::set_num_threads(options.threads);
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    // Deterministic mode would also fill every fresh tensor, which costs time and changes nothing.
    at::globalContext().setDeterministicFillUninitializedMemory(false);
    trainer = std::make_unique<LocalTrainer>(options, std::move(layout), std::move(buffers));
    return absl::OkStatus();
  }));
  return trainer;
}

}  // namespace starling::train
