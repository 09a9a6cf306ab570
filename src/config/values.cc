#include "config/values.h"

#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace starling::config {
namespace {

template <typename T>
std::optional<T> ParseNumber(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

bool IsPlainWord(const std::string& text) {
  for (char c : text) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' ||
                       c == '.' || c == '/' || (c & 0x80) != 0;
    if (!plain) return false;
  }
  // Words that start with a letter and are no YAML boolean or null cannot be mistaken.
  static constexpr const char* kReserved[] = {"true", "false", "yes", "no", "on",
                                              "off",  "null",  "y",   "n"};
  const std::string lower = absl::AsciiStrToLower(text);
  for (const char* word : kReserved) {
    if (lower == word) return false;
  }
  return !text.empty() && absl::ascii_isalpha(static_cast<unsigned char>(text[0]));
}

}  // namespace

std::optional<int64_t> ParseInt(const std::string& text) { return ParseNumber<int64_t>(text); }

std::optional<uint64_t> ParseUint(const std::string& text) { return ParseNumber<uint64_t>(text); }

std::optional<double> ParseDouble(const std::string& text) {
  const std::optional<double> value = ParseNumber<double>(text);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return value;
}

std::optional<bool> ParseBool(const std::string& text) {
  if (text == "true") return true;
  if (text == "false") return false;
  return std::nullopt;
}

std::optional<absl::Duration> ParseTime(const std::string& text) {
  absl::Duration value;
  if (!absl::ParseDuration(text.c_str(), &value)) return std::nullopt;
  if (value < absl::ZeroDuration() || value == absl::InfiniteDuration()) return std::nullopt;
  // Whole milliseconds are what messages between processes carry.
  if (value != absl::Floor(value, absl::Milliseconds(1))) return std::nullopt;
  return value;
}

std::string FormatDouble(double value) {
  char buffer[64];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, end);
}

std::string FormatTime(absl::Duration value) { return absl::FormatDuration(value); }

std::string FormatString(const std::string& value) {
  if (IsPlainWord(value)) return value;
  std::string quoted = "\"";
  for (char c : value) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&quoted, "\\", std::string(1, c));
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      absl::StrAppend(&quoted, "\\x", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace starling::config
