// SentencePiece's trainer behind plain types. Its headers define names of absl differently from
// the absl library, so that only sentencepiece_bridge.cc may include them, and that file nothing of
// absl. One training at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace starling::data {

struct UnigramTraining {
  int32_t vocab_size = 0;
  std::string character_coverage;  // a number, written the same in every locale
  uint64_t max_sentences = 0;
  int32_t seed_size = 0;
  std::vector<std::string> special_pieces;  // ids 0, 1 (unknown), 2, …
  // The next normalized sentence; false at the end.
  std::function<bool(std::string*)> next;
};

struct UnigramVocabulary {
  std::vector<std::pair<std::string, double>> pieces;  // piece and score, by id
  std::string error;                                   // SentencePiece's words when it failed
};

UnigramVocabulary TrainUnigram(const UnigramTraining& training);

}  // namespace starling::data
