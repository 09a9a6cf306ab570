// Unicode properties in the versions that the reference tokenizer library was built with: its
// normalization tables are Unicode 9, its punctuation Unicode 8, its letter case and numbers newer
// than ICU's. Where ICU's own tables differ, the differences are listed in the .cc file (found by
// asking the reference for every code point). Thread-safe; the table is made at first use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace starling::data {

enum class NormalizationForm { kNfc, kNfd, kNfkc, kNfkd };

enum UnicodeFlag : uint16_t {
  kNfcSafe = 1,  // no normalization to NFC can change it or move it
  kNfdSafe = 2,
  kNfkcSafe = 4,
  kNfkdSafe = 8,
  kMark = 16,         // general category M (Unicode 9)
  kPunctuation = 32,  // ASCII punctuation or general category P (Unicode 8)
  kNumeric = 64,      // general category N
  kWhiteSpace = 128,
  kHasLower = 256,        // its lower case is another string
  kNmtChanged = 512,      // removed or made a space by the Nmt normalizer
  kWordChar = 1024,       // \w of regular expressions
  kSimpleCluster = 2048,  // a grapheme cluster of its own beside another such character
};

uint16_t ComputeUnicodeFlags(uint32_t c);

class UnicodeTable {
 public:
  static const UnicodeTable& Get();
  // Bits of UnicodeFlag.
  uint16_t operator[](uint32_t c) const {
    return c < flags_.size() ? flags_[c] : ComputeUnicodeFlags(c);
  }
  bool Has(uint32_t c, uint16_t flag) const { return ((*this)[c] & flag) != 0; }

 private:
  UnicodeTable();
  std::array<uint16_t, 0x10000> flags_;
};

// Appends the UTF-8 form of `c` to `out`.
void AppendUtf8(uint32_t c, std::string* out);
// How many bytes that form has.
inline size_t Utf8Length(uint32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

// Canonical combining class.
uint8_t CombiningClass(uint32_t c);
// Appends the full canonical (or compatibility) decomposition of `c`: `c` itself when it has none.
void Decompose(uint32_t c, bool compatibility, std::vector<uint32_t>* out);
// The primary composite of `a` and `b`, or 0.
uint32_t Compose(uint32_t a, uint32_t b);
// Appends the lower case of `c`, one or two code points.
void LowerCase(uint32_t c, std::vector<uint32_t>* out);

// End of the extended grapheme cluster that starts at `at`. REQUIRES: at < text.size().
size_t ClusterEnd(std::string_view text, size_t at);

}  // namespace starling::data
