// Sentence segmentation against the vectors of razdel 0.5.0: spans, the rule that decided at every
// candidate, and the properties that hold for any text.
#include "starling/data/sentences.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "starling/base/rng.h"
#include "support/parity.h"

namespace starling::data {
namespace {

using Json = nlohmann::json;

std::vector<std::string> Split(const std::string& text) {
  std::vector<std::string> sentences;
  for (const ByteSpan span : SegmentSentences(text)) {
    sentences.push_back(text.substr(span.begin, span.end - span.begin));
  }
  return sentences;
}

TEST_CASE("sentences: parity file, every span and every decision is equal", "[data]") {
  const Json file = Json::parse(testing::ReadWhole(testing::ParityPath("p19_sentences.json")));
  REQUIRE(file["cases"].size() > 100);
  for (const Json& expected : file["cases"]) {
    const std::string text = expected["text"];
    CAPTURE(text);
    std::vector<SentenceDecision> decisions;
    const std::vector<ByteSpan> spans = SegmentSentences(text, &decisions);
    REQUIRE(spans.size() == expected["sentences"].size());
    for (size_t i = 0; i < spans.size(); ++i) {
      const Json& sentence = expected["sentences"][i];
      CHECK(CodePointOffset(text, spans[i].begin) == sentence[0].get<size_t>());
      CHECK(CodePointOffset(text, spans[i].end) == sentence[1].get<size_t>());
      CHECK(text.substr(spans[i].begin, spans[i].end - spans[i].begin) == sentence[2]);
    }
    REQUIRE(decisions.size() == expected["decisions"].size());
    for (size_t i = 0; i < decisions.size(); ++i) {
      const Json& decision = expected["decisions"][i];
      const ByteSpan at = decisions[i].delimiter;
      CHECK(text.substr(at.begin, at.end - at.begin) == decision[0]);
      CHECK(SentenceRuleName(decisions[i].rule) ==
            (decision[1].is_null() ? "" : decision[1].get<std::string>()));
      CHECK(decisions[i].join == (decision[2] == "join"));
    }
  }
}

TEST_CASE("sentences: blank text, one empty sentence", "[data]") {
  for (const std::string text : {"", " ", "\n\t\u00a0", "\u2028"}) {
    CHECK(SegmentSentences(text) == std::vector<ByteSpan>{{0, 0}});
  }
}

TEST_CASE("sentences: abbreviations, initials, bullets and dialogue stay together", "[data]") {
  CHECK(Split("А. П. Чехов жил в г. Таганроге. Там тепло.").size() == 2);
  CHECK(Split("Он пришёл и т. д. Потом ушёл.").size() == 2);
  CHECK(Split("И. о. директора вышел.").size() == 1);
  CHECK(Split("1. Первый пункт. 2. Второй пункт.") ==
        std::vector<std::string>{"1. Первый пункт.", "2. Второй пункт."});
  CHECK(Split("«Иди!» — сказал он. Я ушёл.").size() == 2);
}

TEST_CASE("sentences: any bytes, spans are ordered and only white space lies between them",
          "[data]") {
  const std::vector<std::string> parts = {".",        "!",   "…", "»",  "\"", ")",    " ",
                                          "\n",       "а",   "Б", "1",  "т",  "\xFF", "\xD0",
                                          "\xE2\x80", ";-)", "—", "IV", "_"};
  for (uint64_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    std::string text;
    for (uint32_t i = 0; i < 30; ++i) {
      text += parts[ToBounded(Draw({.seed = seed, .counter = i}), parts.size())];
    }
    size_t end = 0;
    for (const ByteSpan span : SegmentSentences(text)) {
      REQUIRE(span.begin >= end);
      REQUIRE(span.end >= span.begin);
      REQUIRE(text.substr(end, span.begin - end).find_first_not_of(" \n") == std::string::npos);
      end = span.end;
    }
    CHECK(text.substr(end).find_first_not_of(" \n") == std::string::npos);
  }
}

}  // namespace
}  // namespace starling::data
