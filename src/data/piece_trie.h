// A set of byte strings with an integer each, as a double array: for every position of a text, all
// entries that start there, shortest first, at one memory access a byte. Immutable, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace starling::data {

class PieceTrie {
 public:
  PieceTrie() = default;
  // `entries`: sorted by key in byte order, keys distinct and not empty, values not negative.
  explicit PieceTrie(const std::vector<std::pair<std::string_view, int32_t>>& entries);

  // Calls visit(length, value) for every entry that `text` starts with, shortest first.
  template <typename Visit>
  void VisitPrefixes(std::string_view text, Visit visit) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const uint32_t next = nodes_[node].base + static_cast<uint8_t>(text[i]);
      if (nodes_[next].parent != node) return;
      node = next;
      if (nodes_[node].value >= 0) visit(i + 1, nodes_[node].value);
    }
  }

  // The value of `key`, or -1.
  int32_t Find(std::string_view key) const;

 private:
  static constexpr uint32_t kFree = 0xFFFFFFFF;
  struct Node {
    uint32_t base = 0;  // the child by byte b is at base + b
    uint32_t parent = kFree;
    int32_t value = -1;
  };

  using Entries = std::vector<std::pair<std::string_view, int32_t>>;
  void Build(const Entries& entries, size_t begin, size_t end, size_t depth, uint32_t node);
  uint32_t FindBase(const std::vector<uint8_t>& bytes);

  std::vector<Node> nodes_ = std::vector<Node>(257);
  size_t first_free_ = 1;
};

}  // namespace starling::data
