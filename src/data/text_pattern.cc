#include "data/text_pattern.h"

#include <unicode/regex.h>
#include <unicode/unistr.h>

#include <cstdlib>
#include <limits>

#include "absl/strings/str_cat.h"
#include "data/utf8.h"
#include "starling/base/status.h"

namespace starling::data {
namespace {

constexpr size_t kUnbounded = std::numeric_limits<size_t>::max();

absl::Status BadPattern(std::string_view expression, std::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrCat("regular expression '", std::string(expression), "' ", std::string(reason)));
}

// The construct in `expression` that Oniguruma and ICU read differently, or "".
std::string DifferingConstruct(std::string_view expression) {
  for (size_t i = 0; i + 1 < expression.size(); ++i) {
    if (expression[i] == '\\') {
      // \h is a hexadecimal digit there and a blank here; \R, \X, \K, \O, \y and named calls
      // differ.
      if (std::string_view("hHRXKOyYNgkZGvV").find(expression[i + 1]) != std::string_view::npos) {
        return std::string(expression.substr(i, 2));
      }
      ++i;
    } else if (expression.substr(i, 2) == "(?" && i + 2 < expression.size()) {
      const char kind = expression[i + 2];
      if (std::string_view(":=!<>").find(kind) == std::string_view::npos) {
        return std::string(expression.substr(i, 3));  // flags, comments, absent operators
      }
    } else if (expression.substr(i, 2) == "[[" || expression.substr(i, 2) == "&&") {
      return std::string(expression.substr(i, 2));
    }
  }
  return "";
}

// Reads "+", "{2,}", "{2}" or "{2,3}" at the end of `expression`; nothing is one.
bool ParseQuantifier(std::string_view quantifier, size_t* min, size_t* max) {
  *min = *max = 1;
  if (quantifier.empty()) return true;
  if (quantifier == "+") {
    *max = kUnbounded;
    return true;
  }
  if (quantifier.size() < 3 || quantifier.front() != '{' || quantifier.back() != '}') return false;
  const std::string inner(quantifier.substr(1, quantifier.size() - 2));
  const size_t comma = inner.find(',');
  const std::string low = inner.substr(0, comma);
  const std::string high = comma == std::string::npos ? low : inner.substr(comma + 1);
  const auto is_number = [](const std::string& s) {
    return !s.empty() && s.size() < 6 && s.find_first_not_of("0123456789") == std::string::npos;
  };
  if (!is_number(low) || (!high.empty() && !is_number(high))) return false;
  *min = static_cast<size_t>(std::atoi(low.c_str()));
  *max = high.empty() ? kUnbounded : static_cast<size_t>(std::atoi(high.c_str()));
  return *min >= 1 && *max >= *min;
}

}  // namespace

struct TextPattern::Icu {
  std::unique_ptr<icu::RegexPattern> pattern;
};

absl::StatusOr<TextPattern> TextPattern::Literal(std::string_view text) {
  if (text.empty()) return absl::InvalidArgumentError("an empty string to look for");
  TextPattern pattern;
  pattern.literal_ = std::string(text);
  return pattern;
}

absl::StatusOr<TextPattern> TextPattern::Regex(std::string_view expression) {
  TextPattern pattern;
  if (pattern.ParseSimple(expression)) return pattern;
  if (const std::string construct = DifferingConstruct(expression); !construct.empty()) {
    return BadPattern(expression, absl::StrCat("uses '", construct, "', which is not supported"));
  }
  UErrorCode error = U_ZERO_ERROR;
  UParseError where;
  auto icu = std::make_shared<Icu>();
  // As in Ruby: ^ and $ stand at every line, and only \n ends a line.
  icu->pattern.reset(
      icu::RegexPattern::compile(icu::UnicodeString::fromUTF8(icu::StringPiece(
                                     expression.data(), static_cast<int32_t>(expression.size()))),
                                 UREGEX_MULTILINE | UREGEX_UNIX_LINES, where, error));
  if (U_FAILURE(error)) {
    return BadPattern(expression, absl::StrCat("is not understood (", u_errorName(error), ")"));
  }
  const icu::UnicodeString nothing;
  const std::unique_ptr<icu::RegexMatcher> matcher(icu->pattern->matcher(nothing, error));
  if (U_FAILURE(error) || matcher->find()) {
    return BadPattern(expression, "matches the empty string, which is not supported");
  }
  pattern.kind_ = Kind::kIcu;
  pattern.icu_ = std::move(icu);
  return pattern;
}

