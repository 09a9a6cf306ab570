// Reads a Config from YAML files, the environment and --set options, strictly and completely: every
// problem is found in one go and says where it stands. Thread-safe: no state.
//
// Order, later wins: files from left to right (maps are merged, lists replaced), then environment
// variables STARLING__SECTION__KEY, then --set section.key=value. Values of the last two are YAML
// too: --set 'data.train=[a.tokens, b.tokens]'.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "starling/config/config.h"

namespace starling::config {

// Where a value came from.
struct Source {
  std::string origin;  // file path, "environment STARLING__…" or "--set a.b"; "" = default
  int order = 0;       // later origins have higher numbers
  int line = 0;        // from 1; 0 where lines make no sense
  int column = 0;

  std::string ToString() const;  // "c.yaml:3:5", "--set a.b", "default"
};

// One thing that is wrong (or, in LoadedConfig::warnings, odd).
struct Problem {
  Source source;
  std::string key;   // dotted, e.g. "training.steps"; "" for syntax errors
  std::string text;  // what is wrong with which value, and what was expected

  std::string ToString() const;  // "c.yaml:3:5: training.stps: unknown key; did you mean …?"
};

struct LoadRequest {
  std::vector<std::string> files;
  std::vector<std::string> environment;  // "NAME=value"; names without STARLING__ are ignored
  std::vector<std::string> sets;         // "a.b=value"
};

struct LoadedConfig {
  Config config;                          // resolved: no setting is left unset
  std::map<std::string, Source> sources;  // of every key that somebody set
  std::vector<Problem> problems;          // empty = good
  std::vector<Problem> warnings;
  std::vector<std::string> missing_files;  // config files that do not exist

  bool IsSet(const std::string& key) const { return sources.count(key) > 0; }
  // OK; NotFound when a config file does not exist; else InvalidArgument with one problem a line.
  absl::Status status() const;
};

// Reads, merges, binds and checks. Blocks on file reads. Never fails as such: see `problems`. With
// problems, `config` holds defaults where values were bad and must not be used.
LoadedConfig LoadConfig(const LoadRequest& request);

// Environment of this process, as LoadRequest wants it.
std::vector<std::string> ProcessEnvironment();

// Sets the model's vocabulary size and special ids from the tokenizer; those that somebody has set
// must agree, else a problem is added for each that does not.
void ApplyTokenizer(const TokenizerFacts& facts, const std::string& tokenizer_path,
                    LoadedConfig* loaded);

// Rules between settings (those of one setting are checked while it is read). Appends to `problems`
// and `warnings` with empty sources.
void CheckConfig(const Config& config, std::vector<Problem>* problems,
                 std::vector<Problem>* warnings);

// The whole config as YAML that LoadConfig reads back to the same values, with both hashes in a
// comment on top. With `sources`, each line ends in a comment that names its origin.
std::string ToYaml(const Config& config, const std::map<std::string, Source>* sources = nullptr);

}  // namespace starling::config
