#include "data/pre_tokenizer.h"

#include <utility>

#include "data/unicode_tables.h"
#include "data/utf8.h"

namespace starling::data {
namespace {

class Metaspace : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)),
        code_(DecodeAt(replacement_, 0).value),
        scheme_(scheme),
        split_(split) {}

  void Cut(NormalizedText text, std::vector<NormalizedText>* out) const override {
    std::vector<Match> matches;
    if (text.text().find(' ') != std::string::npos) {
      MatchCharacters(
          text.text(), [](uint32_t c) { return c == ' '; }, &matches);
      text.Replace(matches, replacement_);
    }
    const bool starts = text.text().compare(0, replacement_.size(), replacement_) == 0;
    const bool wanted = scheme_ == PrependScheme::kAlways ||
                        (scheme_ == PrependScheme::kFirst && text.origin() == 0);
    if (!starts && wanted) text.Prepend(replacement_);
    if (!split_) {
      if (!text.empty()) out->push_back(std::move(text));
      return;
    }
    MatchCharacters(
        text.text(), [this](uint32_t c) { return c == code_; }, &matches);
    text.Split(matches, DelimiterBehavior::kMergedWithNext, out);
  }

  bool SeparatesWords() const override {
    return split_ && scheme_ != PrependScheme::kNever && code_ == 0x2581;
  }
  bool NeedsOrigin() const override { return scheme_ == PrependScheme::kFirst; }
  bool IsLocal() const override { return false; }

 private:
  std::string replacement_;
  uint32_t code_;
  PrependScheme scheme_;
  bool split_;
};

// Cuts at every character of a class.
class CharacterSplit : public PreTokenizer {
 public:
  CharacterSplit(uint16_t flag, DelimiterBehavior behavior) : flag_(flag), behavior_(behavior) {}

  void Cut(NormalizedText text, std::vector<NormalizedText>* out) const override {
    const UnicodeTable& table = UnicodeTable::Get();
    std::vector<Match> matches;
    MatchCharacters(
        text.text(), [&](uint32_t c) { return table.Has(c, flag_); }, &matches);
    if (matches.size() == 1 && !matches[0].is_match) {
      out->push_back(std::move(text));
    } else {
      text.Split(matches, behavior_, out);
    }
  }

 private:
  uint16_t flag_;
  DelimiterBehavior behavior_;
};

// Runs of word characters and runs of what is neither word nor space; spaces go away.
class Whitespace : public PreTokenizer {
 public:
  void Cut(NormalizedText text, std::vector<NormalizedText>* out) const override {
    const UnicodeTable& table = UnicodeTable::Get();
    std::vector<Match> matches;
    int last_kind = -1;
    for (size_t i = 0; i < text.text().size();) {
      const CodePoint c = DecodeAt(text.text(), i);
      const int kind = table.Has(c.value, kWordChar) ? 0 : table.Has(c.value, kWhiteSpace) ? 1 : 2;
      if (kind != last_kind) matches.push_back({i, i, kind == 1});
      last_kind = kind;
      i += c.bytes;
      matches.back().end = i;
    }
    text.Split(matches, DelimiterBehavior::kRemoved, out);
  }
};

class PatternSplit : public PreTokenizer {
 public:
  PatternSplit(TextPattern pattern, DelimiterBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void Cut(NormalizedText text, std::vector<NormalizedText>* out) const override {
    std::vector<Match> matches;
    pattern_.FindMatches(text.text(), &matches);
    if (invert_) {
      for (Match& match : matches) match.is_match = !match.is_match;
    }
    text.Split(matches, behavior_, out);
  }

 private:
  TextPattern pattern_;
  DelimiterBehavior behavior_;
  bool invert_;
};

}  // namespace

std::unique_ptr<PreTokenizer> MakeMetaspace(std::string replacement, PrependScheme scheme,
                                            bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), scheme, split);
}

std::unique_ptr<PreTokenizer> MakeDigits(bool individual) {
  return std::make_unique<CharacterSplit>(
      kNumeric, individual ? DelimiterBehavior::kIsolated : DelimiterBehavior::kContiguous);
}

std::unique_ptr<PreTokenizer> MakePunctuation(DelimiterBehavior behavior) {
  return std::make_unique<CharacterSplit>(kPunctuation, behavior);
}

std::unique_ptr<PreTokenizer> MakeWhitespaceSplit() {
  return std::make_unique<CharacterSplit>(kWhiteSpace, DelimiterBehavior::kRemoved);
}

std::unique_ptr<PreTokenizer> MakeWhitespace() { return std::make_unique<Whitespace>(); }

std::unique_ptr<PreTokenizer> MakeSplit(TextPattern pattern, DelimiterBehavior behavior,
                                        bool invert) {
  return std::make_unique<PatternSplit>(std::move(pattern), behavior, invert);
}

}  // namespace starling::data
