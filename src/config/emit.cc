// Config → YAML and config → fingerprints, both through the table of fields.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "config/check.h"
#include "config/schema.h"
#include "starling/base/sha256.h"

namespace starling::config {
namespace {

// First 8 bytes of the SHA-256 of the text, big-endian.
uint64_t Fingerprint(std::string_view text) {
  const Sha256Digest digest = Sha256(text);
  uint64_t hash = 0;
  for (int i = 0; i < 8; ++i) hash = hash << 8 | digest[i];
  return hash;
}

// "key=value" lines of the meaningful fields below `prefix`, in byte order of the keys.
std::string CanonicalText(Config config, const std::string& prefix) {
  Resolve([](const std::string&) { return true; }, &config);
  std::map<std::string, std::string> lines;
  for (const Field& field : Fields(&config)) {
    if (field.meaning && absl::StartsWith(field.key, prefix)) lines[field.key] = field.write();
  }
  return absl::StrJoin(lines, "\n", absl::PairFormatter("="));
}

}  // namespace

uint64_t ConfigHash(const Config& config) { return Fingerprint(CanonicalText(config, "")); }

uint64_t ModelHash(const model::LeanAlbertConfig& model) {
  Config config;
  config.model = model;
  return Fingerprint(CanonicalText(config, "model."));
}

std::string ToYaml(const Config& config, const std::map<std::string, Source>* sources) {
  Config copy = config;
  std::string out = absl::StrFormat("# config_hash: %016x\n# model_hash: %016x\n",
                                    ConfigHash(config), ModelHash(config.model));
  std::vector<std::string> open;  // sections that the last line stands in
  for (const Field& field : Fields(&copy)) {
    std::vector<std::string> path = absl::StrSplit(field.key, '.');
    const std::string name = path.back();
    path.pop_back();
    for (size_t depth = 0; depth < path.size(); ++depth) {
      if (depth < open.size() && open[depth] == path[depth]) continue;
      open.resize(depth);
      absl::StrAppend(&out, std::string(2 * depth, ' '), path[depth], ":\n");
      open.push_back(path[depth]);
    }
    open.resize(path.size());
    std::string line = absl::StrCat(std::string(2 * path.size(), ' '), name, ": ", field.write());
    if (sources != nullptr) {
      const auto source = sources->find(field.key);
      if (source != sources->end()) {
        line = absl::StrFormat("%-44s # %s", line, source->second.ToString());
      }
    }
    absl::StrAppend(&out, line, "\n");
  }
  return out;
}

}  // namespace starling::config
