// A pattern of a tokenizer.json (`{"String": …}` or `{"Regex": …}`): finds its matches in a text.
// Literals, character classes and their repetitions are matched here; other expressions go to
// ICU's engine, in the dialect of the reference's (Oniguruma, Ruby syntax) as far as both agree:
// what they read differently is refused. Immutable, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "data/normalized_text.h"

namespace starling::data {

class TextPattern {
 public:
  // Matches `text` itself. InvalidArgument when it is empty.
  static absl::StatusOr<TextPattern> Literal(std::string_view text);
  // InvalidArgument with the expression and the reason when it cannot be read as the reference
  // would, or when it matches nothing at all ("").
  static absl::StatusOr<TextPattern> Regex(std::string_view expression);

  // Leftmost matches and the stretches between them, in order, covering `text`.
  void FindMatches(std::string_view text, std::vector<Match>* out) const;

  // True when no match can contain a single space between two other characters.
  bool SparesSingleSpaces() const;

 private:
  struct Icu;
  struct Range {
    uint32_t first;
    uint32_t last;
  };

  bool ParseSimple(std::string_view expression);
  bool ParseClass(std::string_view expression, size_t* at);
  bool InClass(uint32_t c) const;
  void FindLiteral(std::string_view text, std::vector<Match>* out) const;
  void FindRuns(std::string_view text, std::vector<Match>* out) const;
  void FindIcu(std::string_view text, std::vector<Match>* out) const;

  enum class Kind { kLiteral, kRuns, kIcu };
  Kind kind_ = Kind::kLiteral;
  std::string literal_;
  std::vector<Range> ranges_;  // of kRuns: characters of the class, or, negated, the others
  bool negated_ = false;
  size_t min_run_ = 1;
  size_t max_run_ = 1;
  std::shared_ptr<const Icu> icu_;
};

}  // namespace starling::data
