#include "comm/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

namespace starling::comm {
namespace {

constexpr int64_t kPieceElements = 2048;  // of a float accumulator: 8 KiB, in the first cache

// Loads and stores through memcpy: the memory is untyped and need not be aligned.
template <typename T>
T Load(const void* base, int64_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + index * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}
template <typename T>
void Store(void* base, int64_t index, T value) {
  std::memcpy(static_cast<char*>(base) + index * static_cast<int64_t>(sizeof(T)), &value,
              sizeof(T));
}

struct BFloat16 {
  static float ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
  static uint16_t FromFloat(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    const uint32_t quiet_nan = bits | 0x400000;
    return static_cast<uint16_t>((value != value ? quiet_nan : rounded) >> 16);
  }
};

struct Float16 {
  static float ToFloat(uint16_t bits) {
    const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
    const uint32_t exponent = (bits >> 10) & 31;
    const uint32_t mantissa = bits & 1023;
    if (exponent == 0) {  // zero or subnormal: mantissa · 2^-24
      const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
      return sign != 0 ? -magnitude : magnitude;
    }
    const uint32_t wide_exponent = exponent == 31 ? 255 : exponent + 112;
    return std::bit_cast<float>(sign | (wide_exponent << 23) | (mantissa << 13));
  }
  static uint16_t FromFloat(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
    const float magnitude = std::bit_cast<float>(bits & 0x7fffffff);
    if (value != value) return sign | 0x7e00;
    if (magnitude >= 65520.0f) return sign | 0x7c00;
    // Subnormals: the sum with 1/2 leaves mantissa · 2^-24, rounded to even, in the low bits.
    if (magnitude < 0x1p-14f) return sign | std::bit_cast<uint32_t>(magnitude + 0.5f) % 0x10000;
    const uint32_t positive = bits & 0x7fffffff;
    const uint32_t rounded = positive + 0xfff + ((positive >> 13) & 1);
    return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
  }
};

template <typename T>
T Max(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return (a < b || std::isnan(b)) ? b : a;
  } else {
    return a < b ? b : a;
  }
}

template <typename T>
T Sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {  // wraps around; signed overflow would be undefined
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(
        static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
  } else {
    return a + b;
  }
}

template <typename T>
void CombinePlain(ReduceOp op, void* acc, const void* src, int64_t count) {
  if (op == ReduceOp::kSum) {
    for (int64_t i = 0; i < count; ++i) Store(acc, i, Sum(Load<T>(acc, i), Load<T>(src, i)));
  } else if (op == ReduceOp::kMax) {
    for (int64_t i = 0; i < count; ++i) Store(acc, i, Max(Load<T>(acc, i), Load<T>(src, i)));
  } else if constexpr (std::is_integral_v<T>) {
    for (int64_t i = 0; i < count; ++i) {
      Store(acc, i, static_cast<T>(Load<T>(acc, i) | Load<T>(src, i)));
    }
  }
}

template <typename Half>
void CombineWide(ReduceOp op, void* acc, const void* src, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float a = Load<float>(acc, i);
    const float b = Half::ToFloat(Load<uint16_t>(src, i));
    Store(acc, i, op == ReduceOp::kSum ? a + b : Max(a, b));
  }
}

template <typename Half>
void StartWide(void* acc, const void* src, int64_t count) {
  for (int64_t i = 0; i < count; ++i) Store(acc, i, Half::ToFloat(Load<uint16_t>(src, i)));
}

template <typename Half>
void FinishWide(void* dst, const void* acc, int64_t count) {
  for (int64_t i = 0; i < count; ++i) Store(dst, i, Half::FromFloat(Load<float>(acc, i)));
}

void CopyElements(DType dtype, void* dst, const void* src, int64_t count) {
  if (dst != src && count > 0) std::memcpy(dst, src, static_cast<size_t>(count) * SizeOf(dtype));
}

}  // namespace

bool Supports(DType dtype, ReduceOp op) {
  const bool is_float =
      HasWideAccumulator(dtype) || dtype == DType::kFloat32 || dtype == DType::kFloat64;
  return op != ReduceOp::kOr || !is_float;
}

void Start(DType dtype, void* acc, const void* src, int64_t count) {
  if (dtype == DType::kBFloat16) return StartWide<BFloat16>(acc, src, count);
  if (dtype == DType::kFloat16) return StartWide<Float16>(acc, src, count);
  CopyElements(dtype, acc, src, count);
}

void Combine(DType dtype, ReduceOp op, void* acc, const void* src, int64_t count) {
  switch (dtype) {
    case DType::kFloat32:
      return CombinePlain<float>(op, acc, src, count);
    case DType::kFloat64:
      return CombinePlain<double>(op, acc, src, count);
    case DType::kInt32:
      return CombinePlain<int32_t>(op, acc, src, count);
    case DType::kInt64:
      return CombinePlain<int64_t>(op, acc, src, count);
    case DType::kUint64:
      return CombinePlain<uint64_t>(op, acc, src, count);
    case DType::kUint8:
      return CombinePlain<uint8_t>(op, acc, src, count);
    case DType::kBFloat16:
      return CombineWide<BFloat16>(op, acc, src, count);
    case DType::kFloat16:
      return CombineWide<Float16>(op, acc, src, count);
  }
}

void Finish(DType dtype, void* dst, const void* acc, int64_t count) {
  if (dtype == DType::kBFloat16) return FinishWide<BFloat16>(dst, acc, count);
  if (dtype == DType::kFloat16) return FinishWide<Float16>(dst, acc, count);
  CopyElements(dtype, dst, acc, count);
}

void ReduceInOrder(DType dtype, ReduceOp op, std::span<const void* const> sources, void* dst,
                   int64_t count) {
  alignas(64) std::byte accumulator[kPieceElements * sizeof(double)];
  const int64_t size = static_cast<int64_t>(SizeOf(dtype));
  for (int64_t begin = 0; begin < count; begin += kPieceElements) {
    const int64_t piece = std::min(kPieceElements, count - begin);
    const auto at = [&](const void* base) {
      return static_cast<const std::byte*>(base) + begin * size;
    };
    Start(dtype, accumulator, at(sources[0]), piece);
    for (size_t rank = 1; rank < sources.size(); ++rank) {
      Combine(dtype, op, accumulator, at(sources[rank]), piece);
    }
    Finish(dtype, static_cast<std::byte*>(dst) + begin * size, accumulator, piece);
  }
}

}  // namespace starling::comm
