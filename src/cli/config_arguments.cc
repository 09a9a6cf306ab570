#include "cli/config_arguments.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/terminal.h"
#include "starling/base/exit_codes.h"
#include "starling/base/fs.h"
#include "starling/base/status.h"
#include "starling/data/token_file.h"
#include "starling/data/tokenizer.h"

namespace starling::cli {
namespace {

// A tokenizer file that is there but cannot be used is bad data, whatever is wrong with it.
int FailTokenizer(const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) {
    return Fail(ExitCode::kBadData, absl::StrCat("data.tokenizer: ", status.message()));
  }
  return Fail(Annotate(status, "data.tokenizer"));
}

// Name of a special token that training needs and the tokenizer lacks; "" when all are there.
const char* MissingSpecial(const data::SpecialIds& ids) {
  if (ids.pad < 0) return "<pad>";
  if (ids.cls < 0) return "[CLS]";
  if (ids.sep < 0) return "[SEP]";
  if (ids.mask < 0) return "[MASK]";
  return "";
}

int Report(const config::LoadedConfig& loaded) {
  for (const config::Problem& warning : loaded.warnings) {
    Note(absl::StrCat("warning: ", warning.ToString()));
  }
  if (loaded.problems.empty()) return 0;
  for (const config::Problem& problem : loaded.problems) Note(problem.ToString());
  Note(absl::StrCat("starling: the config has ", loaded.problems.size(),
                    loaded.problems.size() == 1 ? " problem" : " problems"));
  return static_cast<int>(loaded.missing_files.empty() ? ExitCode::kConfig
                                                       : ExitCode::kMissingInput);
}

int ApplyTokenizerFile(ConfigOutcome* outcome) {
  config::LoadedConfig* loaded = &outcome->loaded;
  const std::string& path = loaded->config.data.tokenizer;
  absl::StatusOr<data::Tokenizer> tokenizer = data::Tokenizer::Load(path);
  if (!tokenizer.ok()) return FailTokenizer(tokenizer.status());
  outcome->tokenizer = *std::move(tokenizer);
  const data::SpecialIds ids = outcome->tokenizer->special_ids();
  const std::string missing = MissingSpecial(ids);
  if (!missing.empty()) {
    return Fail(ExitCode::kConfig,
                absl::StrCat("data.tokenizer: ", path, " has no token ", missing,
                             ", without which no training is possible; `starling tokenizer train` "
                             "makes tokenizers that have it"));
  }
  config::ApplyTokenizer({outcome->tokenizer->vocab_size(), ids.pad, ids.cls, ids.sep}, path,
                         loaded);
  loaded->warnings.clear();  // shown already
  return Report(*loaded);
}

int CheckTokenFile(const std::string& key, const std::string& path,
                   const data::Tokenizer* tokenizer) {
  const auto file = data::TokenFile::Open(path);
  if (!file.ok()) return Fail(Annotate(file.status(), key));
  const data::TokenFileInfo& info = (*file)->info();
  if (tokenizer == nullptr) return 0;
  const auto vocab_size = static_cast<uint64_t>(tokenizer->vocab_size());
  if (info.vocab_size == vocab_size && info.tokenizer_hash == tokenizer->hash()) return 0;
  const std::string why = info.vocab_size == vocab_size
                              ? std::string("was made by another tokenizer of the same size")
                              : absl::StrCat("has a vocabulary of ", info.vocab_size,
                                             ", but the tokenizer has ", vocab_size);
  return Fail(ExitCode::kConfig,
              absl::StrCat(key, ": ", path, " ", why,
                           ": name the tokenizer that made it in data.tokenizer, "
                           "or run `starling prepare` again"));
}

}  // namespace

void AddConfigOptions(CLI::App* verb, bool required, ConfigArguments* arguments) {
  verb->add_option("-c,--config", arguments->files, "Config file; several are merged, later wins")
      ->required(required)
      ->type_name("FILE")
      ->take_all()
      ->expected(1);
  verb->add_option("--set", arguments->sets, "Override one setting, e.g. training.steps=100")
      ->type_name("KEY=VALUE")
      ->take_all()
      ->expected(1);
}

ConfigOutcome ReadConfig(const ConfigArguments& arguments) {
  ConfigOutcome outcome;
  outcome.loaded =
      config::LoadConfig({arguments.files, config::ProcessEnvironment(), arguments.sets});
  outcome.exit_code = Report(outcome.loaded);
  return outcome;
}

ConfigOutcome LoadForVerb(const ConfigArguments& arguments) {
  ConfigOutcome outcome = ReadConfig(arguments);
  if (outcome.exit_code == 0 && !outcome.loaded.config.data.tokenizer.empty()) {
    outcome.exit_code = ApplyTokenizerFile(&outcome);
  }
  return outcome;
}

int CheckTokenFiles(const ConfigOutcome& outcome) {
  const config::Config& config = outcome.loaded.config;
  int exit_code = 0;
  const auto missing = [&](const char* key, const char* what) {
    exit_code = Fail(ExitCode::kConfig, absl::StrCat(key, ": names no ", what));
  };
  if (config.data.tokenizer.empty()) {
    missing("data.tokenizer", "tokenizer; `starling tokenizer train` makes one");
  }
  if (config.data.train.empty()) {
    missing("data.train", "token file; `starling prepare` makes them");
  }
  const data::Tokenizer* known = outcome.tokenizer ? &*outcome.tokenizer : nullptr;
  const auto check = [&](const char* key, const std::string& path) {
    const int code = CheckTokenFile(key, path, known);
    if (exit_code == 0) exit_code = code;
  };
  for (const std::string& path : config.data.train) check("data.train", path);
  if (!config.data.validation.empty()) check("data.validation", config.data.validation);
  return exit_code;
}

}  // namespace starling::cli
