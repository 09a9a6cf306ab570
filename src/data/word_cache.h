// Words and the ids they were encoded to, so that a word is encoded once. Forgets everything when
// it is full. Not thread-safe: one per thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace starling::data {

class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 128;

  // Appends the ids of `word` and returns true, or returns false when it is not known.
  bool Append(std::string_view word, std::vector<int32_t>* out) const {
    if (entries_.empty() || word.size() > kMaxWordBytes) return false;
    const uint64_t hash = Hash(word);
    for (size_t at = hash & (kSlots - 1);; at = (at + 1) & (kSlots - 1)) {
      const Entry& entry = entries_[at];
      if (entry.word_bytes == 0) return false;
      if (entry.hash == hash && entry.word_bytes == word.size() &&
          std::memcmp(words_.data() + entry.word_at, word.data(), word.size()) == 0) {
        const int32_t* ids = ids_.data() + entry.ids_at;
        out->insert(out->end(), ids, ids + entry.id_count);
        return true;
      }
    }
  }

  // Remembers ids [begin, end) for `word`, which must not be known. Too long words are left out.
  void Insert(std::string_view word, const int32_t* begin, const int32_t* end) {
    const auto id_count = static_cast<size_t>(end - begin);
    if (word.empty() || word.size() > kMaxWordBytes || id_count > kMaxIds) return;
    if (used_ >= kMaxWords || entries_.empty()) Clear();
    const uint64_t hash = Hash(word);
    size_t at = hash & (kSlots - 1);
    while (entries_[at].word_bytes != 0) at = (at + 1) & (kSlots - 1);
    entries_[at] = {hash, static_cast<uint32_t>(words_.size()), static_cast<uint32_t>(ids_.size()),
                    static_cast<uint16_t>(word.size()), static_cast<uint16_t>(id_count)};
    words_.append(word);
    ids_.insert(ids_.end(), begin, end);
    ++used_;
  }

  void Clear() {
    entries_.assign(kSlots, Entry());
    words_.clear();
    ids_.clear();
    used_ = 0;
  }

 private:
  static constexpr size_t kSlots = 1u << 18;
  static constexpr size_t kMaxWords = kSlots / 2;
  static constexpr size_t kMaxIds = 512;

  struct Entry {
    uint64_t hash = 0;
    uint32_t word_at = 0;
    uint32_t ids_at = 0;
    uint16_t word_bytes = 0;  // 0: free
    uint16_t id_count = 0;
  };

  static uint64_t Hash(std::string_view word) {
    constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
    uint64_t hash = word.size() * kFactor;
    size_t i = 0;
    for (; i + 8 <= word.size(); i += 8) {
      uint64_t part;
      std::memcpy(&part, word.data() + i, 8);
      hash = Mix((hash ^ part) * kFactor);
    }
    uint64_t rest = 0;
    if (i < word.size()) std::memcpy(&rest, word.data() + i, word.size() - i);
    return Mix((hash ^ rest) * kFactor);
  }
  static uint64_t Mix(uint64_t x) { return x ^ (x >> 29); }

  std::vector<Entry> entries_;
  std::string words_;
  std::vector<int32_t> ids_;
  size_t used_ = 0;
};

}  // namespace starling::data