bool TextPattern::ParseClass(std::string_view expression, size_t* at) {
  size_t i = 1;
  if (i < expression.size() && expression[i] == '^') {
    negated_ = true;
    ++i;
  }
  while (i < expression.size() && expression[i] != ']') {
    if (expression[i] == '[' || expression[i] == '\\' || expression[i] == '&') return false;
    const CodePoint first = DecodeAt(expression, i);
    i += first.bytes;
    if (first.value == '-') return false;
    Range range{first.value, first.value};
    if (i + 1 < expression.size() && expression[i] == '-' && expression[i + 1] != ']') {
      const CodePoint last = DecodeAt(expression, i + 1);
      if (last.value == '\\' || last.value == '[' || last.value < first.value) return false;
      range.last = last.value;
      i += 1 + last.bytes;
    }
    ranges_.push_back(range);
  }
  if (i >= expression.size() || ranges_.empty()) return false;
  *at = i + 1;
  return true;
}

bool TextPattern::ParseSimple(std::string_view expression) {
  if (expression.empty()) return false;
  TextPattern parsed;
  size_t at = 0;
  if (expression[0] == '[') {
    if (!parsed.ParseClass(expression, &at)) return false;
  } else {
    if (expression.find_first_of("\\.^$|?*+()[]{}") == std::string_view::npos) {
      literal_ = std::string(expression);
      return true;
    }
    const CodePoint c = DecodeAt(expression, 0);
    if (std::string_view("\\.^$|?*+()[]{}").find(expression[0]) != std::string_view::npos) {
      return false;
    }
    parsed.ranges_.push_back({c.value, c.value});
    at = c.bytes;
  }
  if (!ParseQuantifier(expression.substr(at), &parsed.min_run_, &parsed.max_run_)) return false;
  parsed.kind_ = Kind::kRuns;
  *this = parsed;
  return true;
}

bool TextPattern::InClass(uint32_t c) const {
  for (const Range& range : ranges_) {
    if (c >= range.first && c <= range.last) return !negated_;
  }
  return negated_;
}

bool TextPattern::SparesSingleSpaces() const {
  if (kind_ == Kind::kLiteral) return literal_.find(' ') == std::string::npos;
  if (kind_ == Kind::kIcu) return false;
  if (!InClass(' ')) return true;
  return !negated_ && ranges_.size() == 1 && ranges_[0].first == ' ' && ranges_[0].last == ' ' &&
         min_run_ >= 2;
}

void TextPattern::FindMatches(std::string_view text, std::vector<Match>* out) const {
  out->clear();
  switch (kind_) {
    case Kind::kLiteral:
      return FindLiteral(text, out);
    case Kind::kRuns:
      return FindRuns(text, out);
    case Kind::kIcu:
      return FindIcu(text, out);
  }
}

void TextPattern::FindLiteral(std::string_view text, std::vector<Match>* out) const {
  size_t last = 0;
  for (size_t at = text.find(literal_); at != std::string_view::npos;
       at = text.find(literal_, last)) {
    if (last < at) out->push_back({last, at, false});
    last = at + literal_.size();
    out->push_back({at, last, true});
  }
  if (last < text.size()) out->push_back({last, text.size(), false});
}

void TextPattern::FindRuns(std::string_view text, std::vector<Match>* out) const {
  size_t last = 0;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    size_t run = 0;
    while (end < text.size() && run < max_run_) {
      const CodePoint c = DecodeAt(text, end);
      if (!InClass(c.value)) break;
      end += c.bytes;
      ++run;
    }
    if (run < min_run_) {
      // A run that is too short cannot hold a match that starts later in it either.
      i = run == 0 ? i + DecodeAt(text, i).bytes : end;
      continue;
    }
    if (last < i) out->push_back({last, i, false});
    out->push_back({i, end, true});
    last = i = end;
  }
  if (last < text.size()) out->push_back({last, text.size(), false});
}

void TextPattern::FindIcu(std::string_view text, std::vector<Match>* out) const {
  UErrorCode error = U_ZERO_ERROR;
  const auto wide = icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
  const std::unique_ptr<icu::RegexMatcher> matcher(icu_->pattern->matcher(wide, error));
  size_t last = 0;
  size_t byte = 0;
  int32_t unit = 0;
  const auto to_byte = [&](int32_t target) {  // positions only grow
    while (unit < target) {
      const size_t bytes = DecodeAt(text, byte).bytes;
      byte += bytes;
      unit += bytes == 4 ? 2 : 1;
    }
    return byte;
  };
  while (U_SUCCESS(error) && matcher->find(error)) {
    const size_t begin = to_byte(matcher->start(error));
    const size_t end = to_byte(matcher->end(error));
    if (begin == end) continue;
    if (last < begin) out->push_back({last, begin, false});
    out->push_back({begin, end, true});
    last = end;
  }
  if (last < text.size()) out->push_back({last, text.size(), false});
}

}  // namespace starling::data
