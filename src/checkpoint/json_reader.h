// Strict reading of one JSON object: every key must be there, have its type, and no other key may
// be. The first fault is kept and later reads return empty values, so that a caller reads all keys
// and asks once. Not thread-safe; the JSON value must outlive the reader.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace starling::checkpoint {

class JsonReader {
 public:
  // `path` says in messages where the object is, e.g. "manifest.parts[3]".
  JsonReader(const nlohmann::json& json, std::string path) : json_(&json), path_(std::move(path)) {
    if (!json.is_object()) status_ = absl::DataLossError(absl::StrCat(path_, " is not an object"));
  }

  std::string String(const std::string& key) {
    const nlohmann::json* value = Get(key, "a string", &nlohmann::json::is_string);
    return value == nullptr ? "" : value->get<std::string>();
  }
  uint64_t Unsigned(const std::string& key) {
    const nlohmann::json* value =
        Get(key, "a non-negative integer", &nlohmann::json::is_number_unsigned);
    return value == nullptr ? 0 : value->get<uint64_t>();
  }
  // Non-negative and below 2^63.
  int64_t Integer(const std::string& key) {
    const uint64_t value = Unsigned(key);
    if (value > kMaxInteger) Fail(key, "is too large");
    return value > kMaxInteger ? 0 : static_cast<int64_t>(value);
  }
  std::vector<int64_t> Integers(const std::string& key) {
    std::vector<int64_t> integers;
    const nlohmann::json* value = Get(key, "a list", &nlohmann::json::is_array);
    for (size_t i = 0; value != nullptr && i < value->size(); ++i) {
      const nlohmann::json& item = (*value)[i];
      if (!item.is_number_unsigned() || item.get<uint64_t>() > kMaxInteger) {
        Fail(key, "has an element that is not a non-negative integer");
        return {};
      }
      integers.push_back(static_cast<int64_t>(item.get<uint64_t>()));
    }
    return integers;
  }
  std::map<std::string, std::string> Strings(const std::string& key) {
    std::map<std::string, std::string> strings;
    const nlohmann::json* value = Get(key, "an object", &nlohmann::json::is_object);
    if (value == nullptr) return strings;
    for (const auto& item : value->items()) {
      if (item.value().is_string()) strings[item.key()] = item.value().get<std::string>();
      if (!item.value().is_string()) Fail(key, "has a value that is not a string");
    }
    return strings;
  }
  JsonReader Object(const std::string& key) {
    static const nlohmann::json* const kEmpty = new nlohmann::json(nlohmann::json::object());
    const nlohmann::json* value = Get(key, "an object", &nlohmann::json::is_object);
    return JsonReader(value == nullptr ? *kEmpty : *value, absl::StrCat(path_, ".", key));
  }
  // Elements that are not objects show up in the status of their own reader.
  std::vector<JsonReader> Objects(const std::string& key) {
    std::vector<JsonReader> objects;
    const nlohmann::json* value = Get(key, "a list", &nlohmann::json::is_array);
    for (size_t i = 0; value != nullptr && i < value->size(); ++i) {
      objects.emplace_back((*value)[i], absl::StrCat(path_, ".", key, "[", i, "]"));
    }
    return objects;
  }

  // The first fault so far.
  const absl::Status& status() const { return status_; }
  // As status(), and DataLoss when the object has a key that nobody read.
  absl::Status Finish() {
    if (!status_.ok()) return status_;
    for (const auto& item : json_->items()) {
      if (!read_.contains(item.key())) return Error(item.key(), "is an unknown key");
    }
    return absl::OkStatus();
  }
  // DataLoss about `key`.
  absl::Status Error(const std::string& key, const std::string& what) const {
    return absl::DataLossError(absl::StrCat(path_, ".", key, " ", what));
  }

 private:
  static constexpr uint64_t kMaxInteger = std::numeric_limits<int64_t>::max();

  void Fail(const std::string& key, const std::string& what) {
    if (status_.ok()) status_ = Error(key, what);
  }
  const nlohmann::json* Get(const std::string& key, const char* type,
                            bool (nlohmann::json::*is)() const noexcept) {
    if (!status_.ok()) return nullptr;
    read_.insert(key);
    const auto found = json_->find(key);
    if (found == json_->end()) {
      Fail(key, "is missing");
      return nullptr;
    }
    if (!((*found).*is)()) {
      Fail(key, absl::StrCat("is not ", type));
      return nullptr;
    }
    return &*found;
  }

  const nlohmann::json* json_;
  std::string path_;
  std::set<std::string> read_;
  absl::Status status_;
};

}  // namespace starling::checkpoint
