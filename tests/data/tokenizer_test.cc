// The tokenizer against the reference's encodings, and what it says about files it cannot carry
// out.
#include "starling/data/tokenizer.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "support/parity.h"

namespace starling::data {
namespace {

using Json = nlohmann::json;

Json SmallFile() {
  return Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [
      {"id": 0, "content": "<unk>", "single_word": false, "lstrip": false, "rstrip": false,
       "normalized": false, "special": true},
      {"id": 9, "content": "[MASK]", "single_word": false, "lstrip": true, "rstrip": false,
       "normalized": false, "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Nmt"}, {"type": "NFKC"},
      {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always",
                      "split": true},
    "post_processor": null,
    "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
    "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false, "vocab": [
      ["<unk>", 0.0], ["▁", -2.0], ["а", -3.0], ["б", -3.0], ["▁аб", -4.5], ["аб", -5.5],
      ["й", -4.0], [".", -3.5], ["ф", -6.0]]}
  })");
}

Tokenizer Make(const Json& file) {
  auto tokenizer = Tokenizer::Parse(file.dump(), "test.json");
  INFO(tokenizer.status().message());
  REQUIRE(tokenizer.ok());
  return *std::move(tokenizer);
}

std::string ErrorOf(const Json& file) {
  const absl::Status status = Tokenizer::Parse(file.dump(), "test.json").status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<TextRange> Ranges(const Json& offsets) {
  std::vector<TextRange> ranges;
  for (const Json& pair : offsets) {
    ranges.push_back({pair[0].get<uint32_t>(), pair[1].get<uint32_t>()});
  }
  return ranges;
}

std::vector<Json> ReadJsonLines(const std::string& path) {
  std::vector<Json> rows;
  const std::string text = testing::ReadWhole(path);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) rows.push_back(Json::parse(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return rows;
}

}  // namespace

TEST_CASE("tokenizer: every row of the oracles is encoded as the reference does", "[data]") {
  const std::string name = GENERATE("ru8k", "ru4k-lower");
  const std::string folder = testing::SharedDir() + "/data/tokenizer/" + name;
  if (!std::filesystem::exists(folder)) SKIP("no oracle at " + folder);
  auto tokenizer = Tokenizer::Load(folder + "/tokenizer.json");
  REQUIRE(tokenizer.ok());
  Tokenizer::Scratch scratch;
  size_t rows = 0;
  for (const Json& row : ReadJsonLines(folder + "/oracle.jsonl")) {
    const auto text = row["text"].get<std::string>();
    INFO(name << " row " << rows << ": " << row.dump());
    const bool pair = row.contains("pair");
    const auto encoding = pair ? tokenizer->EncodePair(text, row["pair"].get<std::string>())
                               : tokenizer->Encode(text);
    REQUIRE(encoding.ok());
    CHECK(encoding->ids == row["ids"].get<std::vector<int32_t>>());
    CHECK(encoding->type_ids == row["type_ids"].get<std::vector<int32_t>>());
    CHECK(encoding->offsets == Ranges(row["offsets"]));
    std::vector<int32_t> fast, slow;
    REQUIRE(tokenizer->EncodeIds(text, &scratch, &fast).ok());
    REQUIRE(tokenizer->EncodeIds(text, &slow).ok());
    CHECK(fast == slow);
    CHECK(fast == tokenizer->Encode(text, false)->ids);
    ++rows;
  }
  CHECK(rows >= 300);
  CHECK(tokenizer->special_ids().pad == 0);
  CHECK(tokenizer->special_ids().unk == 1);
  CHECK(tokenizer->special_ids().cls == 2);
  CHECK(tokenizer->special_ids().sep == 3);
  CHECK(tokenizer->special_ids().mask == 4);
}

TEST_CASE("tokenizer: the sentences of the instance vectors get the reference's ids", "[data]") {
  auto tokenizer = Tokenizer::Load(testing::ParityPath("p18_instances/tokenizer.json"));
  REQUIRE(tokenizer.ok());
  const Json vectors =
      Json::parse(testing::ReadWhole(testing::ParityPath("p18_instances/instances.json")));
  Tokenizer::Scratch scratch;
  size_t sentences = 0;
  for (const Json& document : vectors["documents"]) {
    for (size_t i = 0; i < document["sentences"].size(); ++i, ++sentences) {
      const auto sentence = document["sentences"][i].get<std::string>();
      std::vector<int32_t> ids;
      REQUIRE(tokenizer->EncodeIds(sentence, &scratch, &ids).ok());
      CHECK(ids == document["ids"][i].get<std::vector<int32_t>>());
    }
  }
  CHECK(sentences > 0);
}

TEST_CASE("tokenizer: unknown characters are fused, [MASK] takes the space before it", "[data]") {
  const Tokenizer tokenizer = Make(SmallFile());
  const auto encoding = tokenizer.Encode("аб  xy [MASK]б.");
  REQUIRE(encoding.ok());
  CHECK(encoding->ids == std::vector<int32_t>{4, 1, 0, 9, 1, 3, 7});
  CHECK(encoding->offsets ==
        std::vector<TextRange>{{0, 2}, {3, 4}, {4, 6}, {6, 13}, {13, 14}, {13, 14}, {14, 15}});
  CHECK(tokenizer.vocab_size() == 10);
  CHECK(tokenizer.IdToPiece(9) == "[MASK]");
  CHECK(tokenizer.IdToPiece(10) == "");
  CHECK(tokenizer.PieceToId("▁аб") == 4);
  CHECK(tokenizer.PieceToId("нет") == -1);
  CHECK(tokenizer.special_ids().mask == 9);
  CHECK(tokenizer.special_ids().cls == -1);
  CHECK(tokenizer.Decode({4, 1, 3, 9, 7}) == "аб б.");
  CHECK(tokenizer.Decode({4, 1, 3, 9, 7}, false) == "аб б[MASK].");
}

TEST_CASE("tokenizer: composed and decomposed text give the same ids", "[data]") {
  const Tokenizer tokenizer = Make(SmallFile());
  const auto composed = tokenizer.Encode("й");
  const auto decomposed = tokenizer.Encode("и\u0306а");
  REQUIRE(composed.ok());
  REQUIRE(decomposed.ok());
  CHECK(composed->ids == std::vector<int32_t>{1, 6});
  CHECK(decomposed->ids == std::vector<int32_t>{1, 6, 2});
  CHECK(decomposed->offsets.back() == TextRange{2, 3});
}

TEST_CASE("tokenizer: a template of its own decides places and types", "[data]") {
  Json file = SmallFile();
  file["post_processor"] = Json::parse(R"({"type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "A", "type_id": 5}}],
    "pair": [{"Sequence": {"id": "B", "type_id": 2}}, {"SpecialToken": {"id": "m", "type_id": 7}},
             {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"m": {"id": "m", "ids": [9, 9], "tokens": ["[MASK]", "[MASK]"]}}})");
  const Tokenizer tokenizer = Make(file);
  CHECK(tokenizer.Encode("аб")->type_ids == std::vector<int32_t>{5});
  const auto pair = tokenizer.EncodePair("аб", ".");
  CHECK(pair->ids == std::vector<int32_t>{1, 7, 9, 9, 4});
  CHECK(pair->type_ids == std::vector<int32_t>{2, 2, 7, 7, 0});
  CHECK(pair->special_tokens_mask == std::vector<uint8_t>{0, 0, 1, 1, 0});
  CHECK(tokenizer.EncodePair("аб", ".", false)->ids == std::vector<int32_t>{1, 7, 4});
}

