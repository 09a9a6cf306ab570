// The trainer's promises: whole micro-batches in the accumulator, bits that depend on nothing but
// the inputs, updates that may be cut anywhere, evaluation, errors.
#include "starling/train/trainer.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <limits>

#include "train/train_cases.h"

namespace starling::train {
namespace {

using testing::Copy;
using testing::Everything;
using testing::LocalStep;
using testing::MakeTrainer;
using testing::MustCompute;
using testing::RandomBatch;
using testing::SmallOptions;

// Live dropout at every place.
TrainerOptions WithDropout() {
  TrainerOptions options = SmallOptions();
  options.model.hidden_dropout_prob = 0.1;
  options.model.attention_probs_dropout_prob = 0.1;
  return options;
}

std::vector<float> GradientOf(Trainer& trainer, const data::Batch& batch, uint64_t seed = 1) {
  trainer.ClearAccumulator();
  MustCompute(trainer, batch, seed);
  return Copy(trainer.accumulator());
}

void CheckPaddingIsZero(Trainer& trainer) {
  const FlatLayout& layout = trainer.layout();
  std::vector<bool> used(static_cast<size_t>(layout.size));
  for (const FlatTensor& tensor : layout.tensors) {
    std::fill_n(used.begin() + tensor.begin, tensor.count, true);
  }
  for (const auto& buffer : {trainer.parameters(), trainer.first_moment(), trainer.second_moment(),
                             trainer.accumulator(), trainer.reduced()}) {
    for (size_t i = 0; i < used.size(); ++i) {
      if (!used[i] && buffer[i] != 0) FAIL("padding element " << i << " is " << buffer[i]);
    }
  }
}

}  // namespace

TEST_CASE("trainer: version 0 depends on the seed alone, moments are zero", "[train]") {
  const auto a = MakeTrainer(SmallOptions());
  const auto b = MakeTrainer(SmallOptions());
  CHECK(Copy(a->parameters()) == Copy(b->parameters()));
  CHECK(a->Digest(Everything(*a)) == b->Digest(Everything(*b)));
  TrainerOptions other = SmallOptions();
  other.seed = 8;
  CHECK(Copy(MakeTrainer(other)->parameters()) != Copy(a->parameters()));
  CHECK(std::ranges::count(a->first_moment(), 0.0f) == a->layout().size);
  CHECK(std::ranges::count(a->second_moment(), 0.0f) == a->layout().size);
  for (const auto& buffer :
       {a->parameters(), a->first_moment(), a->second_moment(), a->accumulator(), a->reduced()}) {
    CHECK(reinterpret_cast<uintptr_t>(buffer.data()) % 64 == 0);
    CHECK(static_cast<int64_t>(buffer.size()) == a->layout().size);
  }
}

TEST_CASE("trainer: before version 0 is asked for all is zero; asked for again it is the same",
          "[train]") {
  auto trainer = Trainer::Create(SmallOptions());
  REQUIRE(trainer.ok());
  CHECK(std::ranges::count((*trainer)->parameters(), 0.0f) == (*trainer)->layout().size);
  const auto reference = MakeTrainer(SmallOptions());
  for (int time : {1, 2}) {
    INFO("time " << time);
    size_t drawn = 0;
    (*trainer)->InitializeFromSeed([&] { ++drawn; });
    CHECK(drawn == (*trainer)->layout().tensors.size());
    CHECK((*trainer)->Digest(Everything(**trainer)) == reference->Digest(Everything(*reference)));
    CheckPaddingIsZero(**trainer);
    LocalStep(**trainer, SmallOptions(), {RandomBatch(2, 16, 1)}, 0.1, 1);
  }
}

TEST_CASE("trainer: the accumulator holds the exact sum of the micro-batches' gradients",
          "[train]") {
  const auto trainer = MakeTrainer(WithDropout());
  const data::Batch first = RandomBatch(3, 24, 1), second = RandomBatch(2, 16, 2);
  std::vector<float> expected = GradientOf(*trainer, first, 11);
  const std::vector<float> other = GradientOf(*trainer, second, 12);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += other[i];
  trainer->ClearAccumulator();
  CHECK(std::ranges::count(trainer->accumulator(), 0.0f) == trainer->layout().size);
  const MicroBatchLosses losses = MustCompute(*trainer, first, 11);
  MustCompute(*trainer, second, 12);
  CHECK(Copy(trainer->accumulator()) == expected);
  CHECK(losses.samples == 3);
  CHECK(losses.tokens == first.tokens);
  CheckPaddingIsZero(*trainer);
}

TEST_CASE("trainer: the same micro-batch gives the same bits, the dropout seed matters",
          "[train]") {
  const data::Batch batch = RandomBatch(4, 32, 3);
  const auto trainer = MakeTrainer(WithDropout());
  const std::vector<float> gradient = GradientOf(*trainer, batch, 5);
  MustCompute(*trainer, RandomBatch(2, 40, 4), 6);
  CHECK(GradientOf(*trainer, batch, 5) == gradient);
  CHECK(GradientOf(*MakeTrainer(WithDropout()), batch, 5) == gradient);
  CHECK(GradientOf(*trainer, batch, 6) != gradient);
}

TEST_CASE("trainer: gradients agree with finite differences of the loss", "[train]") {
  TrainerOptions options = SmallOptions();
  options.model.classifier_dropout_prob = 0;
  const auto trainer = MakeTrainer(options);
  const data::Batch batch = RandomBatch(3, 20, 5);
  const std::vector<float> gradient = GradientOf(*trainer, batch);
  const auto loss = [&] {
    const MicroBatchLosses losses = MustCompute(*trainer, batch);
    return losses.mlm + losses.sop;
  };
  for (const FlatTensor& tensor : trainer->layout().tensors) {
    // Along the tensor's own gradient the loss changes by its squared norm.
    const auto values = trainer->parameters().subspan(static_cast<size_t>(tensor.begin),
                                                      static_cast<size_t>(tensor.count));
    const float* g = gradient.data() + tensor.begin;
    double squares = 0;
    for (size_t i = 0; i < values.size(); ++i) squares += double{g[i]} * g[i];
    if (squares < 1e-8) continue;  // nothing to measure, e.g. the key bias of attention
    const std::vector<float> before = Copy(values);
    const double epsilon = 5e-3 / std::sqrt(squares);
    double ends[2];
    for (int side : {0, 1}) {
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(before[i] + (side == 0 ? -epsilon : epsilon) * g[i]);
      }
      ends[side] = loss();
    }
    std::ranges::copy(before, values.begin());
    const double slope = (ends[1] - ends[0]) / (2 * epsilon);
    INFO(tensor.name << ": slope " << slope << ", squared norm " << squares);
    CHECK(std::abs(slope - squares) <= 0.02 * squares + 2e-4 * std::sqrt(squares));
  }
}

