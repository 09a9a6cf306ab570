#include "starling/data/tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/fnv1a.h"
#include "data/tokenizer_impl.h"
#include "data/utf8.h"
#include "starling/base/fs.h"
#include "starling/base/status.h"

namespace starling::data {
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

Tokenizer::Scratch::Scratch() : impl_(std::make_unique<Impl>()) {}
Tokenizer::Scratch::~Scratch() = default;
Tokenizer::Scratch::Scratch(Scratch&&) noexcept = default;
Tokenizer::Scratch& Tokenizer::Scratch::operator=(Scratch&&) noexcept = default;

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
