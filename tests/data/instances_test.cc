// Chunks, sentence pairs and truncation against the vectors of the reference, with their draws.
#include "starling/data/instances.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "starling/data/chunks.h"
#include "support/parity.h"

namespace starling::data {
namespace {

using Json = nlohmann::json;

const SpecialIds kSpecial{.pad = 0, .unk = 1, .cls = 2, .sep = 3, .mask = 4};

Json Load() {
  return Json::parse(testing::ReadWhole(testing::ParityPath("p18_instances/instances.json")));
}

// Ids of sentences [first, first + count) of a document, and how many each has.
struct Sentences {
  std::vector<int32_t> ids;
  std::vector<uint32_t> lengths;

  explicit Sentences(const Json& document, size_t first = 0, size_t count = SIZE_MAX) {
    const Json& all = document["ids"];
    for (size_t s = first; s < all.size() && s - first < count; ++s) {
      ids.insert(ids.end(), all[s].begin(), all[s].end());
      lengths.push_back(static_cast<uint32_t>(all[s].size()));
    }
  }
};

// As the vectors, which pad to the maximal length.
template <typename T>
std::vector<int64_t> Padded(const std::vector<T>& values, size_t length, int64_t pad) {
  std::vector<int64_t> padded(values.begin(), values.end());
  padded.resize(length, pad);
  return padded;
}

TEST_CASE("instances: truncation equals the reference's table", "[data]") {
  const Json rows = Load()["truncation"]["rows"];
  REQUIRE(rows.size() > 100);
  for (const Json& row : rows) {
    CAPTURE(row.dump());
    const uint64_t budget = row[2].get<uint64_t>() - 3;
    CHECK(TruncateLongestFirst(row[0], row[1], budget) ==
          std::pair<uint64_t, uint64_t>(row[3], row[4]));
  }
}

TEST_CASE("instances: chunks and pairs equal the reference's", "[data]") {
  const Json file = Load();
  SpecialIds special;
  special.pad = file["special_ids"]["<pad>"];
  special.cls = file["special_ids"]["[CLS]"];
  special.sep = file["special_ids"]["[SEP]"];
  size_t instances = 0;
  for (const Json& run : file["runs"]) {
    const Json& document = file["documents"][run["document"].get<size_t>()];
    const uint64_t max_length = run["max_length"];
    CAPTURE(run["document"].dump(), max_length);
    if (run["skipped"] == true) continue;
    std::vector<std::vector<uint64_t>> chunks;
    for (const SentenceRange chunk : CutDocument(Sentences(document).lengths, max_length)) {
      chunks.emplace_back();
      for (uint64_t s = 0; s < chunk.count; ++s) chunks.back().push_back(chunk.first + s);
    }
    REQUIRE(chunks == run["chunks"].get<std::vector<std::vector<uint64_t>>>());
    for (const Json& expected : run["instances"]) {
      const auto numbers = expected["sentences"].get<std::vector<size_t>>();
      const Sentences chunk(document, numbers.front(), numbers.size());
      const PairDraws draws{expected["draw_a_end"], expected["draw_swap"].get<double>() < 0.5};
      const Instance made = MakeInstance(chunk.ids, chunk.lengths, draws, max_length, special);
      CHECK(Padded(made.ids, max_length, special.pad) ==
            expected["input_ids"].get<std::vector<int64_t>>());
      CHECK(Padded(made.type_ids, max_length, 0) ==
            expected["token_type_ids"].get<std::vector<int64_t>>());
      CHECK(Padded(made.special_mask, max_length, 1) ==
            expected["special_tokens_mask"].get<std::vector<int64_t>>());
      CHECK(made.sentence_order == expected["sentence_order_label"].get<int64_t>());
      ++instances;
    }
  }
  CHECK(instances > 10);
}

TEST_CASE("instances: a chunk of one sentence has no label and fills the length", "[data]") {
  const std::vector<int32_t> ids = {10, 11, 12, 13, 14, 15};
  const std::vector<uint32_t> lengths = {6};
  const Instance whole = MakeInstance(ids, lengths, {}, 8, kSpecial);
  CHECK(whole.ids == std::vector<int32_t>{2, 10, 11, 12, 13, 14, 15, 3});
  CHECK(whole.sentence_order == kIgnoredLabel);
  const Instance cut = MakeInstance(ids, lengths, {}, 5, kSpecial);
  CHECK(cut.ids == std::vector<int32_t>{2, 10, 11, 12, 3});
  CHECK(cut.special_mask == std::vector<uint8_t>{1, 0, 0, 0, 1});
}

}  // namespace
}  // namespace starling::data