TEST_CASE("trainer: an update over any cut of the flat space gives the bits of the whole",
          "[train]") {
  TrainerOptions options = SmallOptions();
  options.optimizer.name = GENERATE(optim::Name::kLamb, optim::Name::kAdamW);
  const auto whole = MakeTrainer(options), cut = MakeTrainer(options);
  const std::vector<comm::Range> all = Everything(*whole);
  const int64_t size = whole->layout().size;
  // As three owners would hold it, and not in order.
  const std::vector<std::vector<comm::Range>> owners = {
      {{4096, 8192}, {0, 1000}}, {{1000, 4096}}, {{8192, 8200}, {8200, size}}};
  for (int64_t update = 1; update <= 3; ++update) {
    const data::Batch batch = RandomBatch(2, 24, static_cast<uint64_t>(update));
    for (Trainer* trainer : {whole.get(), cut.get()}) {
      trainer->ClearAccumulator();
      MustCompute(*trainer, batch);
      std::ranges::copy(trainer->accumulator(), trainer->reduced().begin());
    }
    const UpdateScalars scalars{0.01, 0.5, 0.75, update};
    const PartialNorms norms = whole->Measure(all, scalars);
    std::vector<double> sums(norms.weight_squares.size());
    for (const auto& ranges : owners) {
      const PartialNorms part = cut->Measure(ranges, scalars);
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += part.update_squares[i];
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      CHECK(std::abs(sums[i] - norms.update_squares[i]) <= 1e-12 * norms.update_squares[i]);
    }
    whole->Apply(all, scalars, norms);
    for (const auto& ranges : owners) cut->Apply(ranges, scalars, norms);
    CHECK(Copy(cut->parameters()) == Copy(whole->parameters()));
    CHECK(Copy(cut->first_moment()) == Copy(whole->first_moment()));
    CHECK(Copy(cut->second_moment()) == Copy(whole->second_moment()));
  }
  CheckPaddingIsZero(*cut);
  CHECK(whole->Digest(all) ==
        cut->Digest(std::vector<comm::Range>{{8192, size}, {0, 4096}, {4096, 8192}}));
}

TEST_CASE("trainer: norms come from the reduced sum, non-finite values come through", "[train]") {
  const auto trainer = MakeTrainer(SmallOptions());
  const std::vector<comm::Range> all = Everything(*trainer);
  CHECK(trainer->SquaredNorm(all) == 0);
  trainer->reduced()[3] = 3;
  trainer->reduced()[40] = 4;
  CHECK(trainer->SquaredNorm(all) == 25);
  CHECK(trainer->SquaredNorm(std::vector<comm::Range>{{0, 16}}) == 9);
  trainer->reduced()[40] = std::numeric_limits<float>::infinity();
  CHECK(std::isinf(trainer->SquaredNorm(all)));
}

