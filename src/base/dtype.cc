#include "starling/base/dtype.h"

#include <array>
#include <utility>

namespace starling {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 8> kNames = {{
    {DType::kFloat32, "F32"},
    {DType::kFloat64, "F64"},
    {DType::kBFloat16, "BF16"},
    {DType::kFloat16, "F16"},
    {DType::kInt32, "I32"},
    {DType::kInt64, "I64"},
    {DType::kUint8, "U8"},
    {DType::kUint64, "U64"},
}};

}  // namespace

std::string_view DTypeName(DType dtype) {
  for (const auto& [value, name] : kNames) {
    if (value == dtype) return name;
  }
  return "?";
}

std::optional<DType> ParseDType(std::string_view name) {
  for (const auto& [value, text] : kNames) {
    if (text == name) return value;
  }
  return std::nullopt;
}

}  // namespace starling