TEST_CASE("tokenizer: what it does not know is named", "[data]") {
  Json file = SmallFile();
  file["normalizer"]["normalizers"][1]["type"] = "Transliterate";
  CHECK(Contains(ErrorOf(file), "test.json: normalizer.normalizers[1] 'Transliterate'"));
  file = SmallFile();
  file["pre_tokenizer"]["type"] = "ByteLevel";
  CHECK(Contains(ErrorOf(file), "'ByteLevel' is not a supported pre-tokenizer"));
  file = SmallFile();
  file["post_processor"] = {{"type", "RobertaProcessing"}};
  CHECK(Contains(ErrorOf(file), "post_processor 'RobertaProcessing'"));
  file = SmallFile();
  file["decoder"]["type"] = "WordPiece";
  CHECK(Contains(ErrorOf(file), "decoder 'WordPiece'"));
  file = SmallFile();
  file["model"]["type"] = "BPE";
  CHECK(Contains(ErrorOf(file), "\"BPE\""));
  file = SmallFile();
  file["truncation"] = {{"max_length", 5}};
  CHECK(Contains(ErrorOf(file), "truncation is set"));
  file = SmallFile();
  file["normalizer"]["normalizers"][2]["pattern"]["Regex"] = "\\h+x";
  CHECK(Contains(ErrorOf(file), "\\h"));
  file = SmallFile();
  file["pre_tokenizer"]["prepend_scheme"] = "last";
  CHECK(Contains(ErrorOf(file), "prepend_scheme 'last'"));
}

