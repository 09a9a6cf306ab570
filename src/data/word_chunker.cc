#include "data/word_chunker.h"

#include "data/unicode_tables.h"

namespace starling::data {
namespace {

// Characters from here on are not looked at: Latin, Greek, Cyrillic, … and common punctuation lie
// below. Others are encoded too, only slower.
constexpr uint32_t kFirst = 0x21;
constexpr uint32_t kEnd = 0x530;
constexpr uint32_t kFirstSymbol = 0x2010;
constexpr uint32_t kEndSymbol = 0x2122;

constexpr uint16_t kBlank = kWhiteSpace | kNmtChanged;

bool StandsAlone(uint32_t c) {
  const UnicodeTable& table = UnicodeTable::Get();
  return !table.Has(c, kMark | kBlank) && table.Has(c, kSimpleCluster);
}

bool IsGood(std::string_view text) {
  if (text.empty() || !StandsAlone(DecodeAt(text, 0).value)) return false;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = DecodeAt(text, i);
    if (UnicodeTable::Get().Has(c.value, kBlank)) return false;
    i += c.bytes;
  }
  return true;
}

bool StaysGood(uint32_t c, const NormalizerChain& normalizers) {
  std::string utf8;
  AppendUtf8(c, &utf8);
  NormalizedText text(utf8, 0, /*track=*/false);
  if (!IsGood(text.text())) return false;
  for (const auto& normalizer : normalizers) {
    normalizer->Apply(&text);
    if (!IsGood(text.text())) return false;
  }
  return true;
}

}  // namespace

WordChunker::WordChunker(const NormalizerChain& normalizers,
                         const PreTokenizerChain& pre_tokenizers) {
  for (const auto& normalizer : normalizers) {
    if (!normalizer->KeepsWordsApart()) return;
  }
  if (pre_tokenizers.empty() || !pre_tokenizers[0]->SeparatesWords()) return;
  for (size_t i = 1; i < pre_tokenizers.size(); ++i) {
    if (!pre_tokenizers[i]->IsLocal()) return;
  }
  plain_.assign(kEndSymbol, 0);
  for (uint32_t c = kFirst; c < kEndSymbol; ++c) {
    if (c == kEnd) c = kFirstSymbol;
    plain_[c] = StaysGood(c, normalizers) ? 1 : 0;
  }
}

bool WordChunker::IsFit(std::string_view chunk, std::string_view normalized) const {
  if (chunk.empty()) return true;
  const UnicodeTable& table = UnicodeTable::Get();
  if (PlainAt(chunk, 0) &&
      (normalized.empty() || table.Has(DecodeAt(normalized, 0).value, kBlank))) {
    return false;
  }
  if (!PlainAt(chunk, PreviousStart(chunk, chunk.size()))) return true;
  return !normalized.empty() &&
         !table.Has(DecodeAt(normalized, PreviousStart(normalized, normalized.size())).value,
                    kBlank);
}

}  // namespace starling::data
