// The program `starling` as its tests use it: the real binary, and files that a config needs.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "cli/run_program.h"
#include "starling/data/token_file.h"
#include "starling/data/tokenizer.h"
#include "support/temp_dir.h"

namespace starling::testing {

inline constexpr char kTokenizer[] =
    STARLING_SOURCE_DIR "/tests/parity/vectors/p18_instances/tokenizer.json";

inline ProgramResult Starling(std::vector<std::string> arguments,
                              const std::vector<std::string>& environment = {}) {
  arguments.insert(arguments.begin(), STARLING_BINARY);
  ProgramResult result = RunProgram(arguments, environment);
  UNSCOPED_INFO("exit code " << result.exit_code << "\nstderr: " << result.err);
  return result;
}

inline bool Says(const ProgramResult& result, const std::string& text) {
  UNSCOPED_INFO("expected: " << text);
  return absl::StrContains(result.err, text);
}

// A folder with a token file and a config that fits both it and the tokenizer. One thread.
class Fixture {
 public:
  Fixture() {
    const auto tokenizer = data::Tokenizer::Load(kTokenizer);
    REQUIRE(tokenizer.ok());
    vocab_size_ = tokenizer->vocab_size();
    WriteTokens("train.tokens", vocab_size_, tokenizer->hash());
    WriteConfig("");
  }

  void WriteTokens(const std::string& name, uint64_t vocab_size, uint64_t hash) {
    auto writer = data::TokenFileWriter::Create(dir_ / name, vocab_size, hash);
    REQUIRE(writer.ok());
    const std::vector<int32_t> ids = {5, 6, 7, 8};
    const std::vector<uint32_t> lengths = {2, 2};
    REQUIRE((*writer)->AddDocument(ids, lengths).ok());
    REQUIRE((*writer)->Finish().ok());
  }

  void WriteConfig(const std::string& more) {
    std::ofstream(config()) << "run: {directory: " << (dir_ / "run") << "}\n"
                            << "data: {train: [" << (dir_ / "train.tokens")
                            << "], tokenizer: " << kTokenizer << "}\n"
                            << more;
  }

  std::string config() const { return dir_ / "c.yaml"; }
  std::string path(const std::string& name) const { return dir_ / name; }
  int32_t vocab_size() const { return vocab_size_; }

  ProgramResult Validate(std::vector<std::string> more = {},
                         const std::vector<std::string>& environment = {}) const {
    std::vector<std::string> arguments = {"validate", "--config", config()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Starling(arguments, environment);
  }

 private:
  TempDir dir_;
  int32_t vocab_size_ = 0;
};

}  // namespace starling::testing
