#include "starling/config/load.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "config/check.h"
#include "config/node.h"
#include "config/schema.h"
#include "starling/base/fs.h"
#include "starling/config/nearest.h"

namespace starling::config {
namespace {

constexpr char kEnvironmentPrefix[] = "STARLING__";

// Whether `name`, a key or a path of keys, stands in `text` by itself or before a dot, and not as
// the end or the beginning of another word.
bool Mentions(const std::string& text, const std::string& name) {
  const auto in_word = [&](size_t at) {
    return at < text.size() && (absl::ascii_isalnum(text[at]) || text[at] == '_');
  };
  for (size_t at = text.find(name); at != std::string::npos; at = text.find(name, at + 1)) {
    const bool begins = at == 0 || (!in_word(at - 1) && text[at - 1] != '.');
    if (begins && !in_word(at + name.size())) return true;
  }
  return false;
}

// Whether a problem is about `key` or mentions it: by its whole path, or in the same section by its
// last word.
bool RestsOn(const Problem& problem, const std::string& key) {
  if (key.empty()) return false;
  if (problem.key == key || Mentions(problem.text, key)) return true;
  const size_t dot = key.rfind('.');
  return dot != std::string::npos && absl::StartsWith(problem.key, key.substr(0, dot + 1)) &&
         Mentions(problem.text, key.substr(dot + 1));
}

class Loader {
 public:
  explicit Loader(LoadedConfig* loaded) : loaded_(loaded), fields_(Fields(&loaded->config)) {
    tree_.kind = Node::Kind::kMap;
    for (const Field& field : fields_) {
      by_key_[field.key] = &field;
      for (size_t dot = field.key.find('.'); dot != std::string::npos;
           dot = field.key.find('.', dot + 1)) {
        sections_[field.key.substr(0, dot)] = true;
      }
    }
  }

  void AddFile(const std::string& path) {
    const Source origin{path, ++order_, 0, 0};
    const absl::StatusOr<std::string> text = RealFs().Read(path);
    if (!text.ok()) {
      if (absl::IsNotFound(text.status())) loaded_->missing_files.push_back(path);
      Bad(origin, "", absl::StrCat("cannot be read: ", text.status().message()));
      return;
    }
    Node node = ParseYaml(*text, origin, true, &loaded_->problems);
    if (node.kind == Node::Kind::kScalar || node.kind == Node::Kind::kList) {
      Bad(node.source, "", "expected sections such as \"training:\" at the top of the file");
      return;
    }
    Overlay(std::move(node), &tree_);
  }

  void AddEnvironment(std::vector<std::string> environment) {
    std::sort(environment.begin(), environment.end());
    for (const std::string& variable : environment) {
      const size_t equals = variable.find('=');
      if (!absl::StartsWith(variable, kEnvironmentPrefix) || equals == std::string::npos) continue;
      const std::string name = variable.substr(0, equals);
      const std::string path = absl::AsciiStrToLower(
          absl::StrReplaceAll(name.substr(sizeof(kEnvironmentPrefix) - 1), {{"__", "."}}));
      AddValue(path, variable.substr(equals + 1), absl::StrCat("environment ", name));
    }
  }

  void AddSet(const std::string& assignment) {
    const size_t equals = assignment.find('=');
    const std::string path = assignment.substr(0, equals);
    const std::string origin = absl::StrCat("--set ", path);
    if (equals == std::string::npos || path.empty()) {
      Bad({origin, ++order_, 0, 0}, "", "expected --set section.key=value");
      return;
    }
    AddValue(path, assignment.substr(equals + 1), origin);
  }

  void Finish() {
    BindMap("", tree_);
    Resolve([this](const std::string& key) { return loaded_->IsSet(key); }, &loaded_->config);
    CheckConfigWithSources();
    SortProblems();
  }

  void CheckConfigWithSources() {
    std::vector<Problem> problems;
    CheckConfig(loaded_->config, &problems, &loaded_->warnings);
    for (Problem& problem : problems) {
      // A key whose value was bad holds its default: what follows from that would mislead.
      const bool known_bad =
          std::any_of(loaded_->problems.begin(), loaded_->problems.end(),
                      [&](const Problem& earlier) { return RestsOn(problem, earlier.key); });
      if (!known_bad) loaded_->problems.push_back(std::move(problem));
    }
    for (std::vector<Problem>* list : {&loaded_->problems, &loaded_->warnings}) {
      for (Problem& problem : *list) FindSource(&problem);
    }
  }

  // Where the setting stands that the problem is about, or else one that its text mentions.
  void FindSource(Problem* problem) const {
    if (!problem->source.origin.empty()) return;
    auto source = loaded_->sources.find(problem->key);
    if (source == loaded_->sources.end()) {
      source = std::find_if(loaded_->sources.begin(), loaded_->sources.end(),
                            [&](const auto& set) { return RestsOn(*problem, set.first); });
    }
    if (source != loaded_->sources.end()) problem->source = source->second;
  }

  void SortProblems() {
    std::stable_sort(loaded_->problems.begin(), loaded_->problems.end(),
                     [](const Problem& a, const Problem& b) {
                       return std::tie(a.source.order, a.source.line, a.source.column) <
                              std::tie(b.source.order, b.source.line, b.source.column);
                     });
  }

 private:
  void Bad(const Source& source, const std::string& key, const std::string& text) {
    loaded_->problems.push_back({source, key, text});
  }

