#include "data/tokenizer_impl.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "data/utf8.h"
#include "starling/base/status.h"

namespace starling::data {
namespace {

// Turns byte offsets of a text into offsets in code points.
class CodePointOffsets {
 public:
  explicit CodePointOffsets(std::string_view text) : index_(text.size()) {
    uint32_t code_point = 0;
    for (size_t i = 0; i < text.size(); ++code_point) {
      const size_t bytes = DecodeAt(text, i).bytes;
      for (size_t k = 0; k < bytes; ++k) index_[i + k] = code_point;
      i += bytes;
    }
  }

  // Follows the reference where a span does not lie within the text: it stays as it is.
  TextRange Convert(Span span) const {
    if (span.begin >= index_.size()) return {span.begin, span.end};
    const uint32_t begin = index_[span.begin];
    if (span.end < index_.size()) return {begin, index_[span.end]};
    const bool within = span.end >= 1 && span.end - 1 < index_.size();
    return {begin, (within ? index_[span.end - 1] : begin + 1) + 1};
  }

 private:
  std::vector<uint32_t> index_;
};

std::atomic<uint64_t> next_serial{1};

}  // namespace

absl::Status Tokenizer::Impl::Prepare() {
  vocab_size = static_cast<int32_t>(spec.model.pieces().size());
  std::vector<AddedToken> raw, normalized;
  std::vector<std::string> raw_patterns, normalized_patterns;
  // Special ones first: of equal strings the first is found.
  for (const bool special : {true, false}) {
    for (const AddedToken& token : spec.added_tokens) {
      if (token.special != special) continue;
      vocab_size = std::max(vocab_size, token.id + 1);
      added_by_id[token.id] = token;
      added_by_content[token.content] = token.id;
      NormalizedText pattern(token.content, 0, /*track=*/false);
      if (token.normalized) Normalize(&pattern);
      (token.normalized ? normalized : raw).push_back(token);
      (token.normalized ? normalized_patterns : raw_patterns).push_back(pattern.text());
    }
  }
  STARLING_ASSIGN_OR_RETURN(raw_tokens, AddedTokenMatcher::Make(std::move(raw), raw_patterns));
  STARLING_ASSIGN_OR_RETURN(normalized_tokens,
                            AddedTokenMatcher::Make(std::move(normalized), normalized_patterns));
  for (const auto& cutter : spec.pre_tokenizers) needs_origin |= cutter->NeedsOrigin();
  if (normalized_tokens.empty()) chunker = WordChunker(spec.normalizers, spec.pre_tokenizers);
  FindSpecialIds();
  serial = next_serial.fetch_add(1);
  return absl::OkStatus();
}

int32_t Tokenizer::Impl::Find(std::string_view piece) const {
  const auto added = added_by_content.find(piece);
  return added != added_by_content.end() ? added->second : spec.model.Find(piece);
}

void Tokenizer::Impl::FindSpecialIds() {
  const auto first_of = [&](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (const int32_t id = Find(name); id >= 0) return id;
    }
    return -1;
  };
  special_ids.pad = first_of({"<pad>", "[PAD]"});
  special_ids.unk = spec.model.unk_id().value_or(first_of({"<unk>", "[UNK]"}));
  special_ids.cls = first_of({"[CLS]", "<cls>"});
  special_ids.sep = first_of({"[SEP]", "<sep>"});
  special_ids.mask = first_of({"[MASK]", "<mask>"});
}

// Pre-tokenizers and model. Appends to memory->tokens.
absl::Status Tokenizer::Impl::EncodePieces(NormalizedText text, bool track, Memory* memory) const {
  std::vector<NormalizedText> parts;
  parts.push_back(std::move(text));
  for (const auto& cutter : spec.pre_tokenizers) {
    std::vector<NormalizedText> finer;
    for (NormalizedText& part : parts) cutter->Cut(std::move(part), &finer);
    parts = std::move(finer);
  }
  for (const NormalizedText& part : parts) {
    memory->pieces.clear();
    STARLING_RETURN_IF_ERROR(spec.model.Encode(part.text(), &memory->model, &memory->pieces));
    for (const PieceToken& piece : memory->pieces) {
      const Span span = track ? part.SpanOf(piece.begin, piece.end) : Span{0, 0};
      memory->tokens.push_back({piece.id, span});
    }
  }
  return absl::OkStatus();
}

