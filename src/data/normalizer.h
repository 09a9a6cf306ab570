// The normalizers of a tokenizer.json. Each does exactly what the reference's member of that name
// does, to the text and to the spans. Immutable, thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "data/normalized_text.h"
#include "data/text_pattern.h"
#include "data/unicode_tables.h"

namespace starling::data {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void Apply(NormalizedText* text) const = 0;
  // True when the result of "a b" is the results of "a" and "b" with a space between, for all a
  // and b that begin and end with plain characters (word_chunker.h says which those are).
  virtual bool KeepsWordsApart() const { return true; }
};

using NormalizerChain = std::vector<std::unique_ptr<Normalizer>>;

std::unique_ptr<Normalizer> MakeNmt();
std::unique_ptr<Normalizer> MakeNormalizationForm(NormalizationForm form);
std::unique_ptr<Normalizer> MakeStripAccents();
std::unique_ptr<Normalizer> MakeLowercase();
std::unique_ptr<Normalizer> MakeStrip(bool left, bool right);
std::unique_ptr<Normalizer> MakePrepend(std::string content);
std::unique_ptr<Normalizer> MakeReplace(TextPattern pattern, std::string content);
// `charsmap`: SentencePiece's precompiled table, decoded from base64. DataLoss when it is cut short
// or holds invalid UTF-8.
absl::StatusOr<std::unique_ptr<Normalizer>> MakePrecompiled(std::string_view charsmap);

}  // namespace starling::data
