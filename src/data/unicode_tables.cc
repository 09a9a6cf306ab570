#include "data/unicode_tables.h"

#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/uscript.h>
#include <unicode/utf16.h>

#include <iterator>

#include "data/utf8.h"

namespace starling::data {
namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};

// Numbers that came after ICU 72.
constexpr Range kNewNumbers[] = {{0x10D40, 0x10D49}, {0x116D0, 0x116E3}, {0x11BF0, 0x11BF9},
                                 {0x11DE0, 0x11DE9}, {0x16130, 0x16139}, {0x16D70, 0x16D79},
                                 {0x16FF4, 0x16FF6}, {0x1CCF0, 0x1CCF9}, {0x1E5F1, 0x1E5FA}};
// Combining characters (cluster break Extend or SpacingMark) that came after ICU 72.
constexpr Range kNewCombining[] = {{0x0897, 0x0897},   {0x10D69, 0x10D6D}, {0x10EFC, 0x10EFC},
                                   {0x113B8, 0x113C0}, {0x113C2, 0x113C2}, {0x113C5, 0x113C5},
                                   {0x113C7, 0x113CA}, {0x113CC, 0x113D0}, {0x113D2, 0x113D2},
                                   {0x113E1, 0x113E2}, {0x11F5A, 0x11F5A}, {0x1611E, 0x1612F},
                                   {0x1E5EE, 0x1E5EF}};
constexpr uint32_t kNewPrepend = 0x113D1;

// Lower case that came after ICU 72.
struct LowerRange {
  uint32_t first;
  uint32_t last;
  int32_t distance;
};
constexpr LowerRange kNewLower[] = {
    {0x1C89, 0x1C89, 1},    {0xA7CB, 0xA7CB, -42343}, {0xA7CC, 0xA7CC, 1}, {0xA7CE, 0xA7CE, 1},
    {0xA7D2, 0xA7D2, 1},    {0xA7D4, 0xA7D4, 1},      {0xA7DA, 0xA7DA, 1}, {0xA7DC, 0xA7DC, -42561},
    {0x10D50, 0x10D65, 32}, {0x16EA0, 0x16EB8, 27}};

template <size_t n>
bool In(const Range (&ranges)[n], uint32_t c) {
  for (const Range& range : ranges) {
    if (c >= range.first && c <= range.last) return true;
  }
  return false;
}

bool NotNewerThan(uint32_t c, uint8_t major) {
  UVersionInfo age;
  u_charAge(static_cast<UChar32>(c), age);
  return age[0] < major || (age[0] == major && age[1] == 0);
}

bool HasOldNormalization(uint32_t c) { return NotNewerThan(c, 9); }

const UNormalizer2* Normalizer(bool compatibility) {
  UErrorCode error = U_ZERO_ERROR;
  return compatibility ? unorm2_getNFKCInstance(&error) : unorm2_getNFCInstance(&error);
}

bool IsMark(uint32_t c) {
  if (c == 0x1CF2 || c == 0x1CF3) return true;  // letters since Unicode 12
  if (c == 0x111C9) return false;               // a mark since Unicode 11
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_M_MASK) != 0 && HasOldNormalization(c);
}

bool IsPunctuation(uint32_t c) {
  if (c < 0x80) return c > 0x20 && c < 0x7F && !u_isalnum(static_cast<UChar32>(c));
  if (c == 0x166D || c == 0x111C9) return true;  // changed their category since
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_P_MASK) != 0 && NotNewerThan(c, 8);
}

bool IsNumeric(uint32_t c) {
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_N_MASK) != 0 || In(kNewNumbers, c);
}

bool IsNmtChanged(uint32_t c) {
  return (c >= 0x01 && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F || c == 0x1680 ||
         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
         c == 0xFFFD;
}

bool IsWordChar(uint32_t c) {
  const auto code = static_cast<UChar32>(c);
  return u_hasBinaryProperty(code, UCHAR_ALPHABETIC) ||
         u_charType(code) == U_DECIMAL_DIGIT_NUMBER ||
         (U_GET_GC_MASK(code) & (U_GC_M_MASK | U_GC_PC_MASK)) != 0 ||
         u_hasBinaryProperty(code, UCHAR_JOIN_CONTROL);
}

int ClusterBreak(uint32_t c) {
  if (c == kNewPrepend) return U_GCB_PREPEND;
  if (c >= 0x0897 && In(kNewCombining, c)) return U_GCB_EXTEND;
  return u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_GRAPHEME_CLUSTER_BREAK);
}

