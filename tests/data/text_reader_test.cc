// Reading documents: formats, compression, folders, and what happens to bad input.
#include "starling/data/text_reader.h"

#include <zlib.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "support/parity.h"
#include "support/temp_dir.h"

namespace starling::data {
namespace {

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void WriteGzip(const std::string& path, const std::string& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) ==
          static_cast<int>(bytes.size()));
  gzclose(file);
}

struct Result {
  std::vector<std::string> texts, ids;
  absl::Status status;
  uint64_t bad = 0, bytes_read = 0, bytes_total = 0;
  std::string first_bad;
};

Result ReadAll(std::vector<std::string> inputs, bool skip_bad = false) {
  Result result;
  auto reader = TextReader::Open({std::move(inputs), skip_bad});
  if (!reader.ok()) {
    result.status = reader.status();
    return result;
  }
  for (;;) {
    Document document;
    const absl::StatusOr<bool> more = (*reader)->Next(&document);
    result.status = more.status();
    if (!more.ok() || !*more) break;
    result.texts.push_back(document.text);
    result.ids.push_back(document.id);
  }
  result.bad = (*reader)->bad();
  result.first_bad = (*reader)->first_bad();
  result.bytes_read = (*reader)->bytes_read();
  result.bytes_total = (*reader)->bytes_total();
  return result;
}

bool Mentions(const absl::Status& status, const std::string& what) {
  return status.message().find(what) != absl::string_view::npos;
}

TEST_CASE("text reader: JSON Lines with and without ids, blank lines and blank texts", "[data]") {
  const testing::TempDir dir;
  Write(dir / "a.jsonl",
        "\xEF\xBB\xBF{\"id\":\"x\",\"text\":\"Раз.\\nДва.\"}\r\n\n"
        "{\"text\":\"  \"}\n{\"text\":\"Три\",\"id\":7,\"more\":[1]}");
  const Result result = ReadAll({dir / "a.jsonl"});
  REQUIRE(result.status.ok());
  CHECK(result.texts == std::vector<std::string>{"Раз.\nДва.", "Три"});
  CHECK(result.ids == std::vector<std::string>{"x", "7"});
  CHECK(result.bytes_read == result.bytes_total);
}

TEST_CASE("text reader: plain text is parted by blank lines", "[data]") {
  const testing::TempDir dir;
  Write(dir / "a.txt", "\n\nРаз.\r\nДва.\n \t\n\nТри");
  const Result result = ReadAll({dir / "a.txt"});
  REQUIRE(result.status.ok());
  CHECK(result.texts == std::vector<std::string>{"Раз.\nДва.", "Три"});
}

TEST_CASE("text reader: gzip, and folders in byte order of names", "[data]") {
  const testing::TempDir dir;
  std::filesystem::create_directory(dir / "c");
  WriteGzip(dir / "b.txt.gz", "два");
  WriteGzip(dir / "a.jsonl.gz", "{\"text\":\"раз\"}\n");
  Write(dir / "c/d.txt", "три");
  Write(dir / ".hidden", "нет");
  const Result result = ReadAll({dir.path(), dir / "b.txt.gz"});
  REQUIRE(result.status.ok());
  CHECK(result.texts == std::vector<std::string>{"раз", "два", "три", "два"});
  CHECK(result.bytes_read == result.bytes_total);
}

TEST_CASE("text reader: several gzip members in one file are read as one", "[data]") {
  const testing::TempDir dir;
  WriteGzip(dir / "1", "раз\n");
  WriteGzip(dir / "2", "два\n");
  Write(dir / "x.gz", testing::ReadWhole(dir / "1") + testing::ReadWhole(dir / "2"));
  CHECK(ReadAll({dir / "x.gz"}).texts == std::vector<std::string>{"раз\nдва"});
}

