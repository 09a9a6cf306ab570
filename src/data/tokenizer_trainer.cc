#include "starling/data/tokenizer_trainer.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/normalizer.h"
#include "data/sentencepiece_bridge.h"
#include "data/utf8.h"
#include "starling/base/fs.h"
#include "starling/base/status.h"
#include "starling/data/text_reader.h"

namespace starling::data {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kSpecialPieces[] = {"<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"};
constexpr int32_t kClsId = 2;
constexpr int32_t kSepId = 3;
constexpr int32_t kMaskId = 4;
constexpr size_t kMaxSentenceBytes = 4096;
constexpr uint64_t kProgressEvery = 10'000;
// What makes a piece such as "9," practically unused, so that numbers stay apart from the comma
// behind them, as in the conversion of ALBERT's tokenizer.
constexpr double kDigitCommaPenalty = 100.0;

absl::StatusOr<NormalizerChain> MakeChain(bool lowercase) {
  NormalizerChain chain;
  chain.push_back(MakeNmt());
  chain.push_back(MakeNormalizationForm(NormalizationForm::kNfkc));
  if (lowercase) chain.push_back(MakeLowercase());
  STARLING_ASSIGN_OR_RETURN(TextPattern spaces, TextPattern::Regex(" {2,}"));
  chain.push_back(MakeReplace(std::move(spaces), " "));
  return chain;
}

// Feeds a source to the trainer: normalized, cut at spaces where too long, empty ones left out.
class Feeder {
 public:
  Feeder(const TokenizerTrainOptions& options, const SentenceSource& source, NormalizerChain chain)
      : options_(options), source_(source), chain_(std::move(chain)) {}

  bool Next(std::string* sentence) {
    while (rest_.empty()) {
      if (!Refill()) return false;
    }
    size_t cut = rest_.size();
    if (cut > kMaxSentenceBytes) {
      cut = rest_.rfind(' ', kMaxSentenceBytes);
      if (cut == std::string::npos || cut == 0) cut = PreviousStart(rest_, kMaxSentenceBytes);
    }
    *sentence = rest_.substr(0, cut);
    rest_.erase(0, cut);
    if (++count_ % kProgressEvery == 0 && options_.progress) options_.progress(count_, false);
    return true;
  }

  const absl::Status& status() const { return status_; }
  uint64_t count() const { return count_; }

 private:
  bool Refill() {
    if (!status_.ok()) return false;
    absl::StatusOr<std::optional<std::string>> line = source_();
    if (line.ok() && line->has_value() && FindInvalidUtf8(**line) != std::string::npos) {
      line = absl::DataLossError("a sentence to train on is not valid UTF-8");
    }
    status_ = line.status();
    if (!status_.ok() || !line->has_value()) {
      if (status_.ok() && count_ > 0 && options_.progress && !told_end_)
        options_.progress(count_, true);
      told_end_ = true;
      return false;
    }
    NormalizedText text(**line, 0, /*track=*/false);
    for (const auto& normalizer : chain_) normalizer->Apply(&text);
    text.Strip(true, true);
    rest_ = text.text();
    // SentencePiece parts sentences at zero bytes.
    std::replace(rest_.begin(), rest_.end(), '\0', ' ');
    return true;
  }

  const TokenizerTrainOptions& options_;
  const SentenceSource& source_;
  NormalizerChain chain_;
  std::string rest_;
  absl::Status status_;
  uint64_t count_ = 0;
  bool told_end_ = false;
};

OrderedJson Metaspace() {
  return {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "always"}, {"split", true}};
}

