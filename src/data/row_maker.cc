#include "data/row_maker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "starling/base/ids.h"
#include "starling/base/status.h"

namespace starling::data {
namespace {

uint64_t DrawFor(DrawAddress address, DrawPurpose purpose, uint32_t counter = 0) {
  address.purpose = purpose;
  address.counter = counter;
  return Draw(address);
}

}  // namespace

RowMaker::RowMaker(const MicroBatchOptions& options)
    : objective_(options.objective),
      mask_probability_(options.mask_probability),
      special_(options.special),
      vocab_size_(options.pieces.size()),
      kinds_(StartPieceTable(options.pieces, options.word_groups)) {}

Instance RowMaker::MakePair(const std::vector<int32_t>& ids, const std::vector<uint32_t>& lengths,
                            uint64_t max_length, DrawAddress address) const {
  if (objective_ == Objective::kMlm || lengths.size() < 2) {
    return MakeSingle(ids, max_length, special_);
  }
  PairDraws draws;
  draws.a_end = 1 + static_cast<uint32_t>(ToBounded(DrawFor(address, DrawPurpose::kSentenceSplit),
                                                    lengths.size() - 1));
  draws.swap = ToUnit(DrawFor(address, DrawPurpose::kSentenceSwap)) < 0.5;
  return MakeInstance(ids, lengths, draws, max_length, special_);
}

MaskedInstance RowMaker::Make(const ChunkTable& table, uint64_t chunk, DrawAddress address) const {
  std::vector<int32_t> ids;
  std::vector<uint32_t> lengths;
  table.Read(chunk, &ids, &lengths);
  MaskedInstance row;
  row.instance = MakePair(ids, lengths, table.length(), address);
  std::vector<std::vector<uint32_t>> groups = WordGroups(row.instance.ids, kinds_, special_);
  uint64_t maskable = 0;
  for (const auto& group : groups) maskable += group.size();
  const std::vector<uint32_t> chosen = ChooseTokens(
      std::move(groups), TokensToPredict(maskable, mask_probability_), [&](uint32_t k) {
        return static_cast<uint32_t>(
            ToBounded(DrawFor(address, DrawPurpose::kWordShuffle, k), uint64_t{k} + 1));
      });
  const auto replacement = [&](uint32_t position) {
    ReplacementDraws draws;
    draws.to_mask = ToUnit(DrawFor(address, DrawPurpose::kReplaceWithMask, position)) < 0.8;
    draws.to_random = ToUnit(DrawFor(address, DrawPurpose::kReplaceWithRandom, position)) < 0.5;
    draws.random_id = static_cast<int32_t>(
        ToBounded(DrawFor(address, DrawPurpose::kRandomToken, position), vocab_size_));
    return draws;
  };
  row.labels =
      ApplyMask(chosen, row.instance.special_mask, replacement, special_.mask, &row.instance.ids);
  return row;
}

void SetTokenizer(const Tokenizer& tokenizer, MicroBatchOptions* options) {
  options->tokenizer_hash = tokenizer.hash();
  options->special = tokenizer.special_ids();
  options->pieces.clear();
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    options->pieces.push_back(tokenizer.IdToPiece(id));
  }
}

absl::Status ValidateOptions(const MicroBatchOptions& options, const Corpus& corpus) {
  STARLING_RETURN_IF_ERROR(ValidateLengthChanges(options.lengths));
  const std::string prepared = absl::StrCat(corpus.files().front()->path(), " was prepared with");
  if (options.pieces.size() != corpus.vocab_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the tokenizer has ", options.pieces.size(), " pieces, but ", prepared, " a vocabulary of ",
        corpus.vocab_size(), ": give the tokenizer that it was prepared with"));
  }
  if (options.tokenizer_hash != corpus.tokenizer_hash()) {
    return absl::InvalidArgumentError(absl::StrCat(
        prepared, " another tokenizer (hash ", ToHex(corpus.tokenizer_hash()), ", this one has ",
        ToHex(options.tokenizer_hash), "): give that one, or prepare the text again"));
  }
  const SpecialIds& s = options.special;
  const std::pair<const char*, int32_t> ids[] = {
      {"padding", s.pad}, {"[CLS]", s.cls}, {"[SEP]", s.sep}, {"[MASK]", s.mask}};
  for (const auto& [name, id] : ids) {
    if (id < 0 || static_cast<uint64_t>(id) >= options.pieces.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the tokenizer has no ", name, " token, which training needs"));
    }
  }
  if (options.micro_batch == 0 || options.pad_to_multiple == 0) {
    return absl::InvalidArgumentError("micro_batch and pad_to_multiple must be at least 1");
  }
  if (!(options.mask_probability > 0 && options.mask_probability <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("mask probability ", options.mask_probability,
                                                   ": expected above 0 and at most 1"));
  }
  return absl::OkStatus();
}

Batch PadRows(const std::vector<MaskedInstance>& rows, const MicroBatchOptions& options,
              uint64_t sequence_length) {
  uint64_t longest = 0;
  for (const MaskedInstance& row : rows) {
    longest = std::max<uint64_t>(longest, row.instance.ids.size());
  }
  const int64_t length = PaddedLength(longest, options.pad_to_multiple, sequence_length);
  return AssembleBatch(rows, length, options.special.pad);
}

}  // namespace starling::data
