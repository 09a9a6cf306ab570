// Reader and encoder of a Hugging Face tokenizer.json with a Unigram model. The file says what is
// done (normalizers, pre-tokenizers, added tokens, template) and is interpreted; what it names and
// this reader does not know is an error, never skipped. Ids, type ids and offsets equal those of
// the `tokenizers` library 0.22.
//
// A Tokenizer is immutable after Load and shared by any number of threads. Results depend on
// nothing but the file and the text: not on locale, threads or what was encoded before.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace starling::data {

// Code points [begin, end) of the original text.
struct TextRange {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const TextRange&) const = default;
};

// One encoded text or pair; all four have one element a token.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<int32_t> type_ids;
  // In the text that the token came from (of a pair: the one with its type); 0,0 for tokens that
  // the template added. A token made of several characters covers them all.
  std::vector<TextRange> offsets;
  std::vector<uint8_t> special_tokens_mask;  // 1: added by the template
};

// Ids of the tokens that training needs; -1 when the vocabulary lacks one.
struct SpecialIds {
  int32_t pad = -1;
  int32_t unk = -1;
  int32_t cls = -1;
  int32_t sep = -1;
  int32_t mask = -1;
};

class Tokenizer {
 public:
  // Memory that EncodeIds keeps between calls, with the words seen before and their ids. One thread
  // at a time; forgets everything when it is used with another tokenizer. At most about 40 MB.
  class Scratch {
   public:
    Scratch();
    ~Scratch();
    Scratch(Scratch&&) noexcept;
    Scratch& operator=(Scratch&&) noexcept;

   private:
    friend class Tokenizer;
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  // Reads `path`. NotFound and the like when it cannot be read; DataLoss for broken JSON;
  // InvalidArgument for elements that are missing, wrong or not supported. Errors name the file and
  // the element.
  static absl::StatusOr<Tokenizer> Load(const std::string& path);
  // The same from memory; `name` stands for the path in errors.
  static absl::StatusOr<Tokenizer> Parse(std::string_view json, const std::string& name);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Encodes one text, or two with the template for pairs. InvalidArgument for invalid UTF-8 (with
  // the offset of the first bad byte), for texts of 4 GiB and more, and for an unknown character
  // when the model has no unk_id.
  absl::StatusOr<Encoding> Encode(std::string_view text, bool add_special_tokens = true) const;
  absl::StatusOr<Encoding> EncodePair(std::string_view a, std::string_view b,
                                      bool add_special_tokens = true) const;

  // The fast path: appends the ids of `text` without the template's tokens; the same ids as
  // Encode(text, false). On an error nothing is appended. Errors as Encode.
  absl::Status EncodeIds(std::string_view text, Scratch* scratch, std::vector<int32_t>* out) const;
  // The same without a memory of words; for single calls.
  absl::Status EncodeIds(std::string_view text, std::vector<int32_t>* out) const;

  // Text of `ids`. Added tokens marked special are left out when `skip_special_tokens`, unknown ids
  // always.
  std::string Decode(const std::vector<int32_t>& ids, bool skip_special_tokens = true) const;

  // Number of ids: every id is below it.
  int32_t vocab_size() const;
  // The piece of an id, "" when there is none.
  std::string IdToPiece(int32_t id) const;
  // The id of a piece, -1 when there is none.
  int32_t PieceToId(std::string_view piece) const;
  // By their names: <pad> or [PAD], the model's unk_id, [CLS], [SEP], [MASK].
  const SpecialIds& special_ids() const;
  // FNV-1a of the whole file: two tokenizers with one hash give the same ids.
  uint64_t hash() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace starling::data
