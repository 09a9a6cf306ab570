#include "data/unigram_model.h"

#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/utf8.h"
#include "starling/base/status.h"

namespace starling::data {
namespace {

// An unknown character costs this much more than the worst piece.
constexpr double kUnknownPenalty = 10.0;
constexpr uint32_t kUnreached = 0xFFFFFFFF;
// Longer pieces are no pieces but a damaged file.
constexpr size_t kMaxPieceBytes = 8192;

}  // namespace

absl::StatusOr<UnigramModel> UnigramModel::Make(std::vector<Piece> pieces,
                                                std::optional<int32_t> unk_id, bool byte_fallback) {
  if (unk_id.has_value() && (*unk_id < 0 || static_cast<size_t>(*unk_id) >= pieces.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.unk_id is ", *unk_id, ", but the vocabulary has ", pieces.size(), " pieces"));
  }
  UnigramModel model;
  model.pieces_ = std::move(pieces);
  model.unk_id_ = unk_id;
  double min_score = std::numeric_limits<double>::infinity();
  std::map<std::string_view, int32_t> ids;  // of equal pieces the last counts
  for (size_t i = 0; i < model.pieces_.size(); ++i) {
    const Piece& piece = model.pieces_[i];
    if (std::isnan(piece.score)) {
      return absl::InvalidArgumentError(absl::StrCat("the score of piece ", i, " is not a number"));
    }
    if (piece.text.size() > kMaxPieceBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "piece ", i, " of the vocabulary is longer than ", kMaxPieceBytes, " bytes"));
    }
    if (!piece.text.empty()) ids[piece.text] = static_cast<int32_t>(i);
    min_score = std::min(min_score, piece.score);
    model.scores_.push_back(piece.score);
  }
  model.unk_score_ = min_score - kUnknownPenalty;
  model.trie_ = PieceTrie({ids.begin(), ids.end()});
  for (int byte = 0; byte_fallback && byte < 256; ++byte) {
    model.byte_ids_.push_back(model.Find(absl::StrFormat("<0x%02X>", byte)));
  }
  return model;
}

// Fills nodes[i] with the best path that ends at byte i.
absl::Status UnigramModel::FillNodes(std::string_view text, Scratch* scratch) const {
  auto& nodes = scratch->nodes;
  nodes.assign(text.size() + 1, {0.0, 0, kUnreached});
  for (size_t start = 0; start < text.size();) {
    const double here = nodes[start].score;
    const size_t character = DecodeAt(text, start).bytes;
    bool has_single = false;
    const auto offer = [&](size_t length, int32_t id, double score) {
      Scratch::Node& node = nodes[start + length];
      if (node.start == kUnreached || score > node.score) {
        node = {score, id, static_cast<uint32_t>(start)};
      }
    };
    trie_.VisitPrefixes(text.substr(start), [&](size_t length, int32_t id) {
      offer(length, id, scores_[static_cast<size_t>(id)] + here);
      has_single |= length == character;
    });
    if (!has_single) {
      const double score = unk_score_ + here;
      Scratch::Node& node = nodes[start + character];
      if (node.start == kUnreached || score > node.score) {
        if (!unk_id_.has_value()) {
          return absl::InvalidArgumentError(
              absl::StrCat("the character '", std::string(text.substr(start, character)),
                           "' is not in the vocabulary, and the model has no unk_id"));
        }
        offer(character, *unk_id_, score);
      }
    }
    start += character;
  }
  return absl::OkStatus();
}

absl::Status UnigramModel::Encode(std::string_view text, Scratch* scratch,
                                  std::vector<PieceToken>* out) const {
  if (text.empty()) return absl::OkStatus();
  STARLING_RETURN_IF_ERROR(FillNodes(text, scratch));
  auto& reversed = scratch->reversed;
  reversed.clear();
  const int32_t unknown = unk_id_.value_or(-1);
  for (auto end = static_cast<uint32_t>(text.size()); end > 0;) {
    const Scratch::Node& node = scratch->nodes[end];
    if (node.id == unknown && !reversed.empty() && reversed.back().id == unknown) {
      reversed.back().begin = node.start;
    } else {
      reversed.push_back({node.id, node.start, end});
    }
    end = node.start;
  }
  for (size_t i = reversed.size(); i-- > 0;) {
    if (reversed[i].id == unknown) {
      AppendUnknown(text, reversed[i].begin, reversed[i].end, out);
    } else {
      out->push_back(reversed[i]);
    }
  }
  return absl::OkStatus();
}

void UnigramModel::AppendUnknown(std::string_view text, uint32_t begin, uint32_t end,
                                 std::vector<PieceToken>* out) const {
  const std::string_view stretch = text.substr(begin, end - begin);
  // Several unknown characters together can be a piece that was too unlikely for the best path.
  if (const int32_t id = Find(stretch); id >= 0) {
    out->push_back({id, begin, end});
    return;
  }
  bool all_bytes = !byte_ids_.empty();
  for (const char byte : stretch) {
    all_bytes = all_bytes && byte_ids_[static_cast<uint8_t>(byte)] >= 0;
  }
  if (!all_bytes) {
    out->push_back({unk_id_.value_or(0), begin, end});
    return;
  }
  for (const char byte : stretch)
    out->push_back({byte_ids_[static_cast<uint8_t>(byte)], begin, end});
}

}  // namespace starling::data