OrderedJson AddedTokens() {
  OrderedJson tokens = OrderedJson::array();
  for (int32_t id = 0; id <= kMaskId; ++id) {
    tokens.push_back({{"id", id},
                      {"content", kSpecialPieces[id]},
                      {"single_word", false},
                      {"lstrip", id == kMaskId},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", true}});
  }
  return tokens;
}

OrderedJson NormalizerMember(bool lowercase) {
  OrderedJson members = OrderedJson::array({{{"type", "Nmt"}}, {{"type", "NFKC"}}});
  if (lowercase) members.push_back({{"type", "Lowercase"}});
  members.push_back({{"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}});
  return {{"type", "Sequence"}, {"normalizers", members}};
}

OrderedJson TemplateMember() {
  const auto special = [](int32_t id, int type) {
    return OrderedJson{{"SpecialToken", {{"id", kSpecialPieces[id]}, {"type_id", type}}}};
  };
  const auto sequence = [](const char* name, int type) {
    return OrderedJson{{"Sequence", {{"id", name}, {"type_id", type}}}};
  };
  OrderedJson post = {{"type", "TemplateProcessing"}};
  post["single"] = OrderedJson::array({special(kClsId, 0), sequence("A", 0), special(kSepId, 0)});
  post["pair"] = OrderedJson::array({special(kClsId, 0), sequence("A", 0), special(kSepId, 0),
                                     sequence("B", 1), special(kSepId, 1)});
  for (const int32_t id : {kClsId, kSepId}) {
    const char* name = kSpecialPieces[id];
    post["special_tokens"][name] = {
        {"id", name}, {"ids", OrderedJson::array({id})}, {"tokens", OrderedJson::array({name})}};
  }
  return post;
}

bool EndsInDigitComma(std::string_view piece) {
  return piece.size() >= 2 && piece.back() == ',' && piece[piece.size() - 2] >= '0' &&
         piece[piece.size() - 2] <= '9';
}

OrderedJson ModelMember(const UnigramVocabulary& vocabulary) {
  OrderedJson pieces = OrderedJson::array();
  for (const auto& [piece, score] : vocabulary.pieces) {
    const double penalty = EndsInDigitComma(piece) ? kDigitCommaPenalty : 0.0;
    pieces.push_back(OrderedJson::array({piece, score - penalty}));
  }
  return {{"type", "Unigram"}, {"unk_id", 1}, {"vocab", pieces}, {"byte_fallback", false}};
}

std::string ToJson(const UnigramVocabulary& vocabulary, bool lowercase) {
  OrderedJson root = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
  root["added_tokens"] = AddedTokens();
  root["normalizer"] = NormalizerMember(lowercase);
  root["pre_tokenizer"] = Metaspace();
  root["post_processor"] = TemplateMember();
  root["decoder"] = Metaspace();
  root["model"] = ModelMember(vocabulary);
  return root.dump(1) + "\n";
}

// SentencePiece's message in plain words.
absl::Status TrainingError(const std::string& message, int32_t vocab_size) {
  const auto number_after = [&](const std::string& mark) -> std::string {
    const size_t at = message.rfind(mark);
    if (at == std::string::npos) return "";
    const size_t begin = message.find_first_of("0123456789", at + mark.size());
    if (begin == std::string::npos) return "";
    return message.substr(begin, message.find_first_not_of("0123456789", begin) - begin);
  };
  if (const std::string largest = number_after("value <="); !largest.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("a vocabulary of ", vocab_size,
                                                   " pieces is too large for this text; at most ",
                                                   largest, " are possible"));
  }
  if (const std::string needed = number_after(" vs "); !needed.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("a vocabulary of ", vocab_size,
                                                   " pieces is too small: the characters of this ",
                                                   "text need ", needed));
  }
  return absl::InvalidArgumentError(absl::StrCat("the tokenizer could not be trained: ", message));
}

absl::Status CheckOptions(const TokenizerTrainOptions& options) {
  if (options.vocab_size <= kMaskId + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocab_size is ", options.vocab_size,
                     "; it must be above 5, the number of special tokens"));
  }
  if (!(options.character_coverage > 0.9 && options.character_coverage <= 1.0)) {
    return absl::InvalidArgumentError(absl::StrCat("character_coverage is ",
                                                   options.character_coverage,
                                                   "; it must be above 0.9 and at most 1"));
  }
  if (options.vocab_size >= options.seed_sentencepiece_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocab_size is ", options.vocab_size, "; at most ",
                     options.seed_sentencepiece_size - 1, " pieces are possible"));
  }
  if (options.max_sentences <= 100) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_sentences is ", options.max_sentences, "; it must be above 100"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SentenceSource> SentencesOf(const std::vector<std::string>& inputs) {
  struct State {
    std::unique_ptr<TextReader> reader;
    Document document;
    size_t at = 0;
  };
  auto state = std::make_shared<State>();
  STARLING_ASSIGN_OR_RETURN(state->reader, TextReader::Open({inputs, false}));
  return SentenceSource([state]() -> absl::StatusOr<std::optional<std::string>> {
    while (state->at >= state->document.text.size()) {
      STARLING_ASSIGN_OR_RETURN(const bool more, state->reader->Next(&state->document));
      if (!more) return std::optional<std::string>();
      state->at = 0;
    }
    const std::string& text = state->document.text;
    const size_t end = std::min(text.find('\n', state->at), text.size());
    std::string line = text.substr(state->at, end - state->at);
    state->at = end + 1;
    return std::optional<std::string>(std::move(line));
  });
}

absl::Status TrainTokenizer(const TokenizerTrainOptions& options, const SentenceSource& source) {
  STARLING_RETURN_IF_ERROR(CheckOptions(options));
  STARLING_ASSIGN_OR_RETURN(NormalizerChain chain, MakeChain(options.lowercase));
  Feeder feeder(options, source, std::move(chain));
  UnigramTraining training;
  training.vocab_size = options.vocab_size;
  training.character_coverage = absl::StrCat(options.character_coverage);
  training.max_sentences = options.max_sentences;
  training.seed_size = options.seed_sentencepiece_size;
  training.special_pieces.assign(std::begin(kSpecialPieces), std::end(kSpecialPieces));
  training.next = [&](std::string* sentence) { return feeder.Next(sentence); };
  const UnigramVocabulary vocabulary = TrainUnigram(training);
  STARLING_RETURN_IF_ERROR(feeder.status());
  if (feeder.count() == 0) {
    return absl::DataLossError("the inputs hold no text to train a tokenizer on");
  }
  if (!vocabulary.error.empty()) return TrainingError(vocabulary.error, options.vocab_size);
  return WriteAtomically(RealFs(), options.output, ToJson(vocabulary, options.lowercase));
}

}  // namespace starling::data
