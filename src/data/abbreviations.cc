#include "data/abbreviations.h"

#include <algorithm>
#include <array>
#include <string>

namespace starling::data {
namespace {

// Pairs are written with one space between their parts. Every array is in byte order.
constexpr auto kHeadPairs = std::to_array<std::string_view>(
    {"и о", "к н", "к п", "к т", "л д", "п н", "т е", "т к", "т н"});

constexpr auto kOtherPairs = std::to_array<std::string_view>(
    {"a m", "p m", "ед ч", "з д", "л с", "мн ч", "н э", "повел накл", "р х", "с г", "с ш", "т д",
     "т п", "у е", "ч т"});

constexpr auto kHeads = std::to_array<std::string_view>(
    {"bd",      "chap", "dr",   "mr",   "mrs",  "ms",    "no",   "ps",    "upd",      "vs",
     "а",       "абз",  "акад", "англ", "араб", "арх",   "ауд",  "букв",  "венг",     "внутр",
     "г",       "гл",   "гор",  "гос",  "гр",   "греч",  "д",    "дифф",  "домовлад", "доп",
     "евр",     "зав",  "зам",  "им",   "исп",  "итал",  "к",    "каб",   "кат",      "кит",
     "кн",      "ком",  "комн", "корп", "корр", "лат",   "латв", "лит",   "напр",     "нач",
     "нем",     "о",    "обл",  "обр",  "оз",   "ок",    "откр", "отм",   "оф",       "п",
     "пер",     "пл",   "пол",  "пом",  "пос",  "пп",    "пр",   "просп", "проф",     "пс",
     "пт",      "р",    "ред",  "рп",   "рус",  "русск", "с",    "сб",    "св",       "слав",
     "словацк", "см",   "ср",   "ст",   "стр",  "т",     "тел",  "тов",   "трад",     "укр",
     "ул",      "ум",   "физ",  "фр",   "х",    "хорв",  "ч",    "чл",    "чч",       "ш",
     "эт",      "юр",   "яп"});

constexpr auto kOthers = std::to_array<std::string_view>(
    {"al",  "co",  "corp", "ed",   "inc",  "барр",  "в",    "вв",   "г",   "га",
     "гг",  "дес", "дол",  "долл", "др",   "изд",   "искл", "кв",   "км",  "коп",
     "куб", "мин", "млн",  "млрд", "прим", "проц",  "р",    "рис",  "руб", "с",
     "сек", "см",  "сокр", "стр",  "тыс",  "устар", "час",  "шутл", "яз"});

constexpr auto kInitials = std::to_array<std::string_view>({"ed", "вс", "дж"});

static_assert(std::is_sorted(kHeadPairs.begin(), kHeadPairs.end()));
static_assert(std::is_sorted(kOtherPairs.begin(), kOtherPairs.end()));
static_assert(std::is_sorted(kHeads.begin(), kHeads.end()));
static_assert(std::is_sorted(kOthers.begin(), kOthers.end()));

template <typename Array>
bool Contains(const Array& sorted, std::string_view word) {
  return std::binary_search(sorted.begin(), sorted.end(), word);
}

std::string Pair(std::string_view left, std::string_view right) {
  return std::string(left).append(" ").append(right);
}

}  // namespace

bool IsHeadPair(std::string_view left, std::string_view right) {
  return Contains(kHeadPairs, Pair(left, right));
}
bool IsKnownPair(std::string_view left, std::string_view right) {
  const std::string pair = Pair(left, right);
  return Contains(kHeadPairs, pair) || Contains(kOtherPairs, pair);
}
bool IsHeadAbbreviation(std::string_view word) { return Contains(kHeads, word); }
bool IsKnownAbbreviation(std::string_view word) {
  return Contains(kHeads, word) || Contains(kOthers, word);
}
bool IsInitials(std::string_view word) { return Contains(kInitials, word); }

}  // namespace starling::data
