// The pre-tokenizers of a tokenizer.json: cut a normalized text into the pieces that the model sees
// one by one. Immutable, thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/normalized_text.h"
#include "data/text_pattern.h"

namespace starling::data {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  // Appends the pieces of `text`, none of them empty.
  virtual void Cut(NormalizedText text, std::vector<NormalizedText>* out) const = 0;
  // True when every space begins a new piece, spaces become ▁ and the first piece gets one too, so
  // that words are encoded independently of each other.
  virtual bool SeparatesWords() const { return false; }
  // Whether the result depends on where in the original the text starts.
  virtual bool NeedsOrigin() const { return false; }
  // Whether it treats single characters or patterns only, and so keeps separate pieces separate.
  virtual bool IsLocal() const { return true; }
};

using PreTokenizerChain = std::vector<std::unique_ptr<PreTokenizer>>;

enum class PrependScheme { kAlways, kFirst, kNever };

// `replacement`: one code point in UTF-8.
std::unique_ptr<PreTokenizer> MakeMetaspace(std::string replacement, PrependScheme scheme,
                                            bool split);
std::unique_ptr<PreTokenizer> MakeDigits(bool individual);
std::unique_ptr<PreTokenizer> MakePunctuation(DelimiterBehavior behavior);
std::unique_ptr<PreTokenizer> MakeWhitespaceSplit();
std::unique_ptr<PreTokenizer> MakeWhitespace();
std::unique_ptr<PreTokenizer> MakeSplit(TextPattern pattern, DelimiterBehavior behavior,
                                        bool invert);

}  // namespace starling::data
