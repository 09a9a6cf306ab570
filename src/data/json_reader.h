// Access to JSON objects with errors that name the place. One thread.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "starling/base/status.h"

namespace starling::data {

using Json = nlohmann::json;

inline absl::Status WrongJson(const std::string& where, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(where, " ", what));
}

// The member `key` of the object `json`, which stands at `where`; an error when absent.
inline absl::StatusOr<const Json*> Member(const Json& json, const std::string& where,
                                          const char* key) {
  if (!json.is_object()) return WrongJson(where, "is not an object");
  const auto found = json.find(key);
  if (found == json.end()) return WrongJson(absl::StrCat(where, ".", key), "is missing");
  return &*found;
}

// The member `key`, or null when it is absent or null.
inline const Json* OptionalMember(const Json& json, const char* key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

inline absl::StatusOr<std::string> StringMember(const Json& json, const std::string& where,
                                                const char* key) {
  STARLING_ASSIGN_OR_RETURN(const Json* value, Member(json, where, key));
  if (!value->is_string()) return WrongJson(absl::StrCat(where, ".", key), "is not a string");
  return value->get<std::string>();
}

// `fallback` when the member is absent; without one (nullptr) that is an error.
inline absl::StatusOr<bool> BoolMember(const Json& json, const std::string& where, const char* key,
                                       const bool* fallback = nullptr) {
  if (fallback != nullptr && OptionalMember(json, key) == nullptr) return *fallback;
  STARLING_ASSIGN_OR_RETURN(const Json* value, Member(json, where, key));
  if (!value->is_boolean()) return WrongJson(absl::StrCat(where, ".", key), "is not true or false");
  return value->get<bool>();
}

inline absl::StatusOr<int32_t> IdValue(const Json& value, const std::string& where) {
  if (!value.is_number_integer() || value < 0 || value > std::numeric_limits<int32_t>::max() - 1) {
    return WrongJson(where, "is not an id (a number from 0)");
  }
  return value.get<int32_t>();
}

inline absl::StatusOr<int32_t> IdMember(const Json& json, const std::string& where,
                                        const char* key) {
  STARLING_ASSIGN_OR_RETURN(const Json* value, Member(json, where, key));
  return IdValue(*value, absl::StrCat(where, ".", key));
}

inline absl::StatusOr<const Json*> ArrayMember(const Json& json, const std::string& where,
                                               const char* key) {
  STARLING_ASSIGN_OR_RETURN(const Json* value, Member(json, where, key));
  if (!value->is_array()) return WrongJson(absl::StrCat(where, ".", key), "is not a list");
  return value;
}

}  // namespace starling::data