// Consonants of the scripts whose conjuncts hold together (rule GB9c), and what joins them.
bool IsConjunctConsonant(uint32_t c) {
  if (c < 0x0900 || c > 0x0D7F) return false;
  const auto code = static_cast<UChar32>(c);
  if (u_getIntPropertyValue(code, UCHAR_INDIC_SYLLABIC_CATEGORY) != U_INSC_CONSONANT) return false;
  UErrorCode error = U_ZERO_ERROR;
  switch (uscript_getScript(code, &error)) {
    case USCRIPT_DEVANAGARI:
    case USCRIPT_BENGALI:
    case USCRIPT_GUJARATI:
    case USCRIPT_ORIYA:
    case USCRIPT_TELUGU:
    case USCRIPT_MALAYALAM:
      return true;
    default:
      return false;
  }
}

bool IsConjunctLinker(uint32_t c) {
  return c == 0x094D || c == 0x09CD || c == 0x0ACD || c == 0x0B4D || c == 0x0C4D || c == 0x0D4D;
}

bool IsPictographic(uint32_t c) {
  return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_EXTENDED_PICTOGRAPHIC);
}

bool IsControlBreak(int cluster_break) {
  return cluster_break == U_GCB_CONTROL || cluster_break == U_GCB_CR || cluster_break == U_GCB_LF;
}

// Whether the rules for Hangul syllables (GB6–GB8) keep two characters together.
bool HangulJoins(int before, int after) {
  switch (before) {
    case U_GCB_L:
      return after == U_GCB_L || after == U_GCB_V || after == U_GCB_LV || after == U_GCB_LVT;
    case U_GCB_LV:
    case U_GCB_V:
      return after == U_GCB_V || after == U_GCB_T;
    case U_GCB_LVT:
    case U_GCB_T:
      return after == U_GCB_T;
    default:
      return false;
  }
}

// What has to be remembered of a cluster to decide whether the next character belongs to it.
class ClusterState {
 public:
  explicit ClusterState(uint32_t first) { Take(first, ClusterBreak(first)); }

  // Takes `c` in, or returns false when a cluster ends before it. Rules of UAX #29, version 15.1.
  bool Extend(uint32_t c) {
    const int after = ClusterBreak(c);
    if (!Joins(c, after)) return false;
    Take(c, after);
    return true;
  }

 private:
  bool Joins(uint32_t c, int after) const {
    if (last_ == U_GCB_CR && after == U_GCB_LF) return true;           // GB3
    if (IsControlBreak(last_) || IsControlBreak(after)) return false;  // GB4, GB5
    if (HangulJoins(last_, after)) return true;                        // GB6–GB8
    if (after == U_GCB_EXTEND || after == U_GCB_ZWJ || after == U_GCB_SPACING_MARK) return true;
    if (last_ == U_GCB_PREPEND) return true;                         // GB9b
    if (linked_ && IsConjunctConsonant(c)) return true;              // GB9c
    if (pictographic_joiner_ && IsPictographic(c)) return true;      // GB11
    return after == U_GCB_REGIONAL_INDICATOR && regional_ % 2 == 1;  // GB12, GB13
  }

  void Take(uint32_t c, int cluster_break) {
    const bool extends = cluster_break == U_GCB_EXTEND || cluster_break == U_GCB_ZWJ;
    pictographic_joiner_ = pictographic_ && cluster_break == U_GCB_ZWJ;
    pictographic_ = IsPictographic(c) || (pictographic_ && cluster_break == U_GCB_EXTEND);
    if (IsConjunctConsonant(c)) {
      consonant_ = true;
      linked_ = false;
    } else if (consonant_ && IsConjunctLinker(c)) {
      linked_ = true;
    } else if (!extends || c == 0x200C) {
      consonant_ = linked_ = false;
    }
    regional_ = cluster_break == U_GCB_REGIONAL_INDICATOR ? regional_ + 1 : 0;
    last_ = cluster_break;
  }

  int last_ = U_GCB_OTHER;
  int regional_ = 0;
  bool pictographic_ = false;         // a pictograph and characters that extend it
  bool pictographic_joiner_ = false;  // the same and a joiner
  bool consonant_ = false;
  bool linked_ = false;  // a consonant and a linker
};

}  // namespace

