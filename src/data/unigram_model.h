// The Unigram model: pieces with log probabilities, and the best way to make up a text of them.
// Immutable after Make, thread-safe; the caller brings the scratch memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "data/piece_trie.h"

namespace starling::data {

// A token: bytes [begin, end) of the text that was encoded.
struct PieceToken {
  int32_t id;
  uint32_t begin;
  uint32_t end;
};

class UnigramModel {
 public:
  struct Piece {
    std::string text;
    double score;
  };
  // Memory of one call, kept for the next. One thread at a time.
  struct Scratch {
    struct Node {
      double score;
      int32_t id;
      uint32_t start;
    };
    std::vector<Node> nodes;
    std::vector<PieceToken> reversed;
  };

  UnigramModel() = default;
  // `unk_id`: what unknown characters become; without it they are an error. `byte_fallback`: they
  // become the pieces <0x00>…<0xFF> of their bytes when the vocabulary has these. InvalidArgument
  // when unk_id is outside of the vocabulary or a score is not a number.
  static absl::StatusOr<UnigramModel> Make(std::vector<Piece> pieces, std::optional<int32_t> unk_id,
                                           bool byte_fallback);

  // Appends the tokens of the best path, in order. Of equal paths, the one that was found first
  // (shorter pieces first) wins; scores are summed from left to right; neighbouring unknown
  // characters are one token. InvalidArgument for an unknown character without unk_id.
  absl::Status Encode(std::string_view text, Scratch* scratch, std::vector<PieceToken>* out) const;

  const std::vector<Piece>& pieces() const { return pieces_; }
  std::optional<int32_t> unk_id() const { return unk_id_; }
  // The id of a piece, or -1.
  int32_t Find(std::string_view piece) const { return trie_.Find(piece); }

 private:
  absl::Status FillNodes(std::string_view text, Scratch* scratch) const;
  void AppendUnknown(std::string_view text, uint32_t begin, uint32_t end,
                     std::vector<PieceToken>* out) const;

  std::vector<Piece> pieces_;
  std::vector<double> scores_;
  std::optional<int32_t> unk_id_;
  double unk_score_ = 0;
  std::vector<int32_t> byte_ids_;  // 256, or empty without byte fallback; -1: no such piece
  PieceTrie trie_;
};

}  // namespace starling::data