TEST_CASE("tokenizer: contradictions in the file are named", "[data]") {
  Json file = SmallFile();
  file["model"]["unk_id"] = 99;
  CHECK(Contains(ErrorOf(file), "unk_id is 99"));
  file = SmallFile();
  file["added_tokens"][1]["id"] = 12;
  CHECK(Contains(ErrorOf(file), "'[MASK]' the id 12"));
  file = SmallFile();
  file["model"]["vocab"][3] = "б";
  CHECK(Contains(ErrorOf(file), "model.vocab[3]"));
  file = SmallFile();
  file.erase("model");
  CHECK(Contains(ErrorOf(file), "model is missing"));
  file = SmallFile();
  file["pre_tokenizer"]["add_prefix_space"] = false;
  CHECK(Contains(ErrorOf(file), "contradict"));
}

TEST_CASE("tokenizer: broken files and broken text are refused", "[data]") {
  CHECK(Tokenizer::Load("/no/such/tokenizer.json").status().code() == absl::StatusCode::kNotFound);
  const std::string whole = SmallFile().dump();
  const absl::Status cut = Tokenizer::Parse(whole.substr(0, 200), "cut.json").status();
  CHECK(cut.code() == absl::StatusCode::kDataLoss);
  CHECK(Contains(std::string(cut.message()), "cut.json"));
  const Tokenizer tokenizer = Make(SmallFile());
  const absl::Status bad = tokenizer.Encode("аб\xd0").status();
  CHECK(bad.code() == absl::StatusCode::kInvalidArgument);
  CHECK(Contains(std::string(bad.message()), "byte 4"));
  std::vector<int32_t> ids = {7};
  CHECK(!tokenizer.EncodeIds("\xff", &ids).ok());
  CHECK(ids == std::vector<int32_t>{7});
}

TEST_CASE("tokenizer: damaged files never bring it down", "[data]") {
  const std::string whole = SmallFile().dump();
  std::mt19937 random(20240607);
  size_t accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = whole;
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int k = 0; k < changes; ++k) {
      const size_t at = random() % damaged.size();
      switch (random() % 4) {
        case 0:
          damaged[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          damaged.erase(at, 1 + random() % 20);
          break;
        case 2:
          damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 30));
          break;
        default:
          damaged[at] = "0123456789{}[],:\"-"[random() % 18];
      }
      if (damaged.empty()) damaged = "{";
    }
    auto tokenizer = Tokenizer::Parse(damaged, "damaged.json");
    if (!tokenizer.ok()) continue;
    ++accepted;
    static_cast<void>(tokenizer->Encode("аб  xy [MASK]б. й и\u0306 ﬁ 12"));
  }
  CHECK(accepted > 0);
}

TEST_CASE("tokenizer: results do not depend on threads or on what came before", "[data]") {
  auto tokenizer = Tokenizer::Load(testing::ParityPath("p18_instances/tokenizer.json"));
  REQUIRE(tokenizer.ok());
  const std::vector<std::string> texts = {"Весной река вышла из берегов.",
                                          "  два  пробела ",
                                          "",
                                          "Жители\u200b деревни [MASK] спасали скот…",
                                          "о\u0301чень длинное-длинное слово",
                                          "а б в г д"};
  std::vector<std::vector<int32_t>> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer->Encode(text, false)->ids);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      Tokenizer::Scratch scratch;
      for (size_t i = 0; i < 300; ++i) {
        const size_t which = (i * 7 + t) % texts.size();
        std::vector<int32_t> ids;
        const bool ok = tokenizer->EncodeIds(texts[which], &scratch, &ids).ok();
        if (!ok || ids != expected[which]) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
}

TEST_CASE("tokenizer: memory of words is forgotten when the tokenizer changes", "[data]") {
  Json other = SmallFile();
  other["model"]["vocab"][4] = {"▁бб", -1.0};
  const Tokenizer first = Make(SmallFile());
  const Tokenizer second = Make(other);
  Tokenizer::Scratch scratch;
  std::vector<int32_t> a, b;
  REQUIRE(first.EncodeIds("аб", &scratch, &a).ok());
  REQUIRE(second.EncodeIds("аб", &scratch, &b).ok());
  CHECK(a == std::vector<int32_t>{4});
  CHECK(b == std::vector<int32_t>{1, 5});
  CHECK(first.hash() != second.hash());
}

}  // namespace starling::data
