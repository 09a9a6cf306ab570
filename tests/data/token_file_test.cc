// Token files: what is written is read back, nothing appears before Finish, and no damaged byte
// passes.
#include "starling/data/token_file.h"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "starling/base/rng.h"
#include "support/parity.h"
#include "support/temp_dir.h"

namespace starling::data {
namespace {

// A file of two documents, three and one sentences.
void WriteSample(const std::string& path, uint64_t vocab_size) {
  auto writer = TokenFileWriter::Create(path, vocab_size, 77);
  REQUIRE(writer.ok());
  const std::vector<int32_t> first = {5, 6, 7, 8, 9, 10}, second = {11};
  REQUIRE((*writer)->AddDocument(first, std::vector<uint32_t>{2, 0, 3, 1}).ok());
  REQUIRE((*writer)->AddDocument({}, std::vector<uint32_t>{0}).ok());
  REQUIRE((*writer)->AddDocument(second, std::vector<uint32_t>{1}).ok());
  CHECK_FALSE(std::filesystem::exists(path));
  REQUIRE((*writer)->Finish().ok());
}

void Overwrite(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

TEST_CASE("token file: written and read back, for narrow and wide ids", "[data]") {
  for (const uint64_t vocab_size : {uint64_t{12}, uint64_t{65536}, uint64_t{65537}}) {
    CAPTURE(vocab_size);
    const testing::TempDir dir;
    WriteSample(dir / "x.tokens", vocab_size);
    auto file = TokenFile::Open(dir / "x.tokens");
    REQUIRE(file.ok());
    CHECK((*file)->info().vocab_size == vocab_size);
    CHECK((*file)->info().tokenizer_hash == 77);
    CHECK((*file)->info().tokens == 7);
    const auto sentences = (*file)->sentence_offsets();
    CHECK(std::vector(sentences.begin(), sentences.end()) == std::vector<uint64_t>{0, 2, 5, 6, 7});
    const auto documents = (*file)->document_offsets();
    CHECK(std::vector(documents.begin(), documents.end()) == std::vector<uint64_t>{0, 3, 4});
    std::vector<int32_t> ids = {1};
    (*file)->AppendIds(1, 7, &ids);
    CHECK(ids == std::vector<int32_t>{1, 6, 7, 8, 9, 10, 11});
    const auto entries = std::filesystem::directory_iterator(dir.path());
    CHECK(std::distance(begin(entries), end(entries)) == 1);
  }
}

TEST_CASE("token file: an empty one is valid", "[data]") {
  const testing::TempDir dir;
  auto writer = TokenFileWriter::Create(dir / "x.tokens", 10, 1);
  REQUIRE(writer.ok());
  REQUIRE((*writer)->Finish().ok());
  auto file = TokenFile::Open(dir / "x.tokens");
  REQUIRE(file.ok());
  CHECK((*file)->info().documents == 0);
}

TEST_CASE("token file: an abandoned writer leaves nothing behind", "[data]") {
  const testing::TempDir dir;
  {
    auto writer = TokenFileWriter::Create(dir / "x.tokens", 10, 1);
    REQUIRE(writer.ok());
    REQUIRE((*writer)->AddDocument(std::vector<int32_t>{1}, std::vector<uint32_t>{1}).ok());
  }
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("token file: the writer refuses ids outside the vocabulary and wrong lengths", "[data]") {
  const testing::TempDir dir;
  auto writer = TokenFileWriter::Create(dir / "x.tokens", 10, 1);
  REQUIRE(writer.ok());
  const auto add = [&](std::vector<int32_t> ids, std::vector<uint32_t> lengths) {
    return (*writer)->AddDocument(ids, lengths).code();
  };
  CHECK(add({10}, {1}) == absl::StatusCode::kInvalidArgument);
  CHECK(add({-1}, {1}) == absl::StatusCode::kInvalidArgument);
  CHECK(add({1, 2}, {1}) == absl::StatusCode::kInvalidArgument);
  CHECK(TokenFileWriter::Create(dir / "y", 0, 1).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK_FALSE(TokenFileWriter::Create(dir / "no/such/folder", 10, 1).ok());
}

TEST_CASE("token file: every flipped bit and every cut is data loss that names the file",
          "[data]") {
  for (const uint64_t vocab_size : {uint64_t{12}, uint64_t{70000}}) {
    const testing::TempDir dir;
    const std::string path = dir / "x.tokens";
    WriteSample(path, vocab_size);
    const std::string good = testing::ReadWhole(path);
    for (size_t at = 0; at < good.size(); ++at) {
      CAPTURE(at);
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
      Overwrite(path, bad);
      const absl::Status status = TokenFile::Open(path).status();
      REQUIRE(status.code() == absl::StatusCode::kDataLoss);
      REQUIRE(status.message().find(path) != absl::string_view::npos);
      Overwrite(path, good.substr(0, at));
      const absl::Status cut = TokenFile::Open(path).status();
      REQUIRE(cut.code() == absl::StatusCode::kDataLoss);
      const char* reason = at < 128 ? "less than its header" : "(cut off)";
      REQUIRE(cut.message().find(reason) != absl::string_view::npos);
    }
    Overwrite(path, good + '\0');
    CHECK(TokenFile::Open(path).status().code() == absl::StatusCode::kDataLoss);
  }
}

TEST_CASE("token file: a missing one is not found", "[data]") {
  CHECK(TokenFile::Open("/nonexistent/x.tokens").status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("token file: the data hash tells content, order and tokenizer apart", "[data]") {
  const testing::TempDir dir;
  WriteSample(dir / "a", 12);
  WriteSample(dir / "b", 12);
  WriteSample(dir / "c", 13);
  const auto open = [&](const char* name) { return *TokenFile::Open(dir / name); };
  const std::vector<std::shared_ptr<const TokenFile>> a = {open("a")}, b = {open("b")},
                                                      c = {open("c")}, ac = {a[0], c[0]},
                                                      ca = {c[0], a[0]};
  CHECK(DataHash(a) == DataHash(b));
  CHECK(DataHash(a) != DataHash(c));
  CHECK(DataHash(ac) != DataHash(ca));
}

}  // namespace
}  // namespace starling::data
