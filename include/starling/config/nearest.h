// "Did you mean …?": the known word closest to a mistyped one. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace starling::config {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
size_t EditDistance(std::string_view a, std::string_view b);

// The candidate with the smallest distance, the first of equals; "" when none is within a third of
// the word's length (at least 2 edits are allowed).
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace starling::config
