// starling prepare: text → token file.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "cli/config_arguments.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "starling/base/clock.h"
#include "starling/data/prepare.h"
#include "starling/data/text_reader.h"

namespace starling::cli {
namespace {

struct PrepareArguments {
  data::PrepareOptions options;
  std::string tokenizer;
  bool whole_documents = false;
  ConfigArguments config;
};

std::atomic<int> stop_signal{0};  // the signal that asked for an end, 0 = none

// The first signal stops in order, so that no temporary file stays behind; a second one at once.
void HandleStop(int signal) {
  stop_signal.store(signal);
  std::signal(signal, SIG_DFL);
}

int FailStopped() {
  const bool preempted = stop_signal.load() == SIGTERM;
  return Fail(preempted ? ExitCode::kDrained : ExitCode::kInterrupted,
              absl::StrCat(preempted ? "SIGTERM" : "interrupted", "; nothing was written"));
}

// Everything that can be known to be wrong with the output before hours of work go into it.
int CheckOutputs(const PrepareArguments& arguments) {
  const data::PrepareOptions& options = arguments.options;
  std::vector<std::string> outputs = {options.output};
  if (options.validation_fraction > 0) outputs.push_back(data::ValidationPath(options.output));
  const absl::StatusOr<std::vector<std::string>> inputs = data::ExpandInputs(options.inputs);
  if (!inputs.ok()) return Fail(inputs.status());
  std::vector<std::string> sources = *inputs;
  sources.push_back(arguments.tokenizer);
  for (const std::string& output : outputs) {
    const int code = CheckOutputFile("--output", output, sources);
    if (code != 0) return code;
  }
  return 0;
}

std::string ProgressLine(const data::PrepareProgress& progress, double seconds) {
  const double part = progress.bytes_total == 0 ? 0
                                                : static_cast<double>(progress.bytes_read) /
                                                      static_cast<double>(progress.bytes_total);
  std::string line = absl::StrFormat(
      "prepare %s %3.0f %%  %s documents  %s tokens  %sB/s", ProgressBar(part), 100 * part,
      ShortCount(static_cast<double>(progress.documents)),
      ShortCount(static_cast<double>(progress.tokens)),
      ShortCount(static_cast<double>(progress.bytes_read) / std::max(seconds, 1e-3)));
  if (part > 0.01 && part < 1)
    absl::StrAppend(&line, "  ETA ", ShortTime(seconds * (1 - part) / part));
  return line;
}

std::string CountsLine(const std::string& path, const data::PrepareCounts& counts) {
  return absl::StrFormat("%s: %d documents, %d sentences, %d tokens", path, counts.documents,
                         counts.sentences, counts.tokens);
}

// Takes from the config what the command line leaves open.
int ApplyConfig(PrepareArguments* arguments) {
  if (!arguments->config.files.empty() || !arguments->config.sets.empty()) {
    const ConfigOutcome outcome = ReadConfig(arguments->config);
    if (outcome.exit_code != 0) return outcome.exit_code;
    const config::Data& data = outcome.loaded.config.data;
    if (arguments->tokenizer.empty()) arguments->tokenizer = data.tokenizer;
    arguments->options.split_lines = data.split_lines;
  }
  if (arguments->whole_documents) arguments->options.split_lines = false;
  if (!arguments->tokenizer.empty()) return 0;
  return Fail(ExitCode::kUsage,
              "prepare needs --tokenizer FILE, or --config with data.tokenizer in it");
}

int RunPrepare(const PrepareArguments& arguments) {
  const absl::StatusOr<data::Tokenizer> tokenizer = data::Tokenizer::Load(arguments.tokenizer);
  if (!tokenizer.ok()) {
    if (!absl::IsInvalidArgument(tokenizer.status())) return Fail(tokenizer.status());
    return Fail(ExitCode::kBadData, std::string(tokenizer.status().message()));
  }
  const int output_code = CheckOutputs(arguments);
  if (output_code != 0) return output_code;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, HandleStop);
  const ProgressOptions progress_options = StandardErrorProgress();
  Progress progress(progress_options);
  data::PrepareProgress last;
  const absl::Time start = SystemClock::Get().Now();
  const auto line = [&] {
    return ProgressLine(last, absl::ToDoubleSeconds(SystemClock::Get().Now() - start));
  };
  const auto show = [&](const data::PrepareProgress& state) {
    last = state;
    progress.Show(line());
    return stop_signal.load() == 0;
  };
  const auto report = data::Prepare(*tokenizer, arguments.options, show);
  progress.Finish(progress_options.terminal ? line() : "");
  if (absl::IsCancelled(report.status())) return FailStopped();
  if (!report.ok()) return Fail(report.status());
  Note(CountsLine(arguments.options.output, report->train));
  if (!report->validation_path.empty()) {
    Note(CountsLine(report->validation_path, report->validation));
    if (report->validation.documents == 0) {
      Note(
          "warning: not one document is for validation: give --validation-fraction a larger value "
          "or more documents");
    }
  }
  if (report->bad > 0) {
    Note(absl::StrCat("warning: ", report->bad, " bad documents skipped, the first at ",
                      report->first_bad));
  }
  return 0;
}

void AddPrepareOptions(CLI::App* verb, PrepareArguments* arguments) {
  data::PrepareOptions& options = arguments->options;
  verb->add_option("--tokenizer", arguments->tokenizer, "tokenizer.json that makes the ids")
      ->type_name("FILE");
  verb->add_option("--input", options.inputs,
                   "Text: .jsonl (key \"text\"), .txt (documents parted by blank lines), .gz of "
                   "both, or a folder of these")
      ->required()
      ->type_name("FILE");
  verb->add_option("--output", options.output, "Token file to write")
      ->required()
      ->type_name("X.tokens");
  verb->add_option("--jobs", options.jobs, "Encoding threads; 0 = one a processor")
      ->check(CLI::Range(0, 1024));
  verb->add_option("--validation-fraction", options.validation_fraction,
                   "Share of documents that go to X.validation.tokens instead")
      ->check(CLI::Range(0.0, 0.999));
  verb->add_flag("--skip-bad", options.skip_bad,
                 "Count and skip invalid UTF-8 and JSON instead of stopping");
  verb->add_flag("--whole-documents", arguments->whole_documents,
                 "Do not end sentences at line breaks (data.split_lines: false)");
  AddConfigOptions(verb, false, &arguments->config);
}

}  // namespace

void AddPrepare(CLI::App& app, int* exit_code) {
  CLI::App* verb = app.add_subcommand("prepare", "Turn text into a token file");
  auto arguments = std::make_shared<PrepareArguments>();
  AddPrepareOptions(verb, arguments.get());
  verb->footer(
      "The same input gives the same bytes whatever --jobs is. The file appears when complete.\n\n"
      "Examples:\n"
      "  starling prepare --tokenizer tokenizer.json --input corpus.jsonl.gz --output ru.tokens\n"
      "  starling prepare --tokenizer tokenizer.json --input books/ news.txt \\\n"
      "      --output ru.tokens --validation-fraction 0.01 --jobs 8\n"
      "  starling prepare --config mine.yaml --input corpus.jsonl --output ru.tokens\n");
  verb->callback([arguments, exit_code] {
    *exit_code = ApplyConfig(arguments.get());
    if (*exit_code == 0) *exit_code = RunPrepare(*arguments);
  });
}

}  // namespace starling::cli
