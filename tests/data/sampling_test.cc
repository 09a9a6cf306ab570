// Which samples a micro-batch holds: the permutation of a pass, positions across passes and changes
// of length, and whole batches as pure functions of their address.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <set>

#include "starling/base/rng.h"
#include "starling/data/loader.h"
#include "starling/data/micro_batches.h"
#include "starling/data/permutation.h"
#include "starling/data/position.h"
#include "support/temp_dir.h"

namespace starling::data {
namespace {

const SpecialIds kSpecial{.pad = 0, .unk = 1, .cls = 2, .sep = 3, .mask = 4};
constexpr int kVocabulary = 5000;

// Documents of `sentences` sentences of four tokens; no two tokens of the corpus are equal, so a
// token tells where it comes from.
std::shared_ptr<const Corpus> MakeCorpus(const testing::TempDir& dir, int documents,
                                         int sentences) {
  const std::string path = dir / "corpus.tokens";
  auto writer = TokenFileWriter::Create(path, kVocabulary, 9);
  REQUIRE(writer.ok());
  int32_t next = 5;
  for (int d = 0; d < documents; ++d) {
    std::vector<int32_t> ids;
    for (int t = 0; t < sentences * 4; ++t) ids.push_back(next++);
    REQUIRE((*writer)->AddDocument(ids, std::vector<uint32_t>(sentences, 4)).ok());
  }
  REQUIRE(next <= kVocabulary);
  REQUIRE((*writer)->Finish().ok());
  auto corpus = Corpus::Open(std::vector<std::string>{path});
  REQUIRE(corpus.ok());
  return *corpus;
}

MicroBatchOptions Options() {
  MicroBatchOptions options;
  options.seed = 42;
  options.micro_batch = 3;
  options.micro_batches = 2;
  options.pad_to_multiple = 8;
  options.lengths = {{0, 16}};
  options.tokenizer_hash = 9;
  options.special = kSpecial;
  for (int i = 0; i < kVocabulary; ++i) options.pieces.push_back("▁w" + std::to_string(i));
  return options;
}

std::unique_ptr<MicroBatchSource> Source(std::shared_ptr<const Corpus> corpus,
                                         const MicroBatchOptions& options) {
  auto source = MakeTrainingSource(std::move(corpus), options);
  REQUIRE(source.ok());
  return *std::move(source);
}

// The original id at a position: masking changes the input, the label keeps it.
int64_t OriginalId(const Batch& batch, size_t at) {
  return batch.labels[at] == kIgnoredLabel ? batch.input_ids[at] : batch.labels[at];
}

// Smallest ordinary token of each row, which names its chunk.
std::vector<int64_t> ChunkNames(const Batch& batch) {
  std::vector<int64_t> names;
  for (int64_t r = 0; r < batch.rows; ++r) {
    int64_t name = kVocabulary;
    for (int64_t t = 0; t < batch.length; ++t) {
      const int64_t id = OriginalId(batch, static_cast<size_t>(r * batch.length + t));
      if (id > kSpecial.mask) name = std::min(name, id);
    }
    names.push_back(name);
  }
  return names;
}

TEST_CASE("permutation: a bijection of every size, other for every seed and pass", "[data]") {
  for (const uint64_t n : {1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097}) {
    CAPTURE(n);
    std::set<uint64_t> seen;
    const Permutation order(7, 3, n);
    for (uint64_t i = 0; i < n; ++i) seen.insert(order(i));
    CHECK(seen.size() == n);
    CHECK(*seen.rbegin() == n - 1);
  }
  uint64_t equal_pass = 0, equal_seed = 0, fixed = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    equal_pass += Permutation(7, 3, 1000)(i) == Permutation(7, 4, 1000)(i);
    equal_seed += Permutation(7, 3, 1000)(i) == Permutation(8, 3, 1000)(i);
    fixed += Permutation(7, 3, 1000)(i) == i;
  }
  CHECK(equal_pass < 10);
  CHECK(equal_seed < 10);
  CHECK(fixed < 10);
}

TEST_CASE("permutation: all orders of four are about equally frequent", "[data]") {
  std::map<std::vector<uint64_t>, int> counts;
  for (uint64_t seed = 0; seed < 2400; ++seed) {
    const Permutation order(seed, 0, 4);
    ++counts[{order(0), order(1), order(2), order(3)}];
  }
  CHECK(counts.size() == 24);
  for (const auto& [order, count] : counts) {
    CHECK(count > 30);
    CHECK(count < 300);
  }
}

TEST_CASE("position: samples go on over the end of a pass, a change of length ends it", "[data]") {
  const std::vector<LengthChange> changes = {{0, 16}, {3, 32}, {5, 64}};
  const std::vector<uint64_t> counts = {4, 12, 100};
  const auto at = [&](int64_t step, uint64_t sample) {
    return PositionOf(changes, counts, 6, step, sample);
  };
  CHECK(at(0, 0) == SamplePosition{0, 0});
  CHECK(at(0, 5) == SamplePosition{1, 1});
  CHECK(at(2, 5) == SamplePosition{4, 1});
  CHECK(at(3, 0) == SamplePosition{5, 0});   // passes 0 to 4 were begun at length 16
  CHECK(at(4, 5) == SamplePosition{5, 11});  // ends exactly with its pass
  CHECK(at(5, 0) == SamplePosition{6, 0});
  CHECK(at(1000, 3) == SamplePosition{6 + 5973 / 100, 5973 % 100});
}

TEST_CASE("position: changes of length must be in order", "[data]") {
  CHECK(ValidateLengthChanges({{0, 16}, {5, 32}}).ok());
  CHECK_FALSE(ValidateLengthChanges({}).ok());
  CHECK_FALSE(ValidateLengthChanges({{1, 16}}).ok());
  CHECK_FALSE(ValidateLengthChanges({{0, 16}, {0, 32}}).ok());
  CHECK_FALSE(ValidateLengthChanges({{0, 2}}).ok());
}

TEST_CASE("training source: two sources give equal batches in any order of asking", "[data]") {
  const testing::TempDir dir;
  const auto corpus = MakeCorpus(dir, 20, 9);
  const auto first = Source(corpus, Options()), second = Source(corpus, Options());
  std::vector<Batch> batches;
  for (int64_t step = 0; step < 12; ++step) {
    for (int64_t i = 0; i < 2; ++i) batches.push_back(*first->Make({step, i}));
  }
  for (int64_t n = 23; n >= 0; --n) {
    CHECK(*second->Make({n / 2, n % 2}) == batches[static_cast<size_t>(n)]);
    CHECK(batches[static_cast<size_t>(n)].sample_first == n * 3);
  }
  MicroBatchOptions other = Options();
  other.seed = 43;
  CHECK_FALSE(*Source(corpus, other)->Make({0, 0}) == batches[0]);
}

TEST_CASE("training source: every chunk once a pass, with other masks in another pass", "[data]") {
  const testing::TempDir dir;
  const auto corpus = MakeCorpus(dir, 20, 9);
  const ChunkTable table(corpus, 16, ShortDocuments::kKeep);
  REQUIRE(table.size() == 60);  // chunks of 4, 4 and 1 sentences
  const auto source = Source(corpus, Options());
  std::map<int64_t, std::vector<std::vector<int64_t>>> labels_of_chunk;
  for (int64_t pass = 0; pass < 3; ++pass) {
    std::set<int64_t> names;
    for (int64_t micro_batch = 0; micro_batch < 20; ++micro_batch) {
      const int64_t n = pass * 20 + micro_batch;
      const Batch batch = *source->Make({n / 2, n % 2});
      const auto chunk_names = ChunkNames(batch);
      names.insert(chunk_names.begin(), chunk_names.end());
      for (int64_t r = 0; r < batch.rows; ++r) {
        std::vector<int64_t> labels;
        for (int64_t t = 0; t < batch.length; ++t) {
          const int64_t label = batch.labels[static_cast<size_t>(r * batch.length + t)];
          if (label != kIgnoredLabel) labels.push_back(label);
        }
        std::sort(labels.begin(), labels.end());
        CHECK(labels.size() >= 1);
        labels_of_chunk[chunk_names[static_cast<size_t>(r)]].push_back(labels);
      }
    }
    CHECK(names.size() == 60);
  }
  int changed = 0;
  for (const auto& [name, labels] : labels_of_chunk) {
    REQUIRE(labels.size() == 3);
    changed += labels[0] != labels[1] || labels[1] != labels[2];
  }
  CHECK(changed > 45);
}

TEST_CASE("training source: a batch is well formed", "[data]") {
  const testing::TempDir dir;
  const auto source = Source(MakeCorpus(dir, 20, 9), Options());
  int64_t swapped = 0, kept = 0, unknown = 0, masked = 0, replaced = 0, predicted = 0;
  for (int64_t step = 0; step < 100; ++step) {
    const Batch batch = *source->Make({step, 1});
    REQUIRE(batch.rows == 3);
    REQUIRE(batch.length <= 16);
    int64_t tokens = 0;
    for (int64_t r = 0; r < batch.rows; ++r) {
      const int64_t order = batch.sentence_order_labels[static_cast<size_t>(r)];
      (order == 1 ? swapped : order == 0 ? kept : unknown) += 1;
    }
    for (size_t at = 0; at < batch.input_ids.size(); ++at) {
      const bool pad = batch.attention_mask[at] == 0;
      tokens += pad ? 0 : 1;
      if (pad) {
        CHECK(batch.input_ids[at] == kSpecial.pad);
        CHECK(batch.token_type_ids[at] == 0);
        CHECK(batch.labels[at] == kIgnoredLabel);
      }
      if (batch.labels[at] == kIgnoredLabel) continue;
      CHECK(batch.labels[at] > kSpecial.mask);
      ++predicted;
      masked += batch.input_ids[at] == kSpecial.mask;
      replaced += batch.input_ids[at] != kSpecial.mask && batch.input_ids[at] != batch.labels[at];
    }
    CHECK(tokens == batch.tokens);
  }
  CHECK(swapped > 60);
  CHECK(kept > 60);
  CHECK(unknown > 60);  // a third of the chunks is one sentence
  CHECK(masked > predicted * 7 / 10);
  CHECK(masked < predicted * 9 / 10);
  CHECK(replaced > predicted / 25);
  CHECK(replaced < predicted / 5);
}

TEST_CASE("training source: length changes, objective and short documents are obeyed", "[data]") {
  const testing::TempDir dir;
  const auto corpus = MakeCorpus(dir, 20, 9);
  MicroBatchOptions options = Options();
  options.lengths = {{0, 8}, {4, 16}};
  options.short_documents = ShortDocuments::kDiscard;
  const auto source = Source(corpus, options);
  CHECK(source->Make({3, 1})->length == 8);
  CHECK(source->Make({4, 0})->length == 16);
  std::set<int64_t> names;
  for (int64_t n = 0; n < 14; ++n) {  // 40 chunks of two sentences or more at length 16
    const Batch batch = *source->Make({4 + n / 2, n % 2});
    for (const int64_t label : batch.sentence_order_labels) CHECK(label != kIgnoredLabel);
    const auto chunk_names = ChunkNames(batch);
    names.insert(chunk_names.begin(), chunk_names.end());
  }
  CHECK(names.size() == 40);
  options.objective = Objective::kMlm;
  const Batch batch = *Source(corpus, options)->Make({0, 0});
  for (const int64_t label : batch.sentence_order_labels) CHECK(label == kIgnoredLabel);
  CHECK(std::count(batch.token_type_ids.begin(), batch.token_type_ids.end(), 1) == 0);
}

TEST_CASE("training source: wrong options and addresses are refused", "[data]") {
  const testing::TempDir dir;
  const auto corpus = MakeCorpus(dir, 2, 1);
  const auto code = [&](const MicroBatchOptions& options) {
    return MakeTrainingSource(corpus, options).status().code();
  };
  MicroBatchOptions wrong = Options();
  wrong.pieces.pop_back();
  CHECK(code(wrong) == absl::StatusCode::kInvalidArgument);
  wrong = Options();
  wrong.micro_batches = 0;
  CHECK(code(wrong) == absl::StatusCode::kInvalidArgument);
  wrong = Options();
  wrong.tokenizer_hash = 8;
  CHECK(code(wrong) == absl::StatusCode::kInvalidArgument);
  wrong = Options();
  wrong.special.mask = -1;
  CHECK(code(wrong) == absl::StatusCode::kInvalidArgument);
  wrong = Options();
  wrong.short_documents = ShortDocuments::kDiscard;  // the corpus has no other chunks
  CHECK(code(wrong) == absl::StatusCode::kInvalidArgument);
  const auto source = Source(corpus, Options());
  CHECK(source->Make({0, 2}).status().code() == absl::StatusCode::kOutOfRange);
  CHECK(source->Make({-1, 0}).status().code() == absl::StatusCode::kOutOfRange);
}

TEST_CASE("corpus: token files of different tokenizers are refused", "[data]") {
  const testing::TempDir dir;
  std::vector<std::string> paths;
  for (const uint64_t hash : {1, 2}) {
    paths.push_back(dir / std::to_string(hash));
    auto writer = TokenFileWriter::Create(paths.back(), 10, hash);
    REQUIRE((*writer)->Finish().ok());
  }
  const absl::Status status = Corpus::Open(paths).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(status.message().find(paths[1]) != absl::string_view::npos);
  CHECK_FALSE(Corpus::Open({}).ok());
}

TEST_CASE("corpus: a chunk is found in the right one of several files", "[data]") {
  const testing::TempDir dir;
  std::vector<std::string> paths;
  for (int f = 0; f < 3; ++f) {
    paths.push_back(dir / std::to_string(f));
    auto writer = TokenFileWriter::Create(paths.back(), 100, 1);
    for (int32_t d = 0; d < f; ++d) {  // the first file is empty
      const std::vector<int32_t> ids = {f * 10 + d, f * 10 + d};
      REQUIRE((*writer)->AddDocument(ids, std::vector<uint32_t>{1, 1}).ok());
    }
    REQUIRE((*writer)->Finish().ok());
  }
  const ChunkTable table(*Corpus::Open(paths), 16, ShortDocuments::kKeep);
  REQUIRE(table.size() == 3);
  std::vector<int32_t> seen, ids;
  std::vector<uint32_t> lengths;
  for (uint64_t c = 0; c < 3; ++c) {
    table.Read(c, &ids, &lengths);
    CHECK(lengths == std::vector<uint32_t>{1, 1});
    seen.push_back(ids.front());
  }
  CHECK(seen == std::vector<int32_t>{10, 20, 21});
}

TEST_CASE("evaluation source: every chunk once, masks do not depend on the batch size", "[data]") {
  const testing::TempDir dir;
  const auto corpus = MakeCorpus(dir, 10, 9);
  MicroBatchOptions options = Options();
  std::vector<std::vector<int64_t>> labels;
  for (const uint64_t rows : {1, 4, 30}) {
    options.micro_batch = rows;
    options.pad_to_multiple = 16;
    auto source = EvaluationSource::Create(corpus, options);
    REQUIRE(source.ok());
    CHECK((*source)->samples() == 30);
    labels.emplace_back();
    std::set<int64_t> names;
    for (int64_t b = 0; b < (*source)->batches(); ++b) {
      const Batch batch = *(*source)->Make({0, b});
      labels.back().insert(labels.back().end(), batch.labels.begin(), batch.labels.end());
      const auto chunk_names = ChunkNames(batch);
      names.insert(chunk_names.begin(), chunk_names.end());
    }
    CHECK(names.size() == 30);
    CHECK((*source)->Make({0, (*source)->batches()}).status().code() ==
          absl::StatusCode::kOutOfRange);
  }
  CHECK(labels[0] == labels[1]);
  CHECK(labels[0] == labels[2]);
}

}  // namespace
}  // namespace starling::data
