// Preparing token files: the same bytes whatever the number of jobs is, bad input, the validation
// split, and equality with the reference's documents.
#include "starling/data/prepare.h"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "starling/data/micro_batches.h"
#include "starling/data/token_file.h"
#include "support/parity.h"
#include "support/temp_dir.h"

namespace starling::data {
namespace {

using Json = nlohmann::json;

Tokenizer LoadTokenizer(const std::string& path) {
  auto tokenizer = Tokenizer::Load(path);
  REQUIRE(tokenizer.ok());
  return *std::move(tokenizer);
}

Tokenizer SmallTokenizer() {
  return LoadTokenizer(testing::ParityPath("p18_instances/tokenizer.json"));
}

// Sentences of every document of a token file.
std::vector<std::vector<std::vector<int32_t>>> ReadDocuments(const std::string& path) {
  auto file = TokenFile::Open(path);
  REQUIRE(file.ok());
  std::vector<std::vector<std::vector<int32_t>>> documents;
  const auto sentences = (*file)->sentence_offsets();
  const auto offsets = (*file)->document_offsets();
  for (size_t d = 0; d + 1 < offsets.size(); ++d) {
    documents.emplace_back();
    for (uint64_t s = offsets[d]; s < offsets[d + 1]; ++s) {
      documents.back().emplace_back();
      (*file)->AppendIds(sentences[s], sentences[s + 1], &documents.back().back());
    }
  }
  return documents;
}

// `count` documents of a few lines as JSON Lines; some are blank.
void WriteDocuments(const std::string& path, int count) {
  std::ofstream out(path, std::ios::binary);
  for (int d = 0; d < count; ++d) {
    std::string text;
    for (int line = 0; line < d % 7; ++line) {
      text +=
          "Весной река вышла из берегов " + std::to_string(d * 31 + line) + ". Вода залила луга";
      text += line % 2 == 0 ? "\n" : "! А потом?\r\n";
    }
    out << Json{{"id", "doc" + std::to_string(d)}, {"text", text}}.dump() << '\n';
  }
}

TEST_CASE("prepare: whole documents give the sentences and ids of the reference", "[data]") {
  const Json file =
      Json::parse(testing::ReadWhole(testing::ParityPath("p18_instances/instances.json")));
  const Tokenizer tokenizer = SmallTokenizer();
  Tokenizer::Scratch scratch;
  for (const Json& document : file["documents"]) {
    const std::string text = document["text"];
    CAPTURE(text);
    std::vector<int32_t> ids, expected;
    std::vector<uint32_t> lengths, expected_lengths;
    REQUIRE(EncodeDocument(tokenizer, text, false, &scratch, &ids, &lengths).ok());
    for (const Json& sentence : document["ids"]) {
      if (sentence.empty()) continue;
      expected.insert(expected.end(), sentence.begin(), sentence.end());
      expected_lengths.push_back(static_cast<uint32_t>(sentence.size()));
    }
    CHECK(ids == expected);
    CHECK(lengths == expected_lengths);
  }
}

TEST_CASE("prepare: line breaks end sentences unless split_lines is off", "[data]") {
  const Tokenizer tokenizer = SmallTokenizer();
  Tokenizer::Scratch scratch;
  std::vector<int32_t> ids;
  std::vector<uint32_t> lengths;
  const std::string text = "Вода залила луга\r\n\r\nДети бегали. Все рады\n";
  REQUIRE(EncodeDocument(tokenizer, text, true, &scratch, &ids, &lengths).ok());
  CHECK(lengths.size() == 3);
  REQUIRE(EncodeDocument(tokenizer, text, false, &scratch, &ids, &lengths).ok());
  CHECK(lengths.size() == 2);
}

TEST_CASE("prepare: any number of jobs gives the same bytes", "[data]") {
  const testing::TempDir dir;
  WriteDocuments(dir / "in.jsonl", 6000);
  const Tokenizer tokenizer = SmallTokenizer();
  std::string expected, expected_validation;
  for (const int jobs : {1, 2, 5}) {
    CAPTURE(jobs);
    PrepareOptions options;
    options.inputs = {dir / "in.jsonl"};
    options.output = dir / ("out/" + std::to_string(jobs) + ".tokens");
    options.jobs = jobs;
    options.validation_fraction = 0.1;
    uint64_t last_bytes = 0;
    const auto report = Prepare(tokenizer, options, [&](const PrepareProgress& progress) {
      CHECK(progress.bytes_read >= last_bytes);
      CHECK(progress.bytes_read <= progress.bytes_total);
      last_bytes = progress.bytes_read;
      return true;
    });
    REQUIRE(report.ok());
    CHECK(last_bytes > 0);
    CHECK(report->train.documents + report->validation.documents == 6000 - (6000 + 6) / 7);
    CHECK(report->validation.documents > 350);
    CHECK(report->validation.documents < 700);
    CHECK(report->validation_path == ValidationPath(options.output));
    const std::string bytes = testing::ReadWhole(options.output);
    const std::string validation = testing::ReadWhole(report->validation_path);
    if (jobs == 1) {
      expected = bytes;
      expected_validation = validation;
    }
    CHECK(bytes == expected);
    CHECK(validation == expected_validation);
    CHECK(ReadDocuments(options.output).size() == report->train.documents);
  }
}

TEST_CASE("prepare: bad input stops and leaves no file, or is skipped and reported", "[data]") {
  const testing::TempDir dir;
  WriteDocuments(dir / "in.jsonl", 20);
  std::ofstream(dir / "in.jsonl", std::ios::app) << "{\"text\":\"\xFF\"}\nне JSON\n";
  PrepareOptions options;
  options.inputs = {dir / "in.jsonl"};
  options.output = dir / "out/x.tokens";
  const Tokenizer tokenizer = SmallTokenizer();
  const absl::Status status = Prepare(tokenizer, options).status();
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(status.message().find("in.jsonl:21") != absl::string_view::npos);
  CHECK(std::filesystem::is_empty(dir / "out"));
  options.skip_bad = true;
  const auto report = Prepare(tokenizer, options);
  REQUIRE(report.ok());
  CHECK(report->bad == 2);
  CHECK(report->first_bad.find("in.jsonl:21") != std::string::npos);
  CHECK(report->train.documents == 17);
}

TEST_CASE("prepare: no text, wrong options and a stop leave no file", "[data]") {
  const testing::TempDir dir;
  std::ofstream(dir / "empty.txt") << "\n \n";
  WriteDocuments(dir / "in.jsonl", 20);
  const Tokenizer tokenizer = SmallTokenizer();
  PrepareOptions options;
  options.inputs = {dir / "empty.txt"};
  options.output = dir / "out/x.tokens";
  CHECK(Prepare(tokenizer, options).status().code() == absl::StatusCode::kDataLoss);
  options.inputs = {dir / "in.jsonl"};
  const auto stop = [](const PrepareProgress&) { return false; };
  CHECK(Prepare(tokenizer, options, stop).status().code() == absl::StatusCode::kCancelled);
  CHECK(std::filesystem::is_empty(dir / "out"));
  options.validation_fraction = 1;
  CHECK(Prepare(tokenizer, options).status().code() == absl::StatusCode::kInvalidArgument);
  options.validation_fraction = 0;
  options.inputs = {dir / "nothing"};
  CHECK(Prepare(tokenizer, options).status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("prepare: a huge line and many small files", "[data]") {
  const testing::TempDir dir;
  std::filesystem::create_directory(dir / "in");
  std::ofstream huge(dir / "in/a.txt", std::ios::binary);
  for (int i = 0; i < 40000; ++i) huge << "Дети снова бегали купаться. ";
  huge.close();
  for (int i = 0; i < 300; ++i) {
    std::ofstream(dir / ("in/b" + std::to_string(1000 + i) + ".txt")) << "Трава " << i << ".";
  }
  PrepareOptions options;
  options.inputs = {dir / "in"};
  options.output = dir / "x.tokens";
  options.jobs = 2;
  const auto report = Prepare(SmallTokenizer(), options);
  REQUIRE(report.ok());
  CHECK(report->train.documents == 301);
  CHECK(report->train.sentences == 40300);
}

TEST_CASE("prepare: the validation path and choice depend on the document alone", "[data]") {
  CHECK(ValidationPath("a/x.tokens") == "a/x.validation.tokens");
  CHECK(ValidationPath("x") == "x.validation.tokens");
  CHECK_FALSE(IsForValidation("id", "text", 0));
  CHECK(IsForValidation("id", "text", 0.5) == IsForValidation("id", "other", 0.5));
  CHECK(IsForValidation("", "text", 0.5) == IsForValidation("text", "", 0.5));
}

TEST_CASE("prepare: a real corpus through two tokenizer jobs equals one", "[data]") {
  const std::string corpus = testing::SharedDir() + "/data/corpus/rusdracor.validation.jsonl.gz";
  const std::string model = testing::SharedDir() + "/data/tokenizer/ru8k/tokenizer.json";
  if (!std::filesystem::exists(corpus) || !std::filesystem::exists(model)) {
    SKIP("no shared corpus in " << testing::SharedDir());
  }
  const testing::TempDir dir;
  const Tokenizer tokenizer = LoadTokenizer(model);
  PrepareOptions options;
  options.inputs = {corpus};
  for (const int jobs : {1, 2}) {
    options.jobs = jobs;
    options.output = dir / std::to_string(jobs);
    const auto report = Prepare(tokenizer, options);
    REQUIRE(report.ok());
    CHECK(report->train.documents > 0);
    CHECK(report->train.sentences > report->train.documents * 100);
    if (std::filesystem::file_size(corpus) == 457406) {  // counted by razdel and `tokenizers`
      CHECK(report->train.documents == 10);
      CHECK(report->train.sentences == 28725);
      CHECK(report->train.tokens == 297884);
    }
  }
  CHECK(testing::ReadWhole(dir / "1") == testing::ReadWhole(dir / "2"));
  auto corpus_file = Corpus::Open(std::vector<std::string>{dir / "1"});
  REQUIRE(corpus_file.ok());
  MicroBatchOptions batches;
  batches.micro_batch = 4;
  batches.micro_batches = 2;
  batches.lengths = {{0, 128}};
  SetTokenizer(tokenizer, &batches);
  auto source = MakeTrainingSource(*corpus_file, batches);
  REQUIRE(source.ok());
  for (int64_t step = 0; step < 100; ++step) {
    const auto batch = (*source)->Make({step, step % 2});
    REQUIRE(batch.ok());
    CHECK(batch->length == 128);
    CHECK(batch->predicted >= 4);
  }
}

}  // namespace
}  // namespace starling::data
