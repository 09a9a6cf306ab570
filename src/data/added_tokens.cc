#include "data/added_tokens.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/unicode_tables.h"
#include "data/utf8.h"

namespace starling::data {
namespace {

constexpr size_t kMaxTokenBytes = 8192;

bool HasAt(std::string_view text, size_t at, uint16_t flag) {
  return UnicodeTable::Get().Has(DecodeAt(text, at).value, flag);
}

bool TouchesWord(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && HasAt(text, PreviousStart(text, begin), kWordChar)) return true;
  return end < text.size() && HasAt(text, end, kWordChar);
}

size_t SkipSpacesLeft(std::string_view text, size_t at) {
  while (at > 0) {
    const size_t start = PreviousStart(text, at);
    if (!HasAt(text, start, kWhiteSpace)) break;
    at = start;
  }
  return at;
}

size_t SkipSpacesRight(std::string_view text, size_t at) {
  while (at < text.size() && HasAt(text, at, kWhiteSpace)) at += DecodeAt(text, at).bytes;
  return at;
}

}  // namespace

absl::StatusOr<AddedTokenMatcher> AddedTokenMatcher::Make(
    std::vector<AddedToken> tokens, const std::vector<std::string>& patterns) {
  AddedTokenMatcher matcher;
  std::map<std::string_view, int32_t> indices;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (patterns[i].empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("added token '", tokens[i].content,
                       "' is empty once normalized; set normalized to false"));
    }
    if (patterns[i].size() > kMaxTokenBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("added token ", i, " is longer than ", kMaxTokenBytes, " bytes"));
    }
    indices.emplace(patterns[i], static_cast<int32_t>(i));
    matcher.first_bytes_[static_cast<uint8_t>(patterns[i][0])] = true;
  }
  matcher.trie_ = PieceTrie({indices.begin(), indices.end()});
  matcher.tokens_ = std::move(tokens);
  return matcher;
}

bool AddedTokenMatcher::FindNext(std::string_view text, size_t from, size_t* begin, size_t* end,
                                 size_t* index) const {
  for (size_t at = from; at < text.size(); ++at) {
    if (!first_bytes_[static_cast<uint8_t>(text[at])]) continue;
    bool found = false;
    trie_.VisitPrefixes(text.substr(at), [&](size_t length, int32_t token) {
      found = true;
      *begin = at;
      *end = at + length;
      *index = static_cast<size_t>(token);
    });
    if (found) return true;
  }
  return false;
}

bool AddedTokenMatcher::OccursIn(std::string_view text) const {
  size_t begin, end, index;
  return !tokens_.empty() && FindNext(text, 0, &begin, &end, &index);
}

void AddedTokenMatcher::Cut(std::string_view text, std::vector<AddedTokenPart>* out) const {
  out->clear();
  size_t last = 0;
  size_t from = 0;
  size_t begin, end, index;
  while (!tokens_.empty() && FindNext(text, from, &begin, &end, &index)) {
    from = end;
    const AddedToken& token = tokens_[index];
    if (token.single_word && TouchesWord(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(SkipSpacesLeft(text, begin), last);
    if (token.rstrip) end = SkipSpacesRight(text, end);
    if (last < begin) out->push_back({-1, last, begin});
    out->push_back({token.id, begin, end});
    last = end;
  }
  if (last < text.size()) out->push_back({-1, last, text.size()});
}

}  // namespace starling::data
