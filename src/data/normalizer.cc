#include "data/normalizer.h"

#include <algorithm>
#include <utility>

#include "data/utf8.h"

namespace starling::data {
namespace {

// Whether every character of `text` has `flags`; `wanted` false: whether none has.
bool AllHave(std::string_view text, uint16_t flag, bool wanted) {
  const UnicodeTable& table = UnicodeTable::Get();
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = DecodeAt(text, i);
    if (table.Has(c.value, flag) != wanted) return false;
    i += c.bytes;
  }
  return true;
}

class Nmt : public Normalizer {
 public:
  void Apply(NormalizedText* text) const override {
    if (AllHave(text->text(), kNmtChanged, false)) return;
    text->Filter([](uint32_t c) { return !IsRemoved(c); });
    std::vector<CharChange> to;
    for (size_t i = 0; i < text->text().size();) {
      const CodePoint c = DecodeAt(text->text(), i);
      to.push_back({UnicodeTable::Get().Has(c.value, kNmtChanged) ? ' ' : c.value, 0});
      i += c.bytes;
    }
    text->Transform(to, 0);
  }

 private:
  static bool IsRemoved(uint32_t c) {
    return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
           c == 0x8F || c == 0x9F;
  }
};

struct Decomposed {
  uint32_t c;
  int32_t change;
  uint8_t combining_class;
};

class Form : public Normalizer {
 public:
  explicit Form(NormalizationForm form) : form_(form) {}

  void Apply(NormalizedText* text) const override {
    if (AllHave(text->text(), SafeFlag(), true)) return;
    std::vector<Decomposed> characters = DecomposeAll(text->text());
    std::vector<CharChange> to;
    to.reserve(characters.size());
    if (form_ == NormalizationForm::kNfc || form_ == NormalizationForm::kNfkc) {
      ComposeAll(characters, &to);
    } else {
      for (const Decomposed& d : characters) to.push_back({d.c, d.change});
    }
    text->Transform(to, 0);
  }

 private:
  uint16_t SafeFlag() const {
    switch (form_) {
      case NormalizationForm::kNfc:
        return kNfcSafe;
      case NormalizationForm::kNfd:
        return kNfdSafe;
      case NormalizationForm::kNfkc:
        return kNfkcSafe;
      case NormalizationForm::kNfkd:
        return kNfkdSafe;
    }
    return 0;
  }

  // The decomposition in canonical order.
  std::vector<Decomposed> DecomposeAll(std::string_view text) const {
    const bool compatibility =
        form_ == NormalizationForm::kNfkc || form_ == NormalizationForm::kNfkd;
    std::vector<Decomposed> out;
    std::vector<uint32_t> parts;
    size_t run = 0;  // first of the marks that wait to be put in order
    const auto sort_run = [&] {
      std::stable_sort(out.begin() + static_cast<ptrdiff_t>(run), out.end(),
                       [](const Decomposed& a, const Decomposed& b) {
                         return a.combining_class < b.combining_class;
                       });
    };
    for (size_t i = 0; i < text.size();) {
      const CodePoint c = DecodeAt(text, i);
      i += c.bytes;
      parts.clear();
      Decompose(c.value, compatibility, &parts);
      for (size_t p = 0; p < parts.size(); ++p) {
        const uint8_t combining_class = CombiningClass(parts[p]);
        if (combining_class == 0) sort_run();
        out.push_back({parts[p], p == 0 ? 0 : 1, combining_class});
        if (combining_class == 0) run = out.size();
      }
    }
    sort_run();
    return out;
  }

  static void ComposeAll(const std::vector<Decomposed>& in, std::vector<CharChange>* out) {
    bool has_starter = false;
    size_t starter = 0;   // where the last starter stands in *out
    int last_class = -1;  // class of the last mark that stayed after it; -1: none
    for (const Decomposed& d : in) {
      if (has_starter && last_class < static_cast<int>(d.combining_class)) {
        if (const uint32_t composite = starling::data::Compose((*out)[starter].c, d.c)) {
          (*out)[starter].c = composite;
          (*out)[starter].change += d.change - 1;
          continue;
        }
      }
      if (d.combining_class == 0) {
        has_starter = true;
        starter = out->size();
        last_class = -1;
      } else if (has_starter) {
        last_class = d.combining_class;
      }
      out->push_back({d.c, d.change});
    }
  }

  NormalizationForm form_;
};

class StripAccents : public Normalizer {
 public:
  void Apply(NormalizedText* text) const override {
    if (AllHave(text->text(), kMark, false)) return;
    text->Filter([](uint32_t c) { return !UnicodeTable::Get().Has(c, kMark); });
  }
};

class Lowercase : public Normalizer {
 public:
  void Apply(NormalizedText* text) const override {
    if (AllHave(text->text(), kHasLower, false)) return;
    std::vector<CharChange> to;
    std::vector<uint32_t> lower;
    for (size_t i = 0; i < text->text().size();) {
      const CodePoint c = DecodeAt(text->text(), i);
      i += c.bytes;
      lower.clear();
      LowerCase(c.value, &lower);
      for (size_t k = 0; k < lower.size(); ++k) to.push_back({lower[k], k == 0 ? 0 : 1});
    }
    text->Transform(to, 0);
  }
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void Apply(NormalizedText* text) const override { text->Strip(left_, right_); }
  bool KeepsWordsApart() const override { return false; }

 private:
  bool left_;
  bool right_;
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string content) : content_(std::move(content)) {}
  void Apply(NormalizedText* text) const override { text->Prepend(content_); }
  bool KeepsWordsApart() const override { return false; }

 private:
  std::string content_;
};

class Replace : public Normalizer {
 public:
  Replace(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void Apply(NormalizedText* text) const override {
    std::vector<Match> matches;
    pattern_.FindMatches(text->text(), &matches);
    for (const Match& match : matches) {
      if (match.is_match) return text->Replace(matches, content_);
    }
  }

  // A replacement by something invisible could make two words one, or begin a word with a mark.
  bool KeepsWordsApart() const override {
    if (!pattern_.SparesSingleSpaces()) return false;
    std::vector<Match> matches;
    pattern_.FindMatches("  ", &matches);
    if (content_ == " " && matches.size() == 1 && matches[0].is_match) return true;
    const uint16_t unfit = kMark | kWhiteSpace | kNmtChanged;
    return !content_.empty() && AllHave(content_, unfit, false) &&
           AllHave(content_, kSimpleCluster, true);
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

}  // namespace

std::unique_ptr<Normalizer> MakeNmt() { return std::make_unique<Nmt>(); }

std::unique_ptr<Normalizer> MakeNormalizationForm(NormalizationForm form) {
  return std::make_unique<Form>(form);
}

std::unique_ptr<Normalizer> MakeStripAccents() { return std::make_unique<StripAccents>(); }

std::unique_ptr<Normalizer> MakeLowercase() { return std::make_unique<Lowercase>(); }

std::unique_ptr<Normalizer> MakeStrip(bool left, bool right) {
  return std::make_unique<Strip>(left, right);
}

std::unique_ptr<Normalizer> MakePrepend(std::string content) {
  return std::make_unique<Prepend>(std::move(content));
}

std::unique_ptr<Normalizer> MakeReplace(TextPattern pattern, std::string content) {
  return std::make_unique<Replace>(std::move(pattern), std::move(content));
}

}  // namespace starling::data
