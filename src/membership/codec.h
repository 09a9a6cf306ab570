// Little-endian bytes for journal records. The reader checks every bound and then stays failed, so
// a decoder reads all its fields and asks ok() once. One thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace starling::membership {

class ByteWriter {
 public:
  template <typename T>
  void Pod(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes_.append(raw, sizeof(T));
  }
  void U8(uint8_t value) { Pod(value); }
  void U64(uint64_t value) { Pod(value); }
  void I64(int64_t value) { Pod(value); }
  void Text(std::string_view text) {
    U64(text.size());
    bytes_.append(text);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T Pod() {
    T value{};
    if (bytes_.size() < sizeof(T)) {
      ok_ = false;
      bytes_ = {};
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_.remove_prefix(sizeof(T));
    return value;
  }
  uint8_t U8() { return Pod<uint8_t>(); }
  uint64_t U64() { return Pod<uint64_t>(); }
  int64_t I64() { return Pod<int64_t>(); }
  std::string Text() {
    const uint64_t size = U64();
    if (size > bytes_.size()) {
      ok_ = false;
      bytes_ = {};
      return {};
    }
    std::string text(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return text;
  }
  // Number of elements that follow, each of at least one byte; 0 and failed when that cannot be.
  uint64_t Count() {
    const uint64_t count = U64();
    if (count > bytes_.size()) {
      ok_ = false;
      bytes_ = {};
      return 0;
    }
    return count;
  }
  // All read, nothing left, nothing out of bounds.
  bool Complete() const { return ok_ && bytes_.empty(); }
  void Fail() { ok_ = false; }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace starling::membership
