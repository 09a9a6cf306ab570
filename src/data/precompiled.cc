// The Precompiled normalizer: SentencePiece's table of replacements, applied as the reference does
// it: a whole grapheme cluster when it is shorter than six bytes, else character by character; and
// of all table entries that the stretch starts with, the shortest.
#include <cstring>
#include <optional>
#include <utility>

#include "data/normalizer.h"
#include "data/utf8.h"

namespace starling::data {
namespace {

// Only clusters shorter than this are looked up whole.
constexpr size_t kWholeClusterBytes = 6;

class Precompiled : public Normalizer {
 public:
  Precompiled(std::vector<uint32_t> units, std::string replacements)
      : units_(std::move(units)), replacements_(std::move(replacements)) {}

  void Apply(NormalizedText* text) const override {
    const std::string& from = text->text();
    std::vector<CharChange> to;
    bool modified = false;
    for (size_t i = 0; i < from.size();) {
      const size_t end = ClusterEnd(from, i);
      const std::string_view cluster = std::string_view(from).substr(i, end - i);
      i = end;
      if (cluster.size() < kWholeClusterBytes && Substitute(cluster, &to)) {
        modified = true;
        continue;
      }
      for (size_t k = 0; k < cluster.size();) {
        const CodePoint c = DecodeAt(cluster, k);
        if (Substitute(cluster.substr(k, c.bytes), &to)) {
          modified = true;
        } else {
          to.push_back({c.value, 0});
        }
        k += c.bytes;
      }
    }
    if (modified) text->Transform(to, 0);
  }

 private:
  static size_t Offset(uint32_t unit) {
    return static_cast<size_t>(unit >> 10) << ((unit & (1u << 9)) >> 6);
  }

  // Where in replacements_ the entry for the shortest prefix of `key` starts.
  std::optional<size_t> Find(std::string_view key) const {
    size_t node = Offset(units_[0]);
    for (const char character : key) {
      const auto byte = static_cast<uint8_t>(character);
      if (byte == 0) return std::nullopt;
      node ^= byte;
      if (node >= units_.size()) return std::nullopt;
      const uint32_t unit = units_[node];
      if ((unit & ((1u << 31) | 0xFF)) != byte) return std::nullopt;
      node ^= Offset(unit);
      if (node >= units_.size()) return std::nullopt;
      if ((unit >> 8) & 1) return units_[node] & ((1u << 31) - 1);
    }
    return std::nullopt;
  }

  bool Substitute(std::string_view part, std::vector<CharChange>* to) const {
    const std::optional<size_t> at = Find(part);
    if (!at.has_value() || *at > replacements_.size()) return false;
    const std::string_view replacement(replacements_.c_str() + *at);
    int32_t old_count = 0;
    for (size_t i = 0; i < part.size(); i += DecodeAt(part, i).bytes) ++old_count;
    int32_t new_count = 0;
    for (size_t i = 0; i < replacement.size();) {
      const CodePoint c = DecodeAt(replacement, i);
      to->push_back({c.value, 0});
      i += c.bytes;
      ++new_count;
    }
    const int32_t difference = new_count - old_count;
    for (int32_t i = 0; i < difference; ++i)
      (*to)[to->size() - 1 - static_cast<size_t>(i)].change = 1;
    // Characters removed at the very beginning are not accounted for, as in the reference.
    if (difference < 0 && !to->empty()) to->back().change += difference;
    return true;
  }

  std::vector<uint32_t> units_;
  std::string replacements_;  // each ends with a zero byte
};

}  // namespace

absl::StatusOr<std::unique_ptr<Normalizer>> MakePrecompiled(std::string_view charsmap) {
  uint32_t trie_bytes = 0;
  if (charsmap.size() < sizeof(trie_bytes)) {
    return absl::DataLossError("precompiled_charsmap is shorter than its header");
  }
  std::memcpy(&trie_bytes, charsmap.data(), sizeof(trie_bytes));
  charsmap.remove_prefix(sizeof(trie_bytes));
  trie_bytes -= trie_bytes % sizeof(uint32_t);
  if (trie_bytes > charsmap.size() || trie_bytes == 0) {
    return absl::DataLossError("precompiled_charsmap is shorter than its header says");
  }
  std::vector<uint32_t> units(trie_bytes / sizeof(uint32_t));
  std::memcpy(units.data(), charsmap.data(), trie_bytes);
  std::string replacements(charsmap.substr(trie_bytes));
  if (FindInvalidUtf8(replacements) != std::string_view::npos) {
    return absl::DataLossError("precompiled_charsmap holds invalid UTF-8");
  }
  return std::make_unique<Precompiled>(std::move(units), std::move(replacements));
}

}  // namespace starling::data
