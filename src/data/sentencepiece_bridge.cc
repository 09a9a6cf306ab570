#include "data/sentencepiece_bridge.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <unordered_map>

namespace starling::data {
namespace {

// Sums of floating-point numbers depend on it: a constant, whatever the machine has.
constexpr const char* kThreads = "4";
// Longest sentence in bytes; callers cut longer ones.
constexpr const char* kMaxSentenceBytes = "16384";

class Iterator : public sentencepiece::SentenceIterator {
 public:
  explicit Iterator(const std::function<bool(std::string*)>& next) : next_(next) { Next(); }
  bool done() const override { return done_; }
  void Next() override { done_ = !next_(&sentence_); }
  const std::string& value() const override { return sentence_; }
  sentencepiece::util::Status status() const override { return sentencepiece::util::Status(); }

 private:
  const std::function<bool(std::string*)>& next_;
  std::string sentence_;
  bool done_ = false;
};

std::unordered_map<std::string, std::string> Arguments(const UnigramTraining& training) {
  std::string control;
  for (size_t i = 2; i < training.special_pieces.size(); ++i) {
    control += (i == 2 ? "" : ",") + training.special_pieces[i];
  }
  return {{"model_type", "unigram"},
          {"vocab_size", std::to_string(training.vocab_size)},
          {"character_coverage", training.character_coverage},
          {"input_sentence_size", std::to_string(training.max_sentences)},
          {"shuffle_input_sentence", "true"},
          {"seed_sentencepiece_size", std::to_string(training.seed_size)},
          {"max_sentence_length", kMaxSentenceBytes},
          {"num_threads", kThreads},
          {"normalization_rule_name", "identity"},
          {"pad_id", "0"},
          {"unk_id", "1"},
          {"bos_id", "-1"},
          {"eos_id", "-1"},
          {"pad_piece", training.special_pieces[0]},
          {"unk_piece", training.special_pieces[1]},
          {"control_symbols", control},
          {"minloglevel", "2"}};
}

}  // namespace

UnigramVocabulary TrainUnigram(const UnigramTraining& training) {
  UnigramVocabulary vocabulary;
  Iterator sentences(training.next);
  std::string model;
  auto status = sentencepiece::SentencePieceTrainer::Train(Arguments(training), &sentences, &model);
  sentencepiece::SentencePieceProcessor processor;
  if (status.ok()) status = processor.LoadFromSerializedProto(model);
  if (!status.ok()) {
    vocabulary.error = status.ToString();
    return vocabulary;
  }
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    vocabulary.pieces.emplace_back(processor.IdToPiece(id), processor.GetScore(id));
  }
  return vocabulary;
}

}  // namespace starling::data
