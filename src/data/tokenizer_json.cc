#include "data/tokenizer_json.h"

#include <algorithm>
#include <set>
#include <utility>

#include "data/json_reader.h"
#include "data/tokenizer_json_text.h"

namespace starling::data {
namespace {

absl::StatusOr<UnigramModel> ParseModel(const Json& json) {
  const std::string where = "model";
  if (const Json* type = OptionalMember(json, "type"); type != nullptr && *type != "Unigram") {
    return WrongJson(
        where, absl::StrCat("type ", type->dump(-1, ' ', true, Json::error_handler_t::replace),
                            " is not supported (only \"Unigram\" is)"));
  }
  STARLING_ASSIGN_OR_RETURN(const Json* vocab, ArrayMember(json, where, "vocab"));
  std::vector<UnigramModel::Piece> pieces;
  pieces.reserve(vocab->size());
  for (const Json& entry : *vocab) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      return WrongJson(absl::StrCat("model.vocab[", pieces.size(), "]"),
                       "is not a pair of piece and score");
    }
    pieces.push_back({entry[0].get<std::string>(), entry[1].get<double>()});
  }
  if (pieces.empty()) return WrongJson("model.vocab", "is empty");
  std::optional<int32_t> unk_id;
  if (const Json* unk = OptionalMember(json, "unk_id"); unk != nullptr) {
    STARLING_ASSIGN_OR_RETURN(unk_id, IdValue(*unk, "model.unk_id"));
  }
  const bool no = false;
  STARLING_ASSIGN_OR_RETURN(const bool byte_fallback,
                            BoolMember(json, where, "byte_fallback", &no));
  return UnigramModel::Make(std::move(pieces), unk_id, byte_fallback);
}

absl::StatusOr<AddedToken> ParseAddedToken(const Json& json, const std::string& where) {
  AddedToken token;
  STARLING_ASSIGN_OR_RETURN(token.id, IdMember(json, where, "id"));
  STARLING_ASSIGN_OR_RETURN(token.content, StringMember(json, where, "content"));
  STARLING_ASSIGN_OR_RETURN(token.single_word, BoolMember(json, where, "single_word"));
  STARLING_ASSIGN_OR_RETURN(token.lstrip, BoolMember(json, where, "lstrip"));
  STARLING_ASSIGN_OR_RETURN(token.rstrip, BoolMember(json, where, "rstrip"));
  STARLING_ASSIGN_OR_RETURN(token.normalized, BoolMember(json, where, "normalized"));
  STARLING_ASSIGN_OR_RETURN(token.special, BoolMember(json, where, "special"));
  return token;
}

