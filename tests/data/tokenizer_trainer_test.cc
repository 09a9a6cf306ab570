// Training a tokenizer on a small text and reading it back.
#include "starling/data/tokenizer_trainer.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "starling/base/fs.h"
#include "starling/data/tokenizer.h"
#include "support/temp_dir.h"

namespace starling::data {
namespace {

const std::vector<std::string>& Sentences() {
  static const auto* const sentences =
      new std::vector<std::string>{"Весной река вышла из берегов.",
                                   "Вода залила луга и огороды.",
                                   "Жители деревни спасали скот.",
                                   "К маю всё высохло.",
                                   "Трава поднялась по пояс.",
                                   "Дети снова бегали купаться.",
                                   "Старики вспоминали, что такое было лет сорок назад.",
                                   "Мужики чинили лодки у воды.",
                                   "Бабы белили холсты на лугу.",
                                   "По вечерам пели песни."};
  return *sentences;
}

// `repeats` times the sentences, each with a number, so that they differ.
SentenceSource Source(int repeats) {
  auto next = std::make_shared<int>(0);
  return [next, repeats]() -> absl::StatusOr<std::optional<std::string>> {
    const int count = static_cast<int>(Sentences().size());
    if (*next >= repeats * count) return std::optional<std::string>();
    const int at = (*next)++;
    return std::optional<std::string>(Sentences()[static_cast<size_t>(at % count)] + " " +
                                      std::to_string(at));
  };
}

TokenizerTrainOptions Options(const std::string& output) {
  TokenizerTrainOptions options;
  options.vocab_size = 120;
  options.output = output;
  options.character_coverage = 1.0;
  return options;
}

}  // namespace

TEST_CASE("tokenizer training: the file reads back, with the special tokens in place", "[data]") {
  testing::TempDir dir;
  uint64_t reported = 0;
  TokenizerTrainOptions options = Options(dir / "a.json");
  options.progress = [&](uint64_t sentences, bool done) {
    if (done) reported = sentences;
  };
  const absl::Status status = TrainTokenizer(options, Source(20));
  INFO(status.message());
  REQUIRE(status.ok());
  CHECK(reported == 200);
  auto tokenizer = Tokenizer::Load(options.output);
  INFO(tokenizer.status().message());
  REQUIRE(tokenizer.ok());
  CHECK(tokenizer->vocab_size() == 120);
  const SpecialIds& special = tokenizer->special_ids();
  CHECK(std::vector<int32_t>{special.pad, special.unk, special.cls, special.sep, special.mask} ==
        std::vector<int32_t>{0, 1, 2, 3, 4});
  const auto pair = tokenizer->EncodePair("Весной вода.", "река");
  REQUIRE(pair.ok());
  CHECK(pair->ids.front() == 2);
  CHECK(pair->ids.back() == 3);
  CHECK(std::count(pair->ids.begin(), pair->ids.end(), 1) == 0);
  CHECK(tokenizer->Decode(pair->ids) == "Весной вода. река");
  CHECK(tokenizer->Encode("вода [MASK]", false)->ids.back() == 4);
  CHECK(tokenizer->Encode("Щ", false)->ids.back() == 1);
}

TEST_CASE("tokenizer training: the same sentences give the same bytes", "[data]") {
  testing::TempDir dir;
  REQUIRE(TrainTokenizer(Options(dir / "a.json"), Source(20)).ok());
  REQUIRE(TrainTokenizer(Options(dir / "b.json"), Source(20)).ok());
  CHECK(RealFs().Read(dir / "a.json").value() == RealFs().Read(dir / "b.json").value());
}

TEST_CASE("tokenizer training: lower case is declared in the file", "[data]") {
  testing::TempDir dir;
  TokenizerTrainOptions options = Options(dir / "a.json");
  options.lowercase = true;
  options.vocab_size = 90;
  const absl::Status status = TrainTokenizer(options, Source(20));
  INFO(status.message());
  REQUIRE(status.ok());
  auto tokenizer = Tokenizer::Load(options.output);
  REQUIRE(tokenizer.ok());
  CHECK(tokenizer->Encode("ВЕСНОЙ РЕКА")->ids == tokenizer->Encode("весной река")->ids);
  CHECK(tokenizer->PieceToId("В") == -1);
}

TEST_CASE("tokenizer training: folders and files are read line by line", "[data]") {
  testing::TempDir dir;
  std::string lines;
  for (const std::string& sentence : Sentences()) {
    lines += nlohmann::json{{"text", sentence + "\nвторая строка"}}.dump() + "\n";
  }
  REQUIRE(WriteAtomically(RealFs(), dir / "t.jsonl", lines).ok());
  auto source = SentencesOf({dir.path()});
  REQUIRE(source.ok());
  std::vector<std::string> read;
  while (true) {
    auto line = (*source)();
    REQUIRE(line.ok());
    if (!line->has_value()) break;
    read.push_back(**line);
  }
  REQUIRE(read.size() == 2 * Sentences().size());
  CHECK(read[0] == Sentences()[0]);
  CHECK(read[1] == "вторая строка");
}

TEST_CASE("tokenizer training: impossible sizes and empty texts are explained", "[data]") {
  testing::TempDir dir;
  const auto error_of = [&](const TokenizerTrainOptions& options, const SentenceSource& source,
                            absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    const absl::Status status = TrainTokenizer(options, source);
    CHECK(status.code() == code);
    CHECK(!RealFs().Exists(options.output));
    return std::string(status.message());
  };
  TokenizerTrainOptions options = Options(dir / "a.json");
  options.vocab_size = 50'000;
  const std::string too_large = error_of(options, Source(2));
  INFO(too_large);
  CHECK(too_large.find("at most") != std::string::npos);
  options.vocab_size = 10;
  const std::string too_small = error_of(options, Source(20));
  INFO(too_small);
  CHECK(too_small.find("need") != std::string::npos);
  options.vocab_size = 120;
  bool announced = false;
  options.progress = [&](uint64_t, bool done) { announced = announced || done; };
  const std::string no_text = error_of(options, Source(0), absl::StatusCode::kDataLoss);
  CHECK(no_text.find("no text") != std::string::npos);
  CHECK(!announced);
  options.vocab_size = 3;
  CHECK(error_of(options, Source(2)).find("vocab_size is 3") != std::string::npos);
  options.vocab_size = 1'000'000;
  CHECK(error_of(options, Source(2)) ==
        "vocab_size is 1000000; at most 999999 pieces are possible");
  options.vocab_size = 120;
  options.max_sentences = 0;
  CHECK(error_of(options, Source(2)) == "max_sentences is 0; it must be above 100");
}

TEST_CASE("tokenizer training: an error of the source comes back as it is", "[data]") {
  testing::TempDir dir;
  int left = 5;
  const SentenceSource failing = [&]() -> absl::StatusOr<std::optional<std::string>> {
    if (left-- == 0) return absl::DataLossError("corpus.jsonl:6: not JSON");
    return std::optional<std::string>("строка");
  };
  const absl::Status status = TrainTokenizer(Options(dir / "a.json"), failing);
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(status.message() == "corpus.jsonl:6: not JSON");
  CHECK(!RealFs().Exists(dir / "a.json"));
}

}  // namespace starling::data
