// Goal: what was written by any number of parts is read back whole, and no damaged or half-written
// checkpoint is ever loaded. Method: random partitions; every truncation of every file, single
// flipped bits over all of them, missing, foreign and extra files; fall-back to the previous one.
#include "starling/checkpoint/reader.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "checkpoint/sample.h"
#include "starling/checkpoint/safetensors.h"
#include "support/parity.h"
#include "support/temp_dir.h"

namespace starling::checkpoint {
namespace {

namespace stdfs = std::filesystem;
using starling::testing::ReadWhole;
using starling::testing::TempDir;
using testing::At;

// A new file in the place of the old one (cutting the old one would make the disk wait).
void Overwrite(const std::string& path, const std::string& bytes) {
  stdfs::remove(path);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace

TEST_CASE("checkpoint: any partition into parts is read back whole", "[checkpoint]") {
  const int parts = GENERATE(1, 2, 3, 7, 20);
  const uint64_t seed = GENERATE(1, 2, 3);
  CAPTURE(parts, seed);
  const TempDir dir;
  const auto manifest = testing::WriteSampleParts(RealFs(), dir.path(), At(40), parts, seed);
  REQUIRE(manifest.status() == absl::OkStatus());
  REQUIRE(CommitManifest(RealFs(), dir.path(), *manifest, {}).status() == absl::OkStatus());
  const auto checkpoint = OpenCheckpoint(dir / "step-40.t1");
  REQUIRE(checkpoint.status() == absl::OkStatus());
  CHECK(checkpoint->manifest() == *manifest);
  CHECK(testing::CheckSample(*checkpoint, At(40)) == absl::OkStatus());
}

TEST_CASE("checkpoint: slices that follow each other become one plain tensor", "[checkpoint]") {
  const TempDir dir;
  const std::string data(48, 'x');
  const TensorRange whole{"w", TensorKind::kFirstMoment, DType::kFloat32, {3, 4}, 0, 12};
  TensorRange first = whole, second = whole;
  first.end = second.begin = 5;
  const std::string_view bytes = data;
  const auto part =
      WritePart(RealFs(), dir / "step-1.t1", testing::SampleSpec(At(1), 0),
                std::vector<TensorSlice>{{second, bytes.substr(20)}, {first, bytes.substr(0, 20)}});
  REQUIRE(part.status() == absl::OkStatus());
  CHECK(part->tensors == std::vector<TensorRange>{whole});
  CHECK(part->file == "part-t1-g7-r0-000000000000abc0.0.safetensors");
  const auto file = SafetensorsFile::Open(dir / ("step-1.t1/" + part->file));
  CHECK(file->Find("m.w")->shape == std::vector<int64_t>{3, 4});
  CHECK(file->metadata().at("starling.step") == "1");
}

TEST_CASE("checkpoint: the writer refuses overlaps, wrong sizes and complete folders",
          "[checkpoint]") {
  const TempDir dir;
  const PartSpec spec = testing::SampleSpec(At(1), 0);
  const std::string data(24, 'x');
  const TensorRange range{"w", TensorKind::kParameter, DType::kFloat32, {6}, 0, 6};
  auto code = [&](std::vector<TensorSlice> slices) {
    return WritePart(RealFs(), dir / "step-1.t1", spec, slices).status().code();
  };
  CHECK(code({}) == absl::StatusCode::kInvalidArgument);
  CHECK(code({{range, data}, {range, data}}) == absl::StatusCode::kInvalidArgument);
  CHECK(code({{range, std::string_view(data).substr(1)}}) == absl::StatusCode::kInvalidArgument);
  CHECK_FALSE(stdfs::exists(dir / "step-1.t1"));
  REQUIRE(testing::WriteSample(RealFs(), dir.path(), At(1), 1).ok());
  CHECK(code({{range, data}}) == absl::StatusCode::kFailedPrecondition);
  CHECK(Verify(dir / "step-1.t1") == absl::OkStatus());
}

TEST_CASE("checkpoint: reading outside a tensor or one that is not there is an error",
          "[checkpoint]") {
  const TempDir dir;
  REQUIRE(testing::WriteSample(RealFs(), dir.path(), At(1), 2).ok());
  const auto checkpoint = OpenCheckpoint(dir / "step-1.t1");
  REQUIRE(checkpoint.ok());
  float out[17];
  auto read = [&](const char* name, int64_t begin, int64_t end) {
    return checkpoint->ReadInto(name, TensorKind::kParameter, begin, end, out).code();
  };
  const char* const bias = "albert.encoder.layer.0.bias";
  CHECK(read(bias, 3, 17) == absl::StatusCode::kOk);
  CHECK(read(bias, 3, 3) == absl::StatusCode::kOk);
  CHECK(read(bias, 3, 18) == absl::StatusCode::kInvalidArgument);
  CHECK(read(bias, -1, 3) == absl::StatusCode::kInvalidArgument);
  CHECK(read(bias, 4, 3) == absl::StatusCode::kInvalidArgument);
  CHECK(read("none", 0, 1) == absl::StatusCode::kNotFound);
  CHECK(checkpoint->Shape("none").status().code() == absl::StatusCode::kNotFound);
}

TEST_CASE("verify: every truncation and sampled flipped bits of every file are found",
          "[checkpoint]") {
  const TempDir dir;
  REQUIRE(testing::WriteSample(RealFs(), dir.path(), At(5), 3).ok());
  const std::string folder = dir / "step-5.t1";
  REQUIRE(Verify(folder) == absl::OkStatus());
  const std::vector<std::string> names = RealFs().List(folder).value();
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    const std::string good = ReadWhole(path);
    CAPTURE(name, good.size());
    for (size_t length = 0; length < good.size(); length += 1 + length / 200) {
      Overwrite(path, good.substr(0, length));
      REQUIRE(Verify(folder).code() == absl::StatusCode::kDataLoss);
    }
    for (size_t at = 0; at < good.size(); at += 3) {
      std::string flipped = good;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
      Overwrite(path, flipped);
      const absl::Status status = Verify(folder);
      REQUIRE(status.code() == absl::StatusCode::kDataLoss);
      REQUIRE(status.message().find(name) != std::string::npos);
    }
    Overwrite(path, good + std::string(16, 'x'));
    CHECK(Verify(folder).code() == absl::StatusCode::kDataLoss);
    stdfs::remove(path);
    CHECK(Verify(folder).code() ==
          (name == kManifestFile ? absl::StatusCode::kNotFound : absl::StatusCode::kDataLoss));
    stdfs::create_directory(path);
    CHECK(Verify(folder).code() == absl::StatusCode::kDataLoss);
    stdfs::remove(path);
    Overwrite(path, good);
    REQUIRE(Verify(folder) == absl::OkStatus());
  }
  Overwrite(folder + "/leftover.tmp", "x");
  CHECK(Verify(folder) == absl::OkStatus());  // extra files are nobody's
}

TEST_CASE("verify: parts of another step, history or run are refused", "[checkpoint]") {
  const TempDir dir;
  const auto [version, run] = GENERATE(std::pair{At(10), "run-1"}, std::pair{At(15, 2), "run-1"},
                                       std::pair{At(15), "run-2"});
  CAPTURE(version.step.value(), version.timeline.value(), run);
  auto mixed = testing::WriteSampleParts(RealFs(), dir / "a", version, 1, 1, run);
  REQUIRE(mixed.ok());
  REQUIRE(testing::WriteSample(RealFs(), dir / "b", At(15), 1).ok());
  const std::string folder = dir / "b/step-15.t1";
  const std::string source = dir / ("a/" + FolderName(version) + "/" + mixed->parts[0].file);
  stdfs::copy_file(source, folder + "/" + mixed->parts[0].file,
                   stdfs::copy_options::overwrite_existing);
  Manifest manifest = testing::SampleManifest(At(15));
  manifest.parts = mixed->parts;
  Overwrite(folder + "/manifest.json", EncodeManifest(manifest).value());
  const absl::Status status = Verify(folder);
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  INFO(status.ToString());
  CHECK(status.message().find("belongs to another checkpoint") != std::string::npos);
}

TEST_CASE("verify: a renamed checkpoint is refused, a copy under a free name is not",
          "[checkpoint]") {
  const TempDir dir;
  REQUIRE(testing::WriteSample(RealFs(), dir.path(), At(5), 2).ok());
  stdfs::copy(dir / "step-5.t1", dir / "best");
  CHECK(Verify(dir / "best") == absl::OkStatus());
  stdfs::rename(dir / "best", dir / "step-9.t1");
  const absl::Status status = Verify(dir / "step-9.t1");
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK(status.message().find("step-5.t1") != std::string::npos);
}

TEST_CASE("list: newest first, ordered as numbers, without other folders", "[checkpoint]") {
  const TempDir dir;
  for (const char* name : {"step-9000.t1", "step-10000.t1", "step-60.t1", "step-50.t2",
                           "step-40.t1", "step-70.t3", "step-5000", "step-07.t1", "notes"}) {
    stdfs::create_directory(dir / name);
  }
  CHECK(ListCheckpoints(RealFs(), dir.path()).value() ==
        std::vector{At(70, 3), At(50, 2), At(10000), At(9000), At(60), At(40)});
  CHECK(ListCheckpoints(RealFs(), dir / "none")->empty());
}

TEST_CASE("checkpoint: Python's safetensors opens the parts", "[checkpoint]") {
  if (std::system("python3 -c 'import safetensors.numpy' 2>/dev/null") != 0) {
    SKIP("python3 has no safetensors with numpy");
  }
  const int parts = GENERATE(1, 3);
  const TempDir dir;
  REQUIRE(testing::WriteSample(RealFs(), dir.path(), At(4), parts).ok());
  Overwrite(dir / "read.py", R"(
import json, sys
import numpy as np
from safetensors.numpy import load_file
folder = sys.argv[1]
manifest = json.load(open(folder + "/manifest.json"))
values = {}
for part in manifest["parts"]:
    tensors = load_file(folder + "/" + part["file"])
    for t in part["tensors"]:
        stored = {"parameter": "", "m": "m.", "v": "v."}[t["kind"]] + t["name"]
        begin, end = t["range"]
        whole = (begin, end) == (0, int(np.prod(t["shape"], dtype=np.int64)))
        data = tensors[stored if whole else f"{stored}.{begin}-{end}"]
        assert data.dtype == np.float32
        assert list(data.shape) == (t["shape"] if whole else [end - begin])
        flat = values.setdefault((t["name"], t["kind"]), {})
        flat.update(zip(range(begin, end), data.ravel().tolist()))
kinds = ["parameter", "m", "v"]
assert len(values) == 12
for (name, kind), flat in values.items():
    for i, x in flat.items():
        expected = i + 0.25 * kinds.index(kind) + 4000 + 0.5 + 200 * (len(name) % 4)
        assert x == expected, (name, kind, i, x, expected)
)");
  CHECK(std::system(absl::StrCat("python3 ", dir / "read.py", " ", dir / "step-4.t1").c_str()) ==
        0);
}

}  // namespace starling::checkpoint