// The reference gives an added token the id of the equal piece of the vocabulary, and else the next
// one behind it; where the file says another id, model and file do not fit together.
absl::Status CheckAddedIds(const std::vector<AddedToken>& tokens, const UnigramModel& model) {
  auto next = static_cast<int32_t>(model.pieces().size());
  for (const AddedToken& token : tokens) {
    int32_t expected = model.Find(token.content);
    if (expected < 0) expected = next++;
    if (token.id != expected) {
      return WrongJson("added_tokens",
                       absl::StrCat("gives '", token.content, "' the id ", token.id,
                                    ", but its place in the vocabulary is ", expected));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(const Json& root,
                                                         const UnigramModel& model) {
  std::vector<AddedToken> tokens;
  const Json* list = OptionalMember(root, "added_tokens");
  if (list == nullptr) return tokens;
  if (!list->is_array()) return WrongJson("added_tokens", "is not a list");
  std::set<std::string> seen;
  for (size_t i = 0; i < list->size(); ++i) {
    STARLING_ASSIGN_OR_RETURN(AddedToken token,
                              ParseAddedToken((*list)[i], absl::StrCat("added_tokens[", i, "]")));
    if (token.content.empty()) return WrongJson(absl::StrCat("added_tokens[", i, "]"), "is empty");
    if (!seen.insert(token.content).second) {
      return WrongJson("added_tokens", absl::StrCat("has '", token.content, "' twice"));
    }
    tokens.push_back(std::move(token));
  }
  STARLING_RETURN_IF_ERROR(CheckAddedIds(tokens, model));
  return tokens;
}

// The ids that `name` stands for in the template at `where`.
absl::StatusOr<std::vector<int32_t>> SpecialTokenIds(const Json& post, const std::string& name,
                                                     int32_t vocab_size) {
  const std::string where = absl::StrCat("post_processor.special_tokens['", name, "']");
  const Json* tokens = OptionalMember(post, "special_tokens");
  const Json* token = tokens == nullptr ? nullptr : OptionalMember(*tokens, name.c_str());
  if (token == nullptr) return WrongJson(where, "is missing, but the template uses it");
  STARLING_ASSIGN_OR_RETURN(const Json* list, ArrayMember(*token, where, "ids"));
  std::vector<int32_t> ids;
  for (const Json& value : *list) {
    STARLING_ASSIGN_OR_RETURN(const int32_t id, IdValue(value, where + ".ids"));
    if (id >= vocab_size) {
      return WrongJson(where, absl::StrCat("has the id ", id, ", but there are only ", vocab_size));
    }
    ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<std::vector<TemplatePiece>> ParseTemplate(const Json& post, const char* key,
                                                         bool pair, int32_t vocab_size) {
  const std::string where = absl::StrCat("post_processor.", key);
  STARLING_ASSIGN_OR_RETURN(const Json* list, ArrayMember(post, "post_processor", key));
  std::vector<TemplatePiece> pieces;
  for (const Json& entry : *list) {
    TemplatePiece piece;
    const Json* sequence = OptionalMember(entry, "Sequence");
    const Json* special = OptionalMember(entry, "SpecialToken");
    if ((sequence == nullptr) == (special == nullptr)) {
      return WrongJson(where, "holds something that is neither Sequence nor SpecialToken");
    }
    const Json& body = sequence != nullptr ? *sequence : *special;
    STARLING_ASSIGN_OR_RETURN(const std::string id, StringMember(body, where, "id"));
    STARLING_ASSIGN_OR_RETURN(piece.type_id, IdMember(body, where, "type_id"));
    if (special != nullptr) {
      STARLING_ASSIGN_OR_RETURN(piece.ids, SpecialTokenIds(post, id, vocab_size));
    } else if (id == "A" || (id == "B" && pair)) {
      piece.sequence = id == "A" ? 0 : 1;
    } else {
      return WrongJson(where, absl::StrCat("names the sequence '", id, "'"));
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

absl::StatusOr<std::optional<PostTemplate>> ParsePostProcessor(const Json& root,
                                                               int32_t vocab_size) {
  const Json* post = OptionalMember(root, "post_processor");
  if (post == nullptr) return std::optional<PostTemplate>();
  STARLING_ASSIGN_OR_RETURN(const std::string type, StringMember(*post, "post_processor", "type"));
  if (type != "TemplateProcessing") {
    return WrongJson("post_processor", absl::StrCat("'", type, "' is not supported"));
  }
  PostTemplate result;
  STARLING_ASSIGN_OR_RETURN(result.single, ParseTemplate(*post, "single", false, vocab_size));
  STARLING_ASSIGN_OR_RETURN(result.pair, ParseTemplate(*post, "pair", true, vocab_size));
  return std::optional<PostTemplate>(std::move(result));
}

absl::StatusOr<std::optional<MetaspaceDecoder>> ParseDecoder(const Json& root) {
  const Json* decoder = OptionalMember(root, "decoder");
  if (decoder == nullptr) return std::optional<MetaspaceDecoder>();
  STARLING_ASSIGN_OR_RETURN(const std::string type, StringMember(*decoder, "decoder", "type"));
  if (type != "Metaspace") {
    return WrongJson("decoder", absl::StrCat("'", type, "' is not supported"));
  }
  STARLING_ASSIGN_OR_RETURN(MetaspaceOptions options, ParseMetaspace(*decoder, "decoder"));
  return std::optional<MetaspaceDecoder>(
      MetaspaceDecoder{std::move(options.replacement), options.scheme != PrependScheme::kNever});
}

absl::Status CheckHead(const Json& root) {
  if (!root.is_object()) return WrongJson("the file", "is not a JSON object");
  if (const Json* version = OptionalMember(root, "version");
      version != nullptr && *version != "1.0") {
    return WrongJson("version", "is not \"1.0\"");
  }
  for (const char* key : {"truncation", "padding"}) {
    if (OptionalMember(root, key) != nullptr) {
      return WrongJson(key, "is set, which is not supported: make it null");
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSpec> ParseTokenizerJson(std::string_view text) {
  const Json root = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) return absl::DataLossError("not valid JSON (cut short or damaged)");
  STARLING_RETURN_IF_ERROR(CheckHead(root));
  TokenizerSpec spec;
  if (const Json* normalizer = OptionalMember(root, "normalizer"); normalizer != nullptr) {
    STARLING_RETURN_IF_ERROR(ParseNormalizer(*normalizer, "normalizer", &spec.normalizers));
  }
  if (const Json* cutter = OptionalMember(root, "pre_tokenizer"); cutter != nullptr) {
    STARLING_RETURN_IF_ERROR(ParsePreTokenizer(*cutter, "pre_tokenizer", &spec.pre_tokenizers));
  }
  const Json* model = OptionalMember(root, "model");
  if (model == nullptr) return WrongJson("model", "is missing: this is no tokenizer.json");
  STARLING_ASSIGN_OR_RETURN(spec.model, ParseModel(*model));
  STARLING_ASSIGN_OR_RETURN(spec.added_tokens, ParseAddedTokens(root, spec.model));
  auto vocab_size = static_cast<int32_t>(spec.model.pieces().size());
  for (const AddedToken& token : spec.added_tokens) vocab_size = std::max(vocab_size, token.id + 1);
  STARLING_ASSIGN_OR_RETURN(spec.post_template, ParsePostProcessor(root, vocab_size));
  STARLING_ASSIGN_OR_RETURN(spec.decoder, ParseDecoder(root));
  return spec;
}

}  // namespace starling::data
