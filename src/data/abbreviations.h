// Russian abbreviations as razdel 0.5.0 (github.com/natasha/razdel, MIT License, Copyright natasha
// project) tells them apart. Sorted, lower case; the private part of sentences.h.
#pragma once

#include <string_view>

namespace starling::data {

// Two single letters with full stops ("т. е."). Head pairs stand before what they belong to and
// never end a sentence; the others may.
bool IsHeadPair(std::string_view left, std::string_view right);
// Any pair that is known, head pairs included. ("жен. р." and "муж. р." are not: the reference
// lists them as one unusable entry, and its borders are what we reproduce.)
bool IsKnownPair(std::string_view left, std::string_view right);
// Single abbreviations that never end a sentence ("ул", "проф").
bool IsHeadAbbreviation(std::string_view word);
// Single abbreviations that may end one ("руб", "млн", "рис"), head ones included.
bool IsKnownAbbreviation(std::string_view word);
// Parts of names that count as initials though they are longer than one letter.
bool IsInitials(std::string_view word);

}  // namespace starling::data
