#include "starling/data/tokenizer.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/tokenizer_json.h"
#include "data/utf8.h"
#include "data/word_cache.h"
#include "data/word_chunker.h"
#include "starling/base/fs.h"
#include "starling/base/status.h"

namespace starling::data {
namespace {

// A token and the bytes of the original text it covers (meaningless when spans are not tracked).
struct SpanToken {
  int32_t id;
  Span span;
};

uint64_t Fnv1a(std::string_view data) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char byte : data) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3;
  return hash;
}

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

struct Tokenizer::Scratch::Impl {
  uint64_t owner = 0;  // serial of the tokenizer that the cache belongs to
  WordCache cache;
  UnigramModel::Scratch model;
  std::vector<PieceToken> pieces;
  std::vector<SpanToken> tokens;
};

Tokenizer::Scratch::Scratch() : impl_(std::make_unique<Impl>()) {}
Tokenizer::Scratch::~Scratch() = default;
Tokenizer::Scratch::Scratch(Scratch&&) noexcept = default;
Tokenizer::Scratch& Tokenizer::Scratch::operator=(Scratch&&) noexcept = default;

struct Tokenizer::Impl {
  using Memory = Scratch::Impl;

  TokenizerSpec spec;
  AddedTokenMatcher raw_tokens;         // looked for in the text as it is
  AddedTokenMatcher normalized_tokens;  // looked for after normalization
  std::map<int32_t, AddedToken> added_by_id;
  std::map<std::string, int32_t, std::less<>> added_by_content;
  WordChunker chunker;
  bool needs_origin = false;
  int32_t vocab_size = 0;
  SpecialIds special_ids;
  uint64_t hash = 0;
  uint64_t serial = 0;

  absl::Status Prepare();
  void FindSpecialIds();
  void Normalize(NormalizedText* text) const {
    for (const auto& normalizer : spec.normalizers) normalizer->Apply(text);
  }

  absl::Status EncodePieces(NormalizedText text, bool track, Memory* memory) const;
  absl::Status EncodePlain(NormalizedText text, bool track, Memory* memory) const;
  absl::Status EncodeText(std::string_view text, bool track, Memory* memory) const;
  absl::StatusOr<bool> EncodeChunk(std::string_view chunk, Memory* memory,
                                   std::vector<int32_t>* out) const;
  absl::StatusOr<bool> EncodeChunks(std::string_view text, Memory* memory,
                                    std::vector<int32_t>* out) const;
  absl::StatusOr<Encoding> EncodeSequence(std::string_view text, int32_t type_id) const;
  int32_t Find(std::string_view piece) const;
};

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

namespace {

absl::Status CheckText(std::string_view text) {
  if (text.size() >= std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError("the text has 4 GiB or more; encode it in parts");
  }
  if (const size_t at = FindInvalidUtf8(text); at != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("invalid UTF-8 at byte ", at));
  }
  return absl::OkStatus();
}

void Append(const Encoding& from, int32_t type_id, Encoding* to) {
  to->ids.insert(to->ids.end(), from.ids.begin(), from.ids.end());
  to->type_ids.insert(to->type_ids.end(), from.ids.size(), type_id);
  to->offsets.insert(to->offsets.end(), from.offsets.begin(), from.offsets.end());
  to->special_tokens_mask.insert(to->special_tokens_mask.end(), from.special_tokens_mask.begin(),
                                 from.special_tokens_mask.end());
}

Encoding ApplyTemplate(const std::vector<TemplatePiece>& pieces, const Encoding* sequences,
                       bool add_special_tokens) {
  Encoding result;
  for (const TemplatePiece& piece : pieces) {
    if (piece.sequence >= 0) {
      Append(sequences[piece.sequence], piece.type_id, &result);
    } else if (add_special_tokens) {
      const size_t count = piece.ids.size();
      Append({piece.ids, {}, std::vector<TextRange>(count), std::vector<uint8_t>(count, 1)},
             piece.type_id, &result);
    }
  }
  return result;
}

