// How many megabytes of text a second one core encodes on the path that `starling prepare` takes.
//   tokenizer_benchmark --tokenizer tokenizer.json --input corpus.jsonl.gz [--repeats 3]
// Reads the whole input into memory first, cuts it into lines, and encodes them in order. Every
// repeat starts with an empty memory of words, so the figure is that of a first pass. The rate is
// that of processor time, so that a busy machine does not falsify it; wall time is printed too.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "starling/data/text_reader.h"
#include "starling/data/tokenizer.h"

namespace {

using starling::data::Document;
using starling::data::TextReader;
using starling::data::Tokenizer;

[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "tokenizer_benchmark: %s\n", message.c_str());
  std::exit(1);
}

template <typename T>
T OrFail(absl::StatusOr<T> value) {
  if (!value.ok()) Fail(std::string(value.status().message()));
  return *std::move(value);
}

std::vector<std::string> ReadLines(const std::string& input) {
  const auto reader = OrFail(TextReader::Open({{input}, false}));
  std::vector<std::string> lines;
  Document document;
  while (OrFail(reader->Next(&document))) {
    for (size_t begin = 0; begin < document.text.size();) {
      const size_t end = std::min(document.text.find('\n', begin), document.text.size());
      lines.push_back(document.text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return lines;
}

struct Pass {
  double wall_seconds;
  double cpu_seconds;
  size_t tokens;
};

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Pass EncodeAll(const Tokenizer& tokenizer, const std::vector<std::string>& lines) {
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = CpuSeconds();
  Tokenizer::Scratch scratch;
  std::vector<int32_t> ids;
  size_t tokens = 0;
  for (const std::string& line : lines) {
    ids.clear();
    const absl::Status status = tokenizer.EncodeIds(line, &scratch, &ids);
    if (!status.ok()) Fail(std::string(status.message()));
    tokens += ids.size();
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  return {taken.count(), CpuSeconds() - cpu_start, tokens};
}

}  // namespace

int main(int argc, char** argv) {
  std::string tokenizer_path, input;
  int repeats = 3;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--tokenizer") tokenizer_path = argv[i + 1];
    if (flag == "--input") input = argv[i + 1];
    if (flag == "--repeats") repeats = std::atoi(argv[i + 1]);
  }
  if (tokenizer_path.empty() || input.empty() || repeats < 1) {
    Fail("usage: tokenizer_benchmark --tokenizer FILE --input FILE [--repeats N]");
  }
  const Tokenizer tokenizer = OrFail(Tokenizer::Load(tokenizer_path));
  const std::vector<std::string> lines = ReadLines(input);
  size_t bytes = 0;
  for (const std::string& line : lines) bytes += line.size() + 1;
  double best = 0;
  for (int i = 0; i < repeats; ++i) {
    const Pass pass = EncodeAll(tokenizer, lines);
    const double rate = static_cast<double>(bytes) / 1e6 / pass.cpu_seconds;
    best = std::max(best, rate);
    std::printf("pass %d: %.1f MB, %zu tokens, %.3f s of processor time (%.3f s wall), %.1f MB/s\n",
                i + 1, static_cast<double>(bytes) / 1e6, pass.tokens, pass.cpu_seconds,
                pass.wall_seconds, rate);
  }
  std::printf("best: %.1f MB/s on one core\n", best);
  return 0;
}
