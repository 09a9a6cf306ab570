// Element types of buffers, wire messages and checkpoint files. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace starling {

enum class DType : uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kBFloat16 = 2,
  kFloat16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint8 = 6,
  kUint64 = 7,
};

// Bytes of one element.
constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kUint64:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kUint8:
      return 1;
  }
  return 0;
}

// Name as in safetensors headers: "F32", "F64", "BF16", "F16", "I32", "I64", "U8", "U64".
std::string_view DTypeName(DType dtype);
std::optional<DType> ParseDType(std::string_view name);

}  // namespace starling
