// Whole-word masking against the vectors of the reference, with their draws; the corrected word
// borders on Russian punctuation.
#include "starling/data/masking.h"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "starling/data/batch.h"
#include "support/parity.h"

namespace starling::data {
namespace {

using Json = nlohmann::json;

const SpecialIds kSpecial{.pad = 0, .unk = 1, .cls = 2, .sep = 3, .mask = 4};
using Groups = std::vector<std::vector<uint32_t>>;

struct Vectors {
  Json file = Json::parse(testing::ReadWhole(testing::ParityPath("p17_masking.json")));
  std::vector<std::string> pieces = file["vocabulary"];
  std::map<std::string, int32_t> ids;
  SpecialIds special;
  std::vector<PieceKind> kinds = StartPieceTable(pieces, WordGroupRule::kReference);

  Vectors() {
    for (size_t i = 0; i < pieces.size(); ++i) ids[pieces[i]] = static_cast<int32_t>(i);
    special.pad = ids.at(file["special"]["pad"]);
    special.cls = ids.at(file["special"]["cls"]);
    special.sep = ids.at(file["special"]["sep"]);
    special.mask = file["mask_token_id"];
  }
  std::vector<int32_t> Sequence(size_t index) const {
    std::vector<int32_t> row;
    for (const std::string token : file["sequences"][index]["tokens"]) row.push_back(ids.at(token));
    return row;
  }
};

TEST_CASE("masking: start pieces, group borders and K equal the reference's", "[data]") {
  const Vectors v;
  for (size_t i = 0; i < v.pieces.size(); ++i) {
    CAPTURE(v.pieces[i]);
    CHECK((v.kinds[i] != PieceKind::kContinues) ==
          v.file["is_start_piece"][v.pieces[i]].get<bool>());
  }
  for (size_t s = 0; s < v.file["sequences"].size(); ++s) {
    CAPTURE(s);
    CHECK(WordGroups(v.Sequence(s), v.kinds, v.special) ==
          v.file["sequences"][s]["groups"].get<Groups>());
  }
  const double probability = v.file["mlm_probability"];
  const auto expected = v.file["K_for_n"].get<std::vector<uint64_t>>();
  for (uint64_t n = 0; n < expected.size(); ++n) {
    CAPTURE(n);
    CHECK(TokensToPredict(n, probability) == expected[n]);
  }
}

// The vectors list the draws in the order of use: for k = groups − 1 down to 1.
std::vector<uint32_t> Choose(const Groups& groups, uint64_t k_tokens,
                             const std::vector<uint32_t>& draws) {
  return ChooseTokens(groups, k_tokens,
                      [&](uint32_t k) { return draws.at(groups.size() - 1 - k); });
}

TEST_CASE("masking: given shuffle draws, the chosen tokens equal the reference's", "[data]") {
  const Vectors v;
  for (const Json& set : v.file["chosen_sets"]) {
    CAPTURE(set.dump());
    const Groups groups = v.file["sequences"][set["sequence"].get<size_t>()]["groups"];
    CHECK(Choose(groups, set["K"], set["shuffle_draws"]) ==
          set["chosen"].get<std::vector<uint32_t>>());
  }
}

TEST_CASE("masking: given all draws, batches equal the reference's", "[data]") {
  const Vectors v;
  const double probability = v.file["mlm_probability"];
  for (const Json& batch : v.file["batches"]) {
    for (size_t r = 0; r < batch["input_ids"].size(); ++r) {
      CAPTURE(batch["sequences"].dump(), r);
      std::vector<int32_t> ids = batch["input_ids"][r];
      const auto special_mask = batch["special_tokens_mask"][r].get<std::vector<uint8_t>>();
      const Groups groups = WordGroups(ids, v.kinds, v.special);
      uint64_t n = 0;
      for (const auto& group : groups) n += group.size();
      const auto chosen =
          Choose(groups, TokensToPredict(n, probability), batch["shuffle_draws"][r]);
      const std::vector<int64_t> labels = ApplyMask(
          chosen, special_mask,
          [&](uint32_t p) {
            return ReplacementDraws{batch["draw_replace_with_mask"][r][p] == 1,
                                    batch["draw_replace_with_random"][r][p] == 1,
                                    batch["draw_random_id"][r][p]};
          },
          v.special.mask, &ids);
      CHECK(ids == batch["out_input_ids"][r].get<std::vector<int32_t>>());
      CHECK(labels == batch["out_labels"][r].get<std::vector<int64_t>>());
    }
  }
}

TEST_CASE("masking: batches are padded to the longest row, rounded up", "[data]") {
  const Vectors v;
  const uint64_t multiple = v.file["pad_to_multiple_of"];
  for (const Json& batch : v.file["batches"]) {
    uint64_t longest = 0;
    std::vector<MaskedInstance> rows;
    for (const size_t s : batch["sequences"]) {
      MaskedInstance row;
      row.instance.ids = v.Sequence(s);
      row.instance.type_ids.assign(row.instance.ids.size(), 0);
      row.labels.assign(row.instance.ids.size(), kIgnoredLabel);
      longest = std::max<uint64_t>(longest, row.instance.ids.size());
      rows.push_back(row);
    }
    const Batch padded = AssembleBatch(rows, PaddedLength(longest, multiple, 4096), v.special.pad);
    std::vector<int64_t> ids, attention;
    for (const Json& row : batch["input_ids"]) ids.insert(ids.end(), row.begin(), row.end());
    for (const Json& row : batch["attention_mask"]) {
      attention.insert(attention.end(), row.begin(), row.end());
    }
    CHECK(padded.input_ids == ids);
    CHECK(padded.attention_mask == attention);
  }
}

TEST_CASE("masking: padding never exceeds the sequence length", "[data]") {
  CHECK(PaddedLength(5, 128, 64) == 64);
  CHECK(PaddedLength(129, 128, 512) == 256);
  CHECK(PaddedLength(128, 128, 512) == 128);
  CHECK(PaddedLength(70, 8, 64) == 70);
}

TEST_CASE("masking: corrected rule, Russian punctuation leaves the word alone", "[data]") {
  const std::vector<std::string> pieces = {"<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁«",
                                           "при",   "вет",   "»",     "—",     "▁",      "№",
                                           "д",     "’",     "Ар",    "…"};
  const auto kinds = StartPieceTable(pieces, WordGroupRule::kCorrected);
  const std::vector<int32_t> ids = {2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 3};
  CHECK(WordGroups(ids, kinds, kSpecial) ==
        Groups{{1}, {2, 3}, {4}, {5}, {6}, {7}, {8, 9, 10}, {11}});
  const auto reference = StartPieceTable(pieces, WordGroupRule::kReference);
  CHECK(WordGroups(ids, reference, kSpecial) == Groups{{1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 11}});
}

}  // namespace
}  // namespace starling::data
