// Goal: files written are read back equal, files of the reference library are read, and whatever
// the bytes are, reading ends in a tensor table that lies inside them or in DataLoss. Method: round
// trips, hand-made bad headers, and thousands of seeded mutations and truncations.
#include "starling/checkpoint/safetensors.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "support/parity.h"
#include "support/temp_dir.h"

namespace starling::checkpoint {
namespace {

std::string File(std::string header, std::string data = "") {
  std::string file(8, '\0');
  const uint64_t bytes = header.size();
  std::memcpy(file.data(), &bytes, 8);
  return file + header + data;
}

std::string Sample() {
  static const std::string floats(24, '\1');
  const std::vector<TensorView> tensors = {
      {"b.weight", DType::kFloat32, {2, 3}, floats},
      {"a", DType::kBFloat16, {}, std::string_view(floats).substr(0, 2)},
      {"empty", DType::kInt64, {0, 4}, ""},
      {"слово\n\"", DType::kUint8, {5}, std::string_view(floats).substr(0, 5)}};
  std::string file = SafetensorsHeader(tensors, {{"format", "pt"}, {"ключ", "значение"}}).value();
  for (const TensorView& tensor : tensors) file += tensor.data;
  return file;
}

absl::Status ParseStatus(const std::string& bytes) {
  return SafetensorsFile::Parse(bytes, "file").status();
}

// Reads every byte that the parser hands out, so that a sanitizer sees a view outside the file.
uint64_t Touch(const SafetensorsFile& file) {
  uint64_t sum = 0;
  for (const TensorView& tensor : file.tensors()) {
    for (const char c : tensor.data) sum += static_cast<unsigned char>(c);
    sum += static_cast<uint64_t>(tensor.element_count());
  }
  return sum;
}

}  // namespace

TEST_CASE("safetensors: a written file is read back equal", "[checkpoint]") {
  const std::string bytes = Sample();
  const auto file = SafetensorsFile::Parse(bytes, "sample");
  REQUIRE(file.status() == absl::OkStatus());
  REQUIRE(file->tensors().size() == 4);
  CHECK(file->metadata().at("ключ") == "значение");
  const TensorView weight = file->Find("b.weight").value();
  CHECK(weight.dtype == DType::kFloat32);
  CHECK(weight.shape == std::vector<int64_t>{2, 3});
  CHECK(weight.data == std::string(24, '\1'));
  CHECK(file->Find("a")->element_count() == 1);
  CHECK(file->Find("empty")->data.empty());
  CHECK(file->Find("слово\n\"")->data.size() == 5);
  CHECK(file->Find("c").status().code() == absl::StatusCode::kNotFound);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  CHECK(header_bytes % 8 == 0);
}

TEST_CASE("safetensors: the writer refuses duplicate names and wrong sizes", "[checkpoint]") {
  const std::string four(4, 'x');
  const TensorView good = {"a", DType::kFloat32, {1}, four};
  CHECK(SafetensorsHeader(std::vector{good, good}, {}).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK_FALSE(SafetensorsHeader(std::vector{TensorView{"a", DType::kFloat32, {2}, four}}, {}).ok());
  CHECK_FALSE(
      SafetensorsHeader(std::vector{TensorView{"a", DType::kFloat32, {-1}, four}}, {}).ok());
  CHECK_FALSE(
      SafetensorsHeader(std::vector{TensorView{"__metadata__", DType::kFloat32, {1}, four}}, {})
          .ok());
  CHECK_FALSE(
      SafetensorsHeader(std::vector{TensorView{"\xff\xfe", DType::kFloat32, {1}, four}}, {}).ok());
}

TEST_CASE("safetensors: bad headers are DataLoss that names file and rule", "[checkpoint]") {
  struct Case {
    std::string bytes;
    std::string says;
  };
  const std::string data(8, 'd');
  auto tensor = [](std::string shape, std::string offsets, std::string dtype = "F32") {
    return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
           "}";
  };
  const auto bad = GENERATE_COPY(
      Case{"", "header length"}, Case{std::string(8, '\xff'), "beyond the file"},
      Case{File("[]"), "not a JSON object"}, Case{File("{"), "not a JSON object"},
      Case{File("{}") + "x", "belong to no tensor"}, Case{File("{\"a\":1}"), "not an object"},
      Case{File("{\"a\":" + tensor("[2]", "[0,8]", "F31") + "}", data), "F31"},
      Case{File("{\"a\":" + tensor("[2]", "[0,4]") + "}", data), "contradict"},
      Case{File("{\"a\":" + tensor("[2]", "[8,0]") + "}", data), "contradict"},
      Case{File("{\"a\":" + tensor("[2]", "[8,16]") + "}", data), "hole"},
      Case{File("{\"a\":" + tensor("[3]", "[0,12]") + "}", data), "has 8 bytes"},
      Case{File("{\"a\":" + tensor("[-2]", "[0,8]") + "}", data), "non-negative"},
      Case{File("{\"a\":" + tensor("[2.0]", "[0,8]") + "}", data), "non-negative"},
      Case{File("{\"a\":" + tensor("[18446744073709551615]", "[0,8]") + "}", data), "non-negative"},
      Case{File("{\"a\":" + tensor("[4611686018427387906]", "[0,8]") + "}", data), "overflows"},
      Case{File("{\"a\":" + tensor("[4294967296,4294967296]", "[0,0]") + "}"), "overflows"},
      Case{File("{\"a\":" + tensor("[2]", "[0,8,9]") + "}", data), "not a pair"},
      Case{
          File("{\"a\":" + tensor("[1]", "[0,4]") + ",\"b\":" + tensor("[2]", "[0,8]") + "}", data),
          "overlaps"},
      Case{
          File("{\"a\":" + tensor("[1]", "[0,4]") + ",\"a\":" + tensor("[1]", "[4,8]") + "}", data),
          "'a' twice"},
      Case{File("{\"__metadata__\":{\"k\":1}}"), "not a string"},
      Case{File("{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":0}}"),
           "unknown key"});
  CAPTURE(bad.bytes);
  const absl::Status status = ParseStatus(bad.bytes);
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  INFO(status.ToString());
  CHECK(status.message().find("file: ") == 0);
  CHECK(status.message().find(bad.says) != std::string::npos);
}

TEST_CASE("safetensors: a length that promises a huge header is refused unread", "[checkpoint]") {
  std::string bytes(8, '\0');
  const uint64_t promised = 100'000'001;
  std::memcpy(bytes.data(), &promised, 8);
  CHECK(ParseStatus(bytes).code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("safetensors: no mutation or truncation escapes the file", "[checkpoint]") {
  const std::string original = Sample();
  for (size_t length = 0; length < original.size(); ++length) {
    CAPTURE(length);
    CHECK(ParseStatus(original.substr(0, length)).code() == absl::StatusCode::kDataLoss);
  }
  const uint64_t seed = 20240601;
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = original;
    for (uint64_t change = random() % 4 + 1; change > 0; --change) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = "0123456789,:[]{}\"-.e"[random() % 20];
          break;
        case 2:
          bytes.erase(at, random() % 5 + 1);
          break;
        default:
          bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 9));
      }
    }
    const std::vector<char> exact(bytes.begin(), bytes.end());  // no terminator to hide an overrun
    const auto file = SafetensorsFile::Parse({exact.data(), exact.size()}, "mutant");
    if (file.ok()) accepted += Touch(*file) > 0;
    if (!file.ok()) REQUIRE(file.status().code() == absl::StatusCode::kDataLoss);
  }
  CHECK(accepted < 20000);
  CHECK(accepted > 0);  // mutations of the data alone keep the header right
}

