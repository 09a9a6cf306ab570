// What secrets need: bytes that nobody can guess, and a comparison that tells nothing. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace starling {

// Fills `bytes` bytes at `out` from the operating system's source. Blocks only while the machine
// has just started.
void FillRandom(void* out, size_t bytes);

// So many random bytes as lower-case hexadecimal digits, two a byte.
std::string RandomHex(size_t bytes);

// Whether `a` and `b` are equal. The time it takes tells whether their lengths are, not where the
// first difference lies.
bool SameSecret(std::string_view a, std::string_view b);

}  // namespace starling
