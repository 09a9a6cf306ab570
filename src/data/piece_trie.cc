#include "data/piece_trie.h"

namespace starling::data {
namespace {

constexpr size_t kLookBack = 1024;

}  // namespace

PieceTrie::PieceTrie(const Entries& entries) {
  nodes_[0].parent = kFree - 1;  // taken, and nobody's child
  Build(entries, 0, entries.size(), 0, 0);
}

// Entries [begin, end) share their first `depth` bytes, which lead to `node`.
void PieceTrie::Build(const Entries& entries, size_t begin, size_t end, size_t depth,
                      uint32_t node) {
  if (begin < end && entries[begin].first.size() == depth) {
    nodes_[node].value = entries[begin].second;
    ++begin;
  }
  if (begin == end) return;
  std::vector<uint8_t> bytes;
  std::vector<size_t> starts;
  for (size_t i = begin; i < end; ++i) {
    const auto byte = static_cast<uint8_t>(entries[i].first[depth]);
    if (bytes.empty() || bytes.back() != byte) {
      bytes.push_back(byte);
      starts.push_back(i);
    }
  }
  starts.push_back(end);
  const uint32_t base = FindBase(bytes);
  nodes_[node].base = base;
  for (const uint8_t byte : bytes) nodes_[base + byte].parent = node;
  for (size_t i = 0; i < bytes.size(); ++i) {
    Build(entries, starts[i], starts[i + 1], depth + 1, base + bytes[i]);
  }
}

// A base, small if possible, at which all children have a free place.
uint32_t PieceTrie::FindBase(const std::vector<uint8_t>& bytes) {
  while (first_free_ < nodes_.size() && nodes_[first_free_].parent != kFree) ++first_free_;
  for (size_t place = first_free_ > bytes[0] ? first_free_ : bytes[0];; ++place) {
    const size_t base = place - bytes[0];
    // Every base needs 256 places behind it, so that reading a child never passes the end.
    if (base + 257 > nodes_.size()) nodes_.resize(base + 257 + nodes_.size() / 4);
    bool fits = true;
    for (const uint8_t byte : bytes) {
      if (nodes_[base + byte].parent != kFree) {
        fits = false;
        break;
      }
    }
    if (!fits) continue;
    // The free places far behind are too scattered to be worth another look.
    if (place > first_free_ + kLookBack) first_free_ = place - kLookBack;
    return static_cast<uint32_t>(base);
  }
}

int32_t PieceTrie::Find(std::string_view key) const {
  uint32_t node = 0;
  for (const char byte : key) {
    const uint32_t next = nodes_[node].base + static_cast<uint8_t>(byte);
    if (nodes_[next].parent != node) return -1;
    node = next;
  }
  return nodes_[node].value;
}

}  // namespace starling::data