TEST_CASE("safetensors: a mapped file outlives its copies; absent and odd paths are errors",
          "[checkpoint]") {
  const testing::TempDir dir;
  std::ofstream(dir / "x.safetensors", std::ios::binary) << Sample();
  std::ofstream(dir / "empty.safetensors", std::ios::binary) << "";
  SafetensorsFile kept;
  {
    auto file = SafetensorsFile::Open(dir / "x.safetensors");
    REQUIRE(file.status() == absl::OkStatus());
    kept = *file;
  }
  CHECK(kept.Find("b.weight")->data == std::string(24, '\1'));
  CHECK(SafetensorsFile::Open(dir / "none").status().code() == absl::StatusCode::kNotFound);
  CHECK(SafetensorsFile::Open(dir.path()).status().code() == absl::StatusCode::kDataLoss);
  const auto empty = SafetensorsFile::Open(dir / "empty.safetensors");
  CHECK(empty.status().code() == absl::StatusCode::kDataLoss);
  CHECK(empty.status().message().find("empty.safetensors") != std::string::npos);
}

TEST_CASE("safetensors: every file of the reference library opens", "[checkpoint]") {
  const std::string folder = testing::ParityPath("");
  if (!std::filesystem::exists(folder)) SKIP("no parity vectors in " + folder);
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    CAPTURE(entry.path());
    const auto file = SafetensorsFile::Open(entry.path());
    REQUIRE(file.status() == absl::OkStatus());
    CHECK_FALSE(file->tensors().empty());
    ++files;
  }
  if (files == 0) SKIP("no .safetensors below " + folder);
}

}  // namespace starling::checkpoint
