// The file helpers that everything durable stands on.
#include "starling/base/fs.h"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "support/temp_dir.h"

namespace starling {

TEST_CASE("fs: an atomic write replaces the whole file and leaves nothing behind", "[base]") {
  testing::TempDir dir;
  REQUIRE(WriteAtomically(RealFs(), dir / "a", "first").ok());
  REQUIRE(WriteAtomically(RealFs(), dir / "a", "second").ok());
  CHECK(RealFs().Read(dir / "a").value() == "second");
  CHECK(RealFs().List(dir.path()).value() == std::vector<std::string>{"a"});
}

TEST_CASE("fs: a private write, hides the file from others whatever it was", "[base]") {
  using std::filesystem::perms;
  testing::TempDir dir;
  REQUIRE(WriteAtomically(RealFs(), dir / "a", "for all").ok());
  REQUIRE(WritePrivately(RealFs(), dir / "a", "secret").ok());
  CHECK(RealFs().Read(dir / "a").value() == "secret");
  CHECK(std::filesystem::status(dir / "a").permissions() ==
        (perms::owner_read | perms::owner_write));
  CHECK(RealFs().List(dir.path()).value() == std::vector<std::string>{"a"});
}

TEST_CASE("fs: a missing file is NotFound and named", "[base]") {
  testing::TempDir dir;
  const absl::Status status = RealFs().Read(dir / "absent").status();
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK(std::string(status.message()).find("absent") != std::string::npos);
}

TEST_CASE("fs: appending continues a file", "[base]") {
  testing::TempDir dir;
  for (const char* part : {"one", "two"}) {
    auto file = RealFs().OpenAppend(dir / "log").value();
    REQUIRE(file->Append(part).ok());
    REQUIRE(file->Sync().ok());
  }
  CHECK(RealFs().Read(dir / "log").value() == "onetwo");
}

TEST_CASE("fs: path helpers", "[base]") {
  CHECK(DirectoryOf("a/b/c") == "a/b");
  CHECK(DirectoryOf("c") == ".");
  CHECK(DirectoryOf("/c") == "/");
  CHECK(JoinPath("a", "b") == "a/b");
  CHECK(JoinPath("a/", "b") == "a/b");
}

}  // namespace starling
