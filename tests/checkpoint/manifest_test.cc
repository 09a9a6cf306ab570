// Goal: a manifest comes back equal, and whatever is done to its text is noticed. Method: round
// trips, every byte flipped and every truncation, and bodies re-signed after hand-made changes.
#include "starling/checkpoint/manifest.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>

#include "absl/strings/str_format.h"
#include "checkpoint/sample.h"
#include "starling/base/crc32c.h"

namespace starling::checkpoint {
namespace {

Manifest Whole() {
  Manifest manifest = testing::SampleManifest(testing::At(12, 3));
  Part part{"part-a.safetensors", 100, 0xdeadbeef, {}};
  for (const TensorKind kind : testing::kKinds) {
    part.tensors.push_back({"слой.weight", kind, DType::kFloat32, {4, 3}, 0, 5});
  }
  Part rest{"part-b.safetensors", 90, 1, {}};
  for (const TensorKind kind : testing::kKinds) {
    rest.tensors.push_back({"слой.weight", kind, DType::kFloat32, {4, 3}, 5, 12});
    rest.tensors.push_back({"empty", kind, DType::kFloat32, {0}, 0, 0});
  }
  manifest.parts = {part, rest};
  return manifest;
}

// `text` with `from` replaced and the checksum made right again.
std::string Resigned(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
  const size_t tail = text.rfind(",\n \"crc32c\"");
  const std::string body = text.substr(0, tail);
  return body + absl::StrFormat(",\n \"crc32c\": \"%08x\"\n}\n", Crc32c(body));
}

}  // namespace

TEST_CASE("manifest: encoded and parsed, it is equal", "[checkpoint]") {
  const Manifest manifest = Whole();
  const std::string text = EncodeManifest(manifest).value();
  const auto parsed = ParseManifest(text);
  REQUIRE(parsed.status() == absl::OkStatus());
  CHECK(*parsed == manifest);
  CHECK(CheckComplete(*parsed) == absl::OkStatus());
  CHECK(EncodeManifest(*parsed).value() == text);
}

TEST_CASE("manifest: a part report comes back equal, a bad one names its key", "[checkpoint]") {
  const Part part = Whole().parts[1];
  const std::string text = EncodePart(part);
  CHECK(text.find('\n') == std::string::npos);
  CHECK(DecodePart(text).value() == part);
  CHECK(DecodePart("").status().code() == absl::StatusCode::kDataLoss);
  CHECK(DecodePart("[1]").status().code() == absl::StatusCode::kDataLoss);
  const auto missing = DecodePart(R"({"file":"a.safetensors","bytes":1,"tensors":[]})");
  CHECK(missing.status().message().find("part.crc32c is missing") != std::string::npos);
}

TEST_CASE("manifest: every flipped byte and every truncation is DataLoss", "[checkpoint]") {
  const std::string text = EncodeManifest(Whole()).value();
  for (size_t i = 0; i < text.size(); ++i) {
    CAPTURE(i);
    for (const int mask : {1, 0x20, 0x80}) {
      std::string flipped = text;
      flipped[i] = static_cast<char>(flipped[i] ^ mask);
      REQUIRE(ParseManifest(flipped).status().code() == absl::StatusCode::kDataLoss);
    }
    REQUIRE(ParseManifest(text.substr(0, i)).status().code() == absl::StatusCode::kDataLoss);
  }
  CHECK_FALSE(ParseManifest(text + "\n").ok());
  CHECK_FALSE(ParseManifest("").ok());
}

TEST_CASE("manifest: signed but wrong content is refused by name", "[checkpoint]") {
  struct Case {
    std::string from, to, says;
  };
  const auto bad = GENERATE(
      Case{"\"seed\": ", "\"sead\": ", "seed is missing"},
      Case{"\"step\": 12", "\"step\": -12", "step is not a non-negative integer"},
      Case{"\"step\": 12", "\"step\": \"12\"", "step is not"},
      Case{"\"run_id\": \"run-1\"", "\"run_id\": 5", "run_id is not a string"},
      Case{"\"seed\": ", "\"color\": 1, \"seed\": ", "color is an unknown key"},
      Case{"part-a.safetensors", "../a.safetensors", "is not the name of a part"},
      Case{"part-a.safetensors", ".a.safetensors", "is not the name of a part"},
      Case{"deadbeef", "deadbee", "8 hexadecimal"}, Case{"deadbeef", "deadbee+", "8 hexadecimal"},
      Case{"\"F32\"", "\"F33\"", "'F33' is not known"},
      Case{"\"kind\": \"m\"", "\"kind\": \"w\"", "'w' is not known"},
      Case{"\"bytes\": 100", "\"bytes\": 101", "totals contradict"},
      Case{"\"format\": \"starling", "\"format\": \"sterling", "format is not"},
      Case{"2024-05-31", "2024-15-31", "created is no time"},
      Case{"\"skipped_steps\": \"2\"", "\"skipped_steps\": 2", "not a string"});
  CAPTURE(bad.from, bad.to);
  const auto parsed = ParseManifest(Resigned(EncodeManifest(Whole()).value(), bad.from, bad.to));
  CHECK(parsed.status().code() == absl::StatusCode::kDataLoss);
  INFO(parsed.status().ToString());
  CHECK(parsed.status().message().find(bad.says) != std::string::npos);
}

TEST_CASE("manifest: a newer version is told apart from damage", "[checkpoint]") {
  const auto parsed = ParseManifest(
      Resigned(EncodeManifest(Whole()).value(), "\"format_version\": 1", "\"format_version\": 2"));
  CHECK(parsed.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK(parsed.status().message().find("version 2") != std::string::npos);
}

TEST_CASE("manifest: missing, repeated and contradicting ranges are incomplete", "[checkpoint]") {
  struct Case {
    std::function<void(Manifest&)> change;
    std::string says;
  };
  const auto bad =
      GENERATE(Case{[](Manifest& m) { m.parts.clear(); }, "no tensor"},
               Case{[](Manifest& m) { m.parts.pop_back(); }, "elements [5, 12)"},
               Case{[](Manifest& m) { m.parts.erase(m.parts.begin()); }, "elements [0, 5)"},
               Case{[](Manifest& m) { m.parts[1].tensors[0].begin = 4; }, "[4, 5) of tensor"},
               Case{[](Manifest& m) { m.parts[1].tensors[0].begin = 6; }, "in no part"},
               Case{[](Manifest& m) { m.parts.push_back(m.parts[0]); }, "in two parts"},
               Case{[](Manifest& m) {
                      m.parts[0].tensors[0].shape = {3, 4};
                    },
                    "different shapes"},
               Case{[](Manifest& m) { m.parts[1].tensors[1].kind = TensorKind::kSecondMoment; },
                    "in two parts"},
               Case{[](Manifest& m) { m.parts[1].tensors.pop_back(); }, "'empty' has no v"});
  Manifest manifest = Whole();
  bad.change(manifest);
  const absl::Status status = CheckComplete(manifest);
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  INFO(status.ToString());
  CHECK(status.message().find(bad.says) != std::string::npos);
}

TEST_CASE("manifest: ranges outside their tensor and names like a moment's are refused",
          "[checkpoint]") {
  auto range = [](std::string name, std::vector<int64_t> shape, int64_t begin, int64_t end) {
    return CheckRange(
        {std::move(name), TensorKind::kParameter, DType::kFloat32, std::move(shape), begin, end});
  };
  CHECK(range("a", {2, 3}, 0, 6) == absl::OkStatus());
  CHECK(range("a", {}, 0, 1) == absl::OkStatus());
  CHECK(range("a", {0}, 0, 0) == absl::OkStatus());
  CHECK_FALSE(range("a", {2, 3}, 0, 7).ok());
  CHECK_FALSE(range("a", {2, 3}, -1, 2).ok());
  CHECK_FALSE(range("a", {2, 3}, 3, 3).ok());
  CHECK_FALSE(range("a", {2, 3}, 4, 3).ok());
  CHECK_FALSE(range("a", {int64_t{1} << 40, int64_t{1} << 40}, 0, 1).ok());
  CHECK_FALSE(range("", {2}, 0, 2).ok());
  CHECK_FALSE(range("m.a", {2}, 0, 2).ok());
  CHECK_FALSE(range("v.a", {2}, 0, 2).ok());
}

TEST_CASE("manifest: stored names and folder names have one spelling", "[checkpoint]") {
  TensorRange range{"a.weight", TensorKind::kSecondMoment, DType::kFloat32, {2, 3}, 0, 6};
  CHECK(StoredName(range) == "v.a.weight");
  CHECK(StoredShape(range) == std::vector<int64_t>{2, 3});
  range.begin = 2;
  range.kind = TensorKind::kParameter;
  CHECK(StoredName(range) == "a.weight.2-6");
  CHECK(StoredShape(range) == std::vector<int64_t>{4});

  CHECK(FolderName(testing::At(120, 3)) == "step-120.t3");
  CHECK(ParseFolderName("step-120.t3") == testing::At(120, 3));
  CHECK(ParseFolderName("step-0.t0") == testing::At(0, 0));
  for (const char* name :
       {"step-", "step-1", "step-1.t", "step-01.t1", "step-1.t01", "step--1.t1", "step-1.t1.tmp",
        "xstep-1.t1", "step-1 .t1", "step-99999999999999999999.t1", "latest", ""}) {
    CAPTURE(name);
    CHECK_FALSE(ParseFolderName(name).has_value());
  }
}

}  // namespace starling::checkpoint
