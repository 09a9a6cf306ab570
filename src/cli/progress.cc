#include "cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"

namespace starling::cli {
namespace {

// `line` cut at a character border, so that it does not wrap on the terminal: a wrapped line cannot
// be rewritten.
std::string Fit(const std::string& line, std::FILE* out) {
  winsize size{};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return line;
  size_t bytes = 0;
  for (int columns = 0; bytes < line.size(); ++bytes) {
    const bool starts_character = (line[bytes] & 0xC0) != 0x80;
    if (starts_character && ++columns >= size.ws_col) break;
  }
  return line.substr(0, bytes);
}

}  // namespace

ProgressOptions StandardErrorProgress() {
  ProgressOptions options;
  options.terminal = isatty(STDERR_FILENO) != 0;
  return options;
}

Progress::Progress(const ProgressOptions& options) : options_(options) {}

Progress::~Progress() { Finish(""); }

void Progress::Show(const std::string& line) {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = options_.clock->Now();
  if (now < next_) return;
  next_ = now + (options_.terminal ? options_.redraw : options_.plain);
  Draw(line);
}

void Progress::Print(const std::string& line) {
  absl::MutexLock lock(&mutex_);
  const bool redraw = options_.terminal && !drawn_.empty();
  std::fputs(absl::StrCat(redraw ? "\r\x1b[K" : "", line, "\n").c_str(), options_.out);
  if (redraw) Draw(drawn_);
  std::fflush(options_.out);
}

void Progress::Finish(const std::string& line) {
  absl::MutexLock lock(&mutex_);
  if (!line.empty()) Draw(line);
  if (options_.terminal && !drawn_.empty()) std::fputs("\n", options_.out);
  std::fflush(options_.out);
  drawn_.clear();
  next_ = absl::InfinitePast();
}

void Progress::Draw(const std::string& line) {
  if (options_.terminal) {
    drawn_ = line;
    std::fputs(absl::StrCat("\r", Fit(line, options_.out), "\x1b[K").c_str(), options_.out);
  } else {
    std::fputs(absl::StrCat(line, "\n").c_str(), options_.out);
  }
  std::fflush(options_.out);
}

std::string ProgressBar(double part, int width) {
  const int done = std::clamp(static_cast<int>(part * width), 0, width);
  return absl::StrCat("[", std::string(done, '#'), std::string(width - done, '-'), "]");
}

}  // namespace starling::cli