// A normalized text without added tokens of the raw kind. Appends to memory->tokens.
absl::Status Tokenizer::Impl::EncodePlain(NormalizedText text, bool track, Memory* memory) const {
  std::vector<AddedTokenPart> parts;
  normalized_tokens.Cut(text.text(), &parts);
  for (const AddedTokenPart& part : parts) {
    if (part.id < 0) {
      STARLING_RETURN_IF_ERROR(EncodePieces(text.Slice(part.begin, part.end), track, memory));
    } else {
      const Span span = track ? text.SpanOf(part.begin, part.end) : Span{0, 0};
      memory->tokens.push_back({part.id, span});
    }
  }
  return absl::OkStatus();
}

// The whole way of a text, as the file describes it. Fills memory->tokens.
absl::Status Tokenizer::Impl::EncodeText(std::string_view text, bool track, Memory* memory) const {
  memory->tokens.clear();
  std::vector<AddedTokenPart> parts;
  raw_tokens.Cut(text, &parts);
  for (const AddedTokenPart& part : parts) {
    const auto begin = static_cast<uint32_t>(part.begin);
    if (part.id >= 0) {
      memory->tokens.push_back({part.id, {begin, static_cast<uint32_t>(part.end)}});
      continue;
    }
    NormalizedText stretch(text.substr(part.begin, part.end - part.begin), begin, track);
    Normalize(&stretch);
    STARLING_RETURN_IF_ERROR(EncodePlain(std::move(stretch), track, memory));
  }
  return absl::OkStatus();
}

// Appends the ids of one chunk; false when the chunk cannot be encoded on its own.
absl::StatusOr<bool> Tokenizer::Impl::EncodeChunk(std::string_view chunk, Memory* memory,
                                                  std::vector<int32_t>* out) const {
  if (memory->cache.Append(chunk, out)) return true;
  NormalizedText text(chunk, 0, needs_origin);
  Normalize(&text);
  if (!chunker.IsFit(chunk, text.text())) return false;
  memory->tokens.clear();
  STARLING_RETURN_IF_ERROR(EncodePlain(std::move(text), needs_origin, memory));
  const size_t begin = out->size();
  for (const SpanToken& token : memory->tokens) out->push_back(token.id);
  memory->cache.Insert(chunk, out->data() + begin, out->data() + out->size());
  return true;
}

absl::StatusOr<bool> Tokenizer::Impl::EncodeChunks(std::string_view text, Memory* memory,
                                                   std::vector<int32_t>* out) const {
  absl::Status status;
  const bool all = chunker.ForEach(text, [&](std::string_view chunk) {
    absl::StatusOr<bool> done = EncodeChunk(chunk, memory, out);
    status.Update(done.status());
    return done.ok() && *done;
  });
  if (!status.ok()) return status;
  return all;
}

absl::StatusOr<Encoding> Tokenizer::Impl::EncodeSequence(std::string_view text,
                                                         int32_t type_id) const {
  Memory memory;
  STARLING_RETURN_IF_ERROR(EncodeText(text, /*track=*/true, &memory));
  const CodePointOffsets offsets(text);
  Encoding encoding;
  for (const SpanToken& token : memory.tokens) {
    encoding.ids.push_back(token.id);
    encoding.offsets.push_back(offsets.Convert(token.span));
  }
  encoding.type_ids.assign(encoding.ids.size(), type_id);
  encoding.special_tokens_mask.assign(encoding.ids.size(), 0);
  return encoding;
}

}  // namespace starling::data
