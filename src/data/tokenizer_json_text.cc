#include "data/tokenizer_json_text.h"

#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "data/utf8.h"

namespace starling::data {
namespace {

// Sequences may hold sequences; nobody nests them deeper than this.
constexpr int kMaxNesting = 16;

std::string Element(const std::string& where, const char* key, size_t index) {
  return absl::StrCat(where, ".", key, "[", index, "]");
}

absl::StatusOr<TextPattern> ParsePattern(const Json& json, const std::string& where) {
  STARLING_ASSIGN_OR_RETURN(const Json* pattern, Member(json, where, "pattern"));
  const std::string place = where + ".pattern";
  absl::StatusOr<TextPattern> parsed =
      absl::InvalidArgumentError("is neither {\"String\": …} nor {\"Regex\": …}");
  if (const Json* text = OptionalMember(*pattern, "String"); text != nullptr && text->is_string()) {
    parsed = TextPattern::Literal(text->get<std::string>());
  } else if (const Json* regex = OptionalMember(*pattern, "Regex");
             regex != nullptr && regex->is_string()) {
    parsed = TextPattern::Regex(regex->get<std::string>());
  }
  if (!parsed.ok()) return Annotate(parsed.status(), place);
  return parsed;
}

absl::StatusOr<DelimiterBehavior> ParseBehavior(const Json& json, const std::string& where) {
  static const auto* const names = new std::map<std::string, DelimiterBehavior>{
      {"Removed", DelimiterBehavior::kRemoved},
      {"Isolated", DelimiterBehavior::kIsolated},
      {"MergedWithPrevious", DelimiterBehavior::kMergedWithPrevious},
      {"MergedWithNext", DelimiterBehavior::kMergedWithNext},
      {"Contiguous", DelimiterBehavior::kContiguous}};
  STARLING_ASSIGN_OR_RETURN(const std::string name, StringMember(json, where, "behavior"));
  const auto found = names->find(name);
  if (found == names->end()) {
    return WrongJson(where + ".behavior", absl::StrCat("'", name, "' is not supported"));
  }
  return found->second;
}

absl::StatusOr<std::unique_ptr<Normalizer>> ParseReplace(const Json& json,
                                                         const std::string& where) {
  STARLING_ASSIGN_OR_RETURN(TextPattern pattern, ParsePattern(json, where));
  STARLING_ASSIGN_OR_RETURN(std::string content, StringMember(json, where, "content"));
  return MakeReplace(std::move(pattern), std::move(content));
}

absl::StatusOr<std::unique_ptr<Normalizer>> ParsePrecompiled(const Json& json,
                                                             const std::string& where) {
  STARLING_ASSIGN_OR_RETURN(const std::string base64,
                            StringMember(json, where, "precompiled_charsmap"));
  std::string charsmap;
  if (!absl::Base64Unescape(base64, &charsmap)) {
    return WrongJson(where + ".precompiled_charsmap", "is not base64");
  }
  auto made = MakePrecompiled(charsmap);
  if (!made.ok()) return Annotate(made.status(), where);
  return made;
}

absl::StatusOr<std::unique_ptr<Normalizer>> ParseStrip(const Json& json, const std::string& where) {
  STARLING_ASSIGN_OR_RETURN(const bool left, BoolMember(json, where, "strip_left"));
  STARLING_ASSIGN_OR_RETURN(const bool right, BoolMember(json, where, "strip_right"));
  return MakeStrip(left, right);
}

absl::StatusOr<std::unique_ptr<Normalizer>> ParseOneNormalizer(const Json& json,
                                                               const std::string& where,
                                                               const std::string& type) {
  if (type == "Nmt") return MakeNmt();
  if (type == "NFC") return MakeNormalizationForm(NormalizationForm::kNfc);
  if (type == "NFD") return MakeNormalizationForm(NormalizationForm::kNfd);
  if (type == "NFKC") return MakeNormalizationForm(NormalizationForm::kNfkc);
  if (type == "NFKD") return MakeNormalizationForm(NormalizationForm::kNfkd);
  if (type == "StripAccents") return MakeStripAccents();
  if (type == "Lowercase") return MakeLowercase();
  if (type == "Replace") return ParseReplace(json, where);
  if (type == "Precompiled") return ParsePrecompiled(json, where);
  if (type == "Strip") return ParseStrip(json, where);
  if (type == "Prepend") {
    STARLING_ASSIGN_OR_RETURN(std::string content, StringMember(json, where, "prepend"));
    return MakePrepend(std::move(content));
  }
  return WrongJson(where, absl::StrCat("'", type, "' is not a supported normalizer"));
}

absl::Status ParseNormalizerAt(const Json& json, const std::string& where, int depth,
                               NormalizerChain* out) {
  STARLING_ASSIGN_OR_RETURN(const std::string type, StringMember(json, where, "type"));
  if (type != "Sequence") {
    STARLING_ASSIGN_OR_RETURN(std::unique_ptr<Normalizer> normalizer,
                              ParseOneNormalizer(json, where, type));
    out->push_back(std::move(normalizer));
    return absl::OkStatus();
  }
  if (depth >= kMaxNesting) return WrongJson(where, "is nested too deeply");
  STARLING_ASSIGN_OR_RETURN(const Json* members, ArrayMember(json, where, "normalizers"));
  for (size_t i = 0; i < members->size(); ++i) {
    STARLING_RETURN_IF_ERROR(
        ParseNormalizerAt((*members)[i], Element(where, "normalizers", i), depth + 1, out));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PreTokenizer>> ParseOnePreTokenizer(const Json& json,
                                                                   const std::string& where,
                                                                   const std::string& type) {
  if (type == "Metaspace") {
    STARLING_ASSIGN_OR_RETURN(MetaspaceOptions options, ParseMetaspace(json, where));
    return MakeMetaspace(std::move(options.replacement), options.scheme, options.split);
  }
  if (type == "Digits") {
    const bool together = false;
    STARLING_ASSIGN_OR_RETURN(const bool individual,
                              BoolMember(json, where, "individual_digits", &together));
    return MakeDigits(individual);
  }
  if (type == "Punctuation") {
    if (OptionalMember(json, "behavior") == nullptr) {
      return MakePunctuation(DelimiterBehavior::kIsolated);
    }
    STARLING_ASSIGN_OR_RETURN(const DelimiterBehavior behavior, ParseBehavior(json, where));
    return MakePunctuation(behavior);
  }
  if (type == "WhitespaceSplit") return MakeWhitespaceSplit();
  if (type == "Whitespace") return MakeWhitespace();
  if (type == "Split") {
    const bool plain = false;
    STARLING_ASSIGN_OR_RETURN(TextPattern pattern, ParsePattern(json, where));
    STARLING_ASSIGN_OR_RETURN(const DelimiterBehavior behavior, ParseBehavior(json, where));
    STARLING_ASSIGN_OR_RETURN(const bool invert, BoolMember(json, where, "invert", &plain));
    return MakeSplit(std::move(pattern), behavior, invert);
  }
  if (type == "CharDelimiterSplit") {
    STARLING_ASSIGN_OR_RETURN(const std::string delimiter, StringMember(json, where, "delimiter"));
    auto pattern = TextPattern::Literal(delimiter);
    if (!pattern.ok()) return Annotate(pattern.status(), where + ".delimiter");
    return MakeSplit(*std::move(pattern), DelimiterBehavior::kRemoved, false);
  }
  return WrongJson(where, absl::StrCat("'", type, "' is not a supported pre-tokenizer"));
}

absl::Status ParsePreTokenizerAt(const Json& json, const std::string& where, int depth,
                                 PreTokenizerChain* out) {
  STARLING_ASSIGN_OR_RETURN(const std::string type, StringMember(json, where, "type"));
  if (type != "Sequence") {
    STARLING_ASSIGN_OR_RETURN(std::unique_ptr<PreTokenizer> pre_tokenizer,
                              ParseOnePreTokenizer(json, where, type));
    out->push_back(std::move(pre_tokenizer));
    return absl::OkStatus();
  }
  if (depth >= kMaxNesting) return WrongJson(where, "is nested too deeply");
  STARLING_ASSIGN_OR_RETURN(const Json* members, ArrayMember(json, where, "pretokenizers"));
  for (size_t i = 0; i < members->size(); ++i) {
    STARLING_RETURN_IF_ERROR(
        ParsePreTokenizerAt((*members)[i], Element(where, "pretokenizers", i), depth + 1, out));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<MetaspaceOptions> ParseMetaspace(const Json& json, const std::string& where) {
  MetaspaceOptions options;
  STARLING_ASSIGN_OR_RETURN(options.replacement, StringMember(json, where, "replacement"));
  if (options.replacement.empty() ||
      DecodeAt(options.replacement, 0).bytes != options.replacement.size()) {
    return WrongJson(where + ".replacement", "is not a single character");
  }
  const bool yes = true;
  STARLING_ASSIGN_OR_RETURN(options.split, BoolMember(json, where, "split", &yes));
  // Old files have add_prefix_space alone, new ones prepend_scheme.
  STARLING_ASSIGN_OR_RETURN(const bool prefix, BoolMember(json, where, "add_prefix_space", &yes));
  if (!prefix) options.scheme = PrependScheme::kNever;
  if (OptionalMember(json, "prepend_scheme") == nullptr) return options;
  STARLING_ASSIGN_OR_RETURN(const std::string name, StringMember(json, where, "prepend_scheme"));
  if (!prefix && name != "never") {
    return WrongJson(where, absl::StrCat("has add_prefix_space false and prepend_scheme '", name,
                                         "', which contradict each other"));
  }
  if (name == "always") {
    options.scheme = PrependScheme::kAlways;
  } else if (name == "first") {
    options.scheme = PrependScheme::kFirst;
  } else if (name == "never") {
    options.scheme = PrependScheme::kNever;
  } else {
    return WrongJson(where + ".prepend_scheme", absl::StrCat("'", name, "' is not supported"));
  }
  return options;
}

absl::Status ParseNormalizer(const Json& json, const std::string& where, NormalizerChain* out) {
  return ParseNormalizerAt(json, where, 0, out);
}

absl::Status ParsePreTokenizer(const Json& json, const std::string& where, PreTokenizerChain* out) {
  return ParsePreTokenizerAt(json, where, 0, out);
}

}  // namespace starling::data