TEST_CASE("trainer: both optimizers learn a batch by heart", "[train]") {
  TrainerOptions options = SmallOptions();
  options.optimizer.name = GENERATE(optim::Name::kLamb, optim::Name::kAdamW);
  const auto trainer = MakeTrainer(options);
  const std::vector<data::Batch> batches = {RandomBatch(4, 24, 1), RandomBatch(4, 24, 2)};
  double first = 0, last = 0;
  for (int64_t update = 1; update <= 40; ++update) {
    const testing::StepResult result = LocalStep(*trainer, options, batches, 0.01, update);
    (update == 1 ? first : last) = result.mlm + result.sop;
  }
  INFO("loss " << first << " -> " << last);
  CHECK(last < 0.7 * first);
}

TEST_CASE("evaluate: sums agree with the training losses, and nothing is changed", "[train]") {
  TrainerOptions options = SmallOptions();
  options.model.classifier_dropout_prob = 0;
  const auto trainer = MakeTrainer(options);
  data::Batch batch = RandomBatch(5, 24, 9);
  batch.sentence_order_labels[2] = data::kIgnoredLabel;
  const std::vector<float> gradient = GradientOf(*trainer, batch);
  const MicroBatchLosses losses = MustCompute(*trainer, batch);
  const std::vector<float> accumulated = Copy(trainer->accumulator());
  const auto sums = trainer->Evaluate(batch);
  REQUIRE(sums.ok());
  CHECK(sums->masked == batch.predicted);
  CHECK(sums->pairs == 4);
  CHECK(std::abs(sums->mlm_loss / static_cast<double>(sums->masked) - losses.mlm) <= 1e-5);
  CHECK(std::abs(sums->sop_loss / 4 - losses.sop) <= 1e-5);
  CHECK(Copy(trainer->accumulator()) == accumulated);
  // Without dropout the accuracy after learning the batch by heart is perfect.
  for (int64_t update = 1; update <= 150; ++update) {
    LocalStep(*trainer, options, {batch}, 0.02, update);
  }
  const auto learnt = trainer->Evaluate(batch);
  REQUIRE(learnt.ok());
  CHECK(learnt->masked_correct > sums->masked_correct);
  CHECK(learnt->pairs_correct == 4);
}

TEST_CASE("trainer: without a sentence order there is one loss", "[train]") {
  TrainerOptions options = SmallOptions();
  options.sentence_order = false;
  options.model.sop_head = false;
  const auto trainer = MakeTrainer(options);
  const data::Batch batch = RandomBatch(2, 24, 1);
  CHECK(MustCompute(*trainer, batch).sop == 0);
  const auto sums = trainer->Evaluate(batch);
  REQUIRE(sums.ok());
  CHECK(sums->pairs == 0);
}

TEST_CASE("trainer: a micro-batch without labels adds nothing", "[train]") {
  const auto trainer = MakeTrainer(SmallOptions());
  data::Batch batch = RandomBatch(2, 16, 1);
  std::ranges::fill(batch.labels, data::kIgnoredLabel);
  std::ranges::fill(batch.sentence_order_labels, data::kIgnoredLabel);
  const MicroBatchLosses losses = MustCompute(*trainer, batch);
  CHECK(losses.mlm == 0);
  CHECK(losses.sop == 0);
  CHECK(std::ranges::count(trainer->accumulator(), 0.0f) == trainer->layout().size);
}

TEST_CASE("trainer: what cannot be built or computed is a status", "[train]") {
  TrainerOptions bad = SmallOptions();
  bad.model.num_attention_heads = 5;
  bad.optimizer.beta1 = 2;
  bad.threads = 0;
  const auto refused = Trainer::Create(bad);
  CHECK(refused.status().code() == absl::StatusCode::kInvalidArgument);
  for (const char* word : {"num_attention_heads", "beta1", "threads"}) {
    CHECK(refused.status().message().find(word) != std::string::npos);
  }
  bad = SmallOptions();
  bad.model.sop_head = false;
  CHECK(Trainer::Create(bad).status().code() == absl::StatusCode::kInvalidArgument);

  const auto trainer = MakeTrainer(SmallOptions());
  data::Batch batch = RandomBatch(2, 16, 1);
  batch.input_ids[3] = 1000;  // beyond the vocabulary
  const auto failed = trainer->Compute(batch, 1);
  CHECK(failed.status().code() == absl::StatusCode::kInternal);
  CHECK(failed.status().message().find("micro-batch") != std::string::npos);
  batch.labels.pop_back();
  CHECK(trainer->Compute(batch, 1).status().code() == absl::StatusCode::kInternal);
  CHECK(trainer->Evaluate(batch).status().code() == absl::StatusCode::kInternal);
}

}  // namespace starling::train