  void AddValue(const std::string& path, const std::string& text, const std::string& origin) {
    const Source source{origin, ++order_, 0, 0};
    Node value = ParseYaml(text, source, false, &loaded_->problems);
    // An empty value is an empty string, so that a path from a file can be taken away again.
    if (value.kind == Node::Kind::kNull && text.empty()) {
      value.kind = Node::Kind::kScalar;
      value.quoted = true;
    }
    Overlay(Nest(path, std::move(value)), &tree_);
  }

  void BindMap(const std::string& prefix, const Node& map) {
    for (const Node::Entry& entry : map.entries) {
      const std::string key = prefix.empty() ? entry.key : absl::StrCat(prefix, ".", entry.key);
      const auto field = by_key_.find(key);
      if (field != by_key_.end()) {
        BindField(*field->second, entry.value);
      } else if (sections_.count(key) == 0) {
        Bad(entry.source, key, UnknownKey(key));
      } else if (entry.value.kind == Node::Kind::kMap) {
        BindMap(key, entry.value);
      } else if (entry.value.kind != Node::Kind::kNull) {
        Bad(entry.value.source, key,
            absl::StrCat("expected a section with keys such as ", FirstKeyOf(key)));
      }
    }
  }

  void BindField(const Field& field, const Node& node) {
    const std::string problem = field.read(node);
    if (!problem.empty()) Bad(node.source, field.key, problem);
    loaded_->sources[field.key] = node.source;
  }

  std::string FirstKeyOf(const std::string& section) const {
    for (const Field& field : fields_) {
      if (absl::StartsWith(field.key, section + ".")) return field.key;
    }
    return "";
  }

  std::string UnknownKey(const std::string& key) const {
    const std::string nearest = NearestKey(key);
    if (!nearest.empty()) return absl::StrCat("unknown key; did you mean ", nearest, "?");
    return "unknown key; `starling validate` prints every key there is";
  }

  // By the last word in the right section first (its other name in the reference included), then
  // the same word in another section, then sections and whole paths.
  std::string NearestKey(const std::string& key) const {
    const size_t dot = key.rfind('.');
    const std::string section = dot == std::string::npos ? "" : key.substr(0, dot + 1);
    const std::string leaf = ModelKey(key.substr(section.size()));
    std::vector<std::string> siblings, all;
    for (const auto& [known, unused] : by_key_) all.push_back(known);
    for (const auto& [known, unused] : sections_) all.push_back(known);
    for (const std::string& known : all) {
      if (!absl::StartsWith(known, section)) continue;
      const std::string rest = known.substr(section.size());
      if (rest.find('.') == std::string::npos) siblings.push_back(rest);
    }
    const std::string sibling = Nearest(leaf, siblings);
    if (!sibling.empty()) return section + sibling;
    for (const std::string& known : all) {
      if (absl::EndsWith(known, "." + leaf)) return known;
    }
    return Nearest(key, all);
  }

  LoadedConfig* const loaded_;
  const std::vector<Field> fields_;
  std::map<std::string, const Field*> by_key_;
  std::map<std::string, bool> sections_;
  Node tree_;
  int order_ = 0;
};

}  // namespace

std::string Source::ToString() const {
  if (origin.empty()) return "default";
  return line > 0 ? absl::StrCat(origin, ":", line, ":", column) : origin;
}

std::string Problem::ToString() const {
  std::string out;
  if (!source.origin.empty()) absl::StrAppend(&out, source.ToString(), ": ");
  if (!key.empty()) absl::StrAppend(&out, key, ": ");
  return out + text;
}

absl::Status LoadedConfig::status() const {
  if (problems.empty()) return absl::OkStatus();
  const std::string text = absl::StrJoin(
      problems, "\n",
      [](std::string* out, const Problem& problem) { out->append(problem.ToString()); });
  return missing_files.empty() ? absl::InvalidArgumentError(text) : absl::NotFoundError(text);
}

LoadedConfig LoadConfig(const LoadRequest& request) {
  LoadedConfig loaded;
  Loader loader(&loaded);
  for (const std::string& file : request.files) loader.AddFile(file);
  loader.AddEnvironment(request.environment);
  for (const std::string& assignment : request.sets) loader.AddSet(assignment);
  loader.Finish();
  return loaded;
}

std::vector<std::string> ProcessEnvironment() {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) variables.push_back(*variable);
  return variables;
}

void ApplyTokenizer(const TokenizerFacts& facts, const std::string& tokenizer_path,
                    LoadedConfig* loaded) {
  const auto apply = [&](const char* key, int64_t fact, int64_t* setting) {
    if (loaded->IsSet(key) && *setting != fact) {
      loaded->problems.push_back(
          {loaded->sources[key], key,
           absl::StrCat("is ", *setting, ", but the tokenizer ", tokenizer_path, " says ", fact,
                        ": leave the key out, or use the tokenizer that belongs to the model")});
    }
    *setting = fact;
  };
  model::LeanAlbertConfig& model = loaded->config.model;
  apply("model.vocab_size", facts.vocab_size, &model.vocab_size);
  apply("model.pad_token_id", facts.pad_token_id, &model.pad_token_id);
  apply("model.bos_token_id", facts.bos_token_id, &model.bos_token_id);
  apply("model.eos_token_id", facts.eos_token_id, &model.eos_token_id);
}

}  // namespace starling::config