uint16_t ComputeUnicodeFlags(uint32_t c) {
  const auto code = static_cast<UChar32>(c);
  uint16_t flags = 0;
  const bool old = HasOldNormalization(c);
  const bool starter = !old || u_getCombiningClass(code) == 0;
  const auto add = [&](bool condition, uint16_t flag) {
    if (condition) flags |= flag;
  };
  const auto safe = [&](UProperty check) {
    return starter && (!old || u_getIntPropertyValue(code, check) == UNORM_YES);
  };
  add(safe(UCHAR_NFC_QUICK_CHECK), kNfcSafe);
  add(safe(UCHAR_NFD_QUICK_CHECK), kNfdSafe);
  add(safe(UCHAR_NFKC_QUICK_CHECK), kNfkcSafe);
  add(safe(UCHAR_NFKD_QUICK_CHECK), kNfkdSafe);
  add(IsMark(c), kMark);
  add(IsPunctuation(c), kPunctuation);
  add(IsNumeric(c), kNumeric);
  add(u_hasBinaryProperty(code, UCHAR_WHITE_SPACE), kWhiteSpace);
  std::vector<uint32_t> lower;
  LowerCase(c, &lower);
  add(lower.size() != 1 || lower[0] != c, kHasLower);
  add(IsNmtChanged(c), kNmtChanged);
  add(IsWordChar(c), kWordChar);
  add(ClusterBreak(c) == U_GCB_OTHER && !IsPictographic(c) && !IsConjunctConsonant(c),
      kSimpleCluster);
  return flags;
}

const UnicodeTable& UnicodeTable::Get() {
  static const UnicodeTable* const table = new UnicodeTable();
  return *table;
}

UnicodeTable::UnicodeTable() {
  for (uint32_t c = 0; c < flags_.size(); ++c) flags_[c] = ComputeUnicodeFlags(c);
}

void AppendUtf8(uint32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c));
    return;
  }
  const size_t length = Utf8Length(c);
  const uint32_t lead = length == 2 ? 0xC0 : length == 3 ? 0xE0 : 0xF0;
  out->push_back(static_cast<char>(lead | (c >> (6 * (length - 1)))));
  for (size_t i = length - 1; i > 0; --i) {
    out->push_back(static_cast<char>(0x80 | ((c >> (6 * (i - 1))) & 0x3F)));
  }
}

uint8_t CombiningClass(uint32_t c) {
  if (c < 0x300) return 0;
  const uint8_t combining_class = u_getCombiningClass(static_cast<UChar32>(c));
  return combining_class != 0 && HasOldNormalization(c) ? combining_class : 0;
}

void Decompose(uint32_t c, bool compatibility, std::vector<uint32_t>* out) {
  UChar units[64];
  UErrorCode error = U_ZERO_ERROR;
  const int32_t length =
      c < 0xA0 ? -1
               : unorm2_getDecomposition(Normalizer(compatibility), static_cast<UChar32>(c), units,
                                         static_cast<int32_t>(std::size(units)), &error);
  if (length < 0 || U_FAILURE(error) || !HasOldNormalization(c)) {
    out->push_back(c);
    return;
  }
  for (int32_t i = 0; i < length;) {
    UChar32 part;
    U16_NEXT(units, i, length, part);
    out->push_back(static_cast<uint32_t>(part));
  }
}

uint32_t Compose(uint32_t a, uint32_t b) {
  const UChar32 composite =
      unorm2_composePair(Normalizer(false), static_cast<UChar32>(a), static_cast<UChar32>(b));
  if (composite < 0 || !HasOldNormalization(static_cast<uint32_t>(composite))) return 0;
  return static_cast<uint32_t>(composite);
}

void LowerCase(uint32_t c, std::vector<uint32_t>* out) {
  if (c == 0x130) {  // İ is the one letter whose lower case is two code points
    out->insert(out->end(), {0x69, 0x307});
    return;
  }
  for (const LowerRange& range : kNewLower) {
    if (c >= range.first && c <= range.last) {
      out->push_back(static_cast<uint32_t>(static_cast<int64_t>(c) + range.distance));
      return;
    }
  }
  out->push_back(static_cast<uint32_t>(u_tolower(static_cast<UChar32>(c))));
}

size_t ClusterEnd(std::string_view text, size_t at) {
  const UnicodeTable& table = UnicodeTable::Get();
  CodePoint c = DecodeAt(text, at);
  at += c.bytes;
  if (at == text.size()) return at;
  CodePoint next = DecodeAt(text, at);
  if (table.Has(c.value, kSimpleCluster) && table.Has(next.value, kSimpleCluster)) return at;
  ClusterState state(c.value);
  while (state.Extend(next.value)) {
    at += next.bytes;
    if (at == text.size()) break;
    next = DecodeAt(text, at);
  }
  return at;
}

}  // namespace starling::data
