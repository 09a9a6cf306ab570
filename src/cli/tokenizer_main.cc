// `starling-tokenizer train`, which `starling tokenizer train` executes: text → tokenizer.json. A
// program of its own, because libsentencepiece.so exports a copy of an old protobuf, and that must
// not meet the one under gRPC in any process.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/program.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "starling/base/fs.h"
#include "starling/data/text_reader.h"
#include "starling/data/tokenizer_trainer.h"

namespace starling::cli {
namespace {

struct TrainArguments {
  data::TokenizerTrainOptions options;
  std::vector<std::string> inputs;
};

int Train(TrainArguments arguments) {
  data::TokenizerTrainOptions& options = arguments.options;
  const auto inputs = data::ExpandInputs(arguments.inputs);
  if (!inputs.ok()) return Fail(inputs.status());
  const int output_code = CheckOutputFile("--output", options.output, *inputs);
  if (output_code != 0) return output_code;
  const absl::Status made = RealFs().MakeDirectories(DirectoryOf(options.output));
  if (!made.ok()) return Fail(made);
  const auto source = data::SentencesOf(arguments.inputs);
  if (!source.ok()) return Fail(source.status());
  Progress progress(StandardErrorProgress());
  options.progress = [&progress](uint64_t sentences, bool done) {
    const std::string read = ShortCount(static_cast<double>(sentences)) + " lines read";
    if (done) {
      progress.Print(absl::StrCat("tokenizer: ", read, ", training (about a minute for 25 MB)"));
    } else {
      progress.Show(absl::StrCat("tokenizer: ", read));
    }
  };
  const absl::Status trained = data::TrainTokenizer(options, *source);
  progress.Finish("");
  if (!trained.ok()) return Fail(trained);
  Note(absl::StrCat(options.output, ": ", options.vocab_size, " pieces"));
  return 0;
}

void AddTrain(CLI::App& tokenizer, int* exit_code) {
  CLI::App* verb = tokenizer.add_subcommand("train", "Train a Unigram tokenizer on text");
  auto arguments = std::make_shared<TrainArguments>();
  data::TokenizerTrainOptions& options = arguments->options;
  verb->add_option("--input", arguments->inputs,
                   "Text: .jsonl (key \"text\"), .txt (documents parted by blank lines), .gz of "
                   "both, or a folder of these")
      ->required()
      ->type_name("FILE");
  verb->add_option("--vocab-size", options.vocab_size, "Pieces, the five special ones included")
      ->required()
      ->type_name("N");
  verb->add_option("--output", options.output, "tokenizer.json to write")
      ->required()
      ->type_name("FILE");
  verb->add_flag("--lowercase", options.lowercase, "Make everything lower case first");
  verb->add_option("--character-coverage", options.character_coverage,
                   "Share of the characters that must not be unknown")
      ->type_name("P");
  verb->add_option("--max-sentences", options.max_sentences,
                   "Lines to train on at most, sampled evenly")
      ->type_name("N");
  verb->footer(
      "Python's tokenizers reads the result too.\n\n"
      "Examples:\n"
      "  starling tokenizer train --input corpus.jsonl.gz --vocab-size 8000 \\\n"
      "      --output tokenizer.json\n"
      "  starling tokenizer train --input books/ --vocab-size 32000 --lowercase \\\n"
      "      --output tokenizer.json\n");
  verb->callback([arguments, exit_code] { *exit_code = Train(*arguments); });
}

}  // namespace
}  // namespace starling::cli

int main(int argc, char** argv) {
  return starling::cli::RunProgram(
      {.name = "starling tokenizer",
       .description = "Make tokenizers",
       .footer = "Examples:\n"
                 "  starling tokenizer train --input corpus.jsonl.gz --vocab-size 8000 \\\n"
                 "      --output tokenizer.json\n",
       .add_verbs = starling::cli::AddTrain},
      argc, argv);
}