TEST_CASE("text reader: bad input stops with file and line, or is counted", "[data]") {
  struct Case {
    std::string name, content;
    uint64_t line;
    std::vector<std::string> kept;
    uint64_t bad;
  };
  const std::string good = "{\"text\":\"да\"}\n";
  for (const Case& c : std::vector<Case>{
           {"a.jsonl", good + "{\"text\":\n" + good, 2, {"да", "да"}, 1},
           {"b.jsonl", good + good + "{\"txt\":\"нет\"}\n[1]\n", 3, {"да", "да"}, 2},
           {"c.jsonl", "{\"text\":\"\xD0\"}\n" + good, 1, {"да"}, 1},
           {"d.jsonl", "{\"text\":5}\n" + good, 1, {"да"}, 1},
           {"e.jsonl", good + "{\"text\":\"\\ud800\"}\n", 2, {"да"}, 1},
           {"f.txt", "да\n\nплохо \xFF\xFE\nещё хуже \xC0\xAF\n\nда", 3, {"да", "да"}, 1},
           {"g.txt", "\xED\xA0\x80", 1, {}, 1}}) {
    CAPTURE(c.name);
    const testing::TempDir dir;
    Write(dir / c.name, c.content);
    const Result stopped = ReadAll({dir / c.name});
    CHECK(stopped.status.code() == absl::StatusCode::kDataLoss);
    CHECK(Mentions(stopped.status, dir / (c.name + ":" + std::to_string(c.line))));
    const Result skipped = ReadAll({dir / c.name}, true);
    REQUIRE(skipped.status.ok());
    CHECK(skipped.texts == c.kept);
    CHECK(skipped.bad == c.bad);
    CHECK(skipped.first_bad.starts_with(dir / (c.name + ":" + std::to_string(c.line))));
  }
}

TEST_CASE("text reader: a cut or damaged gzip file is data loss even when bad input is skipped",
          "[data]") {
  const testing::TempDir dir;
  std::string text;
  for (int i = 0; i < 20000; ++i) text += "строка " + std::to_string(i * 7919) + "\n";
  WriteGzip(dir / "x.gz", text);
  const std::string whole = testing::ReadWhole(dir / "x.gz");
  std::string flipped = whole;
  flipped[whole.size() / 2] = static_cast<char>(flipped[whole.size() / 2] ^ 0x55);
  for (const std::string& bad : {whole.substr(0, whole.size() / 2),
                                 whole.substr(0, whole.size() - 4), flipped, std::string("text")}) {
    Write(dir / "y.gz", bad);
    const Result result = ReadAll({dir / "y.gz"}, true);
    CHECK(result.status.code() == absl::StatusCode::kDataLoss);
    CHECK(Mentions(result.status, dir / "y.gz"));
  }
}

TEST_CASE("text reader: one huge line is one document, longer ones are refused", "[data]") {
  const testing::TempDir dir;
  const std::string huge(5 << 20, 'a');
  Write(dir / "a.txt", huge);
  CHECK(ReadAll({dir / "a.txt"}).texts == std::vector<std::string>{huge});
  Write(dir / "b.txt", std::string(kMaxDocumentBytes + 1, 'a') + "\nб\n\nв");
  const Result result = ReadAll({dir / "b.txt"});
  CHECK(result.status.code() == absl::StatusCode::kDataLoss);
  CHECK(ReadAll({dir / "b.txt"}, true).texts == std::vector<std::string>{"в"});
}

TEST_CASE("text reader: long plain text without blank lines is cut at a line break", "[data]") {
  const testing::TempDir dir;
  const std::string line((1 << 20) - 1, 'a');
  std::ofstream out(dir / "a.txt", std::ios::binary);
  for (int i = 0; i < 70; ++i) out << line << '\n';
  out.close();
  const Result result = ReadAll({dir / "a.txt"});
  REQUIRE(result.status.ok());
  REQUIRE(result.texts.size() == 2);
  CHECK(result.texts[0].size() == kMaxDocumentBytes - 1);
  CHECK(result.texts[0].size() + result.texts[1].size() == 70 * (line.size() + 1) - 2);
}

TEST_CASE("text reader: missing, empty and unsuitable inputs", "[data]") {
  const testing::TempDir dir;
  CHECK(ReadAll({dir / "none.txt"}).status.code() == absl::StatusCode::kNotFound);
  CHECK(ReadAll({dir.path()}).status.code() == absl::StatusCode::kInvalidArgument);
  Write(dir / "empty.jsonl", "");
  Write(dir / "empty.gz", "");
  CHECK(ReadAll({dir / "empty.jsonl", dir / "empty.gz"}).status.ok());
  WriteGzip(dir / "zipped.txt", "раз");
  CHECK(Mentions(ReadAll({dir / "zipped.txt"}).status, "ends in .gz"));
}

}  // namespace
}  // namespace starling::data