// Appends the text of one piece.
void AppendDecoded(std::string_view piece, bool first,
                   const std::optional<MetaspaceDecoder>& decoder, std::string* text) {
  if (!decoder.has_value()) {
    if (!first) text->push_back(' ');
    text->append(piece);
    return;
  }
  const std::string& mark = decoder->replacement;
  while (!piece.empty()) {
    const size_t at = std::min(piece.find(mark), piece.size());
    text->append(piece.substr(0, at));
    if (at == piece.size()) return;
    if (!first || !decoder->drop_first) text->push_back(' ');
    piece.remove_prefix(at + mark.size());
  }
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

absl::StatusOr<Tokenizer> Tokenizer::Load(const std::string& path) {
  STARLING_ASSIGN_OR_RETURN(const std::string json, RealFs().Read(path));
  return Parse(json, path);
}

absl::StatusOr<Tokenizer> Tokenizer::Parse(std::string_view json, const std::string& name) {
  auto impl = std::make_unique<Impl>();
  absl::StatusOr<TokenizerSpec> spec = ParseTokenizerJson(json);
  if (!spec.ok()) return Annotate(spec.status(), name);
  impl->spec = *std::move(spec);
  impl->hash = Fnv1a(json);
  if (absl::Status status = impl->Prepare(); !status.ok()) return Annotate(status, name);
  return Tokenizer(std::move(impl));
}

absl::StatusOr<Encoding> Tokenizer::Encode(std::string_view text, bool add_special_tokens) const {
  STARLING_RETURN_IF_ERROR(CheckText(text));
  STARLING_ASSIGN_OR_RETURN(Encoding encoding, impl_->EncodeSequence(text, 0));
  if (!impl_->spec.post_template.has_value()) return encoding;
  return ApplyTemplate(impl_->spec.post_template->single, &encoding, add_special_tokens);
}

absl::StatusOr<Encoding> Tokenizer::EncodePair(std::string_view a, std::string_view b,
                                               bool add_special_tokens) const {
  STARLING_RETURN_IF_ERROR(CheckText(a));
  STARLING_RETURN_IF_ERROR(CheckText(b));
  Encoding sequences[2];
  STARLING_ASSIGN_OR_RETURN(sequences[0], impl_->EncodeSequence(a, 0));
  STARLING_ASSIGN_OR_RETURN(sequences[1], impl_->EncodeSequence(b, 1));
  if (!impl_->spec.post_template.has_value()) {
    Append(sequences[1], 1, &sequences[0]);
    return sequences[0];
  }
  return ApplyTemplate(impl_->spec.post_template->pair, sequences, add_special_tokens);
}

absl::Status Tokenizer::EncodeIds(std::string_view text, Scratch* scratch,
                                  std::vector<int32_t>* out) const {
  STARLING_RETURN_IF_ERROR(CheckText(text));
  Scratch::Impl& memory = *scratch->impl_;
  if (memory.owner != impl_->serial) {
    memory.owner = impl_->serial;
    memory.cache.Clear();
  }
  const size_t before = out->size();
  if (text.empty()) return absl::OkStatus();
  if (!impl_->raw_tokens.OccursIn(text)) {
    absl::StatusOr<bool> done = impl_->EncodeChunks(text, &memory, out);
    if (done.ok() && *done) return absl::OkStatus();
    out->resize(before);
    if (!done.ok()) return done.status();
  }
  STARLING_RETURN_IF_ERROR(impl_->EncodeText(text, impl_->needs_origin, &memory));
  for (const SpanToken& token : memory.tokens) out->push_back(token.id);
  return absl::OkStatus();
}

absl::Status Tokenizer::EncodeIds(std::string_view text, std::vector<int32_t>* out) const {
  STARLING_RETURN_IF_ERROR(CheckText(text));
  Scratch::Impl memory;
  STARLING_RETURN_IF_ERROR(impl_->EncodeText(text, impl_->needs_origin, &memory));
  for (const SpanToken& token : memory.tokens) out->push_back(token.id);
  return absl::OkStatus();
}

std::string Tokenizer::Decode(const std::vector<int32_t>& ids, bool skip_special_tokens) const {
  std::string text;
  bool first = true;
  for (const int32_t id : ids) {
    const auto added = impl_->added_by_id.find(id);
    const bool is_added = added != impl_->added_by_id.end();
    if (is_added && added->second.special && skip_special_tokens) continue;
    if (!is_added && (id < 0 || static_cast<size_t>(id) >= impl_->spec.model.pieces().size())) {
      continue;
    }
    AppendDecoded(IdToPiece(id), first, impl_->spec.decoder, &text);
    first = false;
  }
  return text;
}

int32_t Tokenizer::vocab_size() const { return impl_->vocab_size; }

std::string Tokenizer::IdToPiece(int32_t id) const {
  const auto added = impl_->added_by_id.find(id);
  if (added != impl_->added_by_id.end()) return added->second.content;
  const auto& pieces = impl_->spec.model.pieces();
  return id >= 0 && static_cast<size_t>(id) < pieces.size() ? pieces[static_cast<size_t>(id)].text
                                                            : "";
}

int32_t Tokenizer::PieceToId(std::string_view piece) const { return impl_->Find(piece); }
const SpecialIds& Tokenizer::special_ids() const { return impl_->special_ids; }
uint64_t Tokenizer::hash() const { return impl_->hash; }

}  // namespace starling::data
