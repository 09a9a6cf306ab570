#include "starling/data/masking.h"

#include <unicode/uchar.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "data/utf8.h"
#include "starling/base/log.h"

namespace starling::data {
namespace {

constexpr std::string_view kWordMark = "▁";  // U+2581
constexpr std::string_view kReferencePunctuation = "!\"#$%&()*+,-./:;?@[\\]^_`{|}~";

PieceKind ReferenceKind(std::string_view piece) {
  const bool starts = piece.starts_with(kWordMark) || piece.starts_with('<') ||
                      (piece.size() == 1 && kReferencePunctuation.find(piece[0]) != piece.npos);
  return starts ? PieceKind::kStarts : PieceKind::kContinues;
}

bool IsPunctuationOrSymbol(uint32_t c) {
  constexpr uint32_t kApostrophe = 0x2019;
  if (c == '\'' || c == kApostrophe) return false;
  constexpr uint32_t kClasses = U_GC_P_MASK | U_GC_S_MASK;
  return (U_GET_GC_MASK(static_cast<UChar32>(c)) & kClasses) != 0;
}

PieceKind CorrectedKind(std::string_view piece) {
  const bool marked = piece.starts_with(kWordMark);
  if (marked) piece.remove_prefix(kWordMark.size());
  bool alone = !piece.empty();
  for (size_t i = 0; i < piece.size();) {
    const CodePoint c = DecodeAt(piece, i);
    alone = alone && IsPunctuationOrSymbol(c.value);
    i += c.bytes;
  }
  if (alone) return PieceKind::kStandsAlone;
  return marked || piece.starts_with('<') ? PieceKind::kStarts : PieceKind::kContinues;
}

}  // namespace

std::vector<PieceKind> StartPieceTable(std::span<const std::string> pieces, WordGroupRule rule) {
  std::vector<PieceKind> kinds;
  kinds.reserve(pieces.size());
  for (const std::string& piece : pieces) {
    kinds.push_back(rule == WordGroupRule::kReference ? ReferenceKind(piece)
                                                      : CorrectedKind(piece));
  }
  return kinds;
}

std::vector<std::vector<uint32_t>> WordGroups(std::span<const int32_t> ids,
                                              std::span<const PieceKind> kinds,
                                              const SpecialIds& special) {
  std::vector<std::vector<uint32_t>> groups;
  bool open = false;  // whether the next piece may join the last group
  for (uint32_t position = 0; position < ids.size(); ++position) {
    const int32_t id = ids[position];
    if (id == special.cls || id == special.sep || id == special.pad) continue;
    STARLING_CHECK(id >= 0 && static_cast<size_t>(id) < kinds.size()) << "token id " << id;
    const PieceKind kind = kinds[id];
    if (!open || kind != PieceKind::kContinues) groups.emplace_back();
    groups.back().push_back(position);
    open = kind != PieceKind::kStandsAlone;
  }
  return groups;
}

uint64_t TokensToPredict(uint64_t n, double probability) {
  const double share = probability * static_cast<double>(n);
  // To the nearest whole number, halves to the even one, whatever the rounding mode is.
  double rounded = std::floor(share);
  const double rest = share - rounded;
  if (rest > 0.5 || (rest == 0.5 && std::fmod(rounded, 2.0) != 0.0)) rounded += 1.0;
  return std::min(n, std::max<uint64_t>(1, static_cast<uint64_t>(rounded)));
}

std::vector<uint32_t> ChooseTokens(std::vector<std::vector<uint32_t>> groups, uint64_t k_tokens,
                                   const std::function<uint32_t(uint32_t)>& shuffle_draw) {
  for (size_t k = groups.size(); k-- > 1;) {
    const uint32_t draw = shuffle_draw(static_cast<uint32_t>(k));
    STARLING_CHECK(draw <= k) << "shuffle draw " << draw << " for group " << k;
    std::swap(groups[k], groups[draw]);
  }
  std::vector<uint32_t> chosen;
  for (const std::vector<uint32_t>& group : groups) {
    if (chosen.size() >= k_tokens) break;
    if (chosen.size() + group.size() > k_tokens) continue;
    chosen.insert(chosen.end(), group.begin(), group.end());
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<int64_t> ApplyMask(std::span<const uint32_t> chosen,
                               std::span<const uint8_t> special_mask,
                               const std::function<ReplacementDraws(uint32_t)>& draws,
                               int32_t mask_id, std::vector<int32_t>* ids) {
  std::vector<int64_t> labels(ids->size(), kIgnoredLabel);
  for (const uint32_t position : chosen) {
    if (special_mask[position] != 0) continue;
    int32_t& id = (*ids)[position];
    labels[position] = id;
    const ReplacementDraws draw = draws(position);
    if (draw.to_mask) {
      id = mask_id;
    } else if (draw.to_random) {
      id = draw.random_id;
    }
  }
  return labels;
}

}  // namespace starling::data
