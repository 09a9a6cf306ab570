// What the progress line writes, with a clock that stands still until told.
#include "cli/progress.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdio>
#include <string>

#include "cli/terminal.h"

namespace starling::cli {
namespace {

// A stream whose content can be read back.
class Memory {
 public:
  Memory() : file_(open_memstream(&data_, &size_)) {}
  ~Memory() {
    std::fclose(file_);
    std::free(data_);
  }
  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return {data_, size_};
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

ProgressOptions Options(Memory* memory, const ManualClock* clock, bool terminal) {
  ProgressOptions options;
  options.out = memory->file();
  options.clock = clock;
  options.terminal = terminal;
  return options;
}

}  // namespace

TEST_CASE("progress: a terminal's line is rewritten, at most 5 times a second", "[cli]") {
  Memory memory;
  ManualClock clock;
  Progress progress(Options(&memory, &clock, true));
  progress.Show("a");
  progress.Show("b");
  clock.Advance(absl::Milliseconds(199));
  progress.Show("c");
  clock.Advance(absl::Milliseconds(1));
  progress.Show("d");
  CHECK(memory.text() == "\ra\x1b[K\rd\x1b[K");
  progress.Print("note");
  progress.Finish("e");
  CHECK(memory.text() == "\ra\x1b[K\rd\x1b[K\r\x1b[Knote\n\rd\x1b[K\re\x1b[K\n");
}

TEST_CASE("progress: elsewhere there are plain lines, one in 30 s, without carriage returns",
          "[cli]") {
  Memory memory;
  ManualClock clock;
  Progress progress(Options(&memory, &clock, false));
  progress.Show("a");
  clock.Advance(absl::Seconds(29));
  progress.Show("b");
  progress.Print("note");
  clock.Advance(absl::Seconds(1));
  progress.Show("c");
  progress.Finish("end");
  CHECK(memory.text() == "a\nnote\nc\nend\n");
}

TEST_CASE("terminal: numbers and times are short", "[cli]") {
  CHECK(ShortCount(999) == "999");
  CHECK(ShortCount(12345678) == "12.3 M");
  CHECK(ShortTime(0.4) == "0s");
  CHECK(ShortTime(192) == "3m12s");
  CHECK(ShortTime(93784) == "1d2h");
  CHECK(ProgressBar(0.5, 4) == "[##--]");
  CHECK(ProgressBar(2, 4) == "[####]");
}

}  // namespace starling::cli
