// Layout of token files; the private part of token_file.h, shared by its writer and its reader.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace starling::data {

static_assert(std::endian::native == std::endian::little, "token files are mapped as they are");

struct TokenFileHeader {
  char magic[8];
  uint32_t version;
  uint32_t id_bytes;  // 2 or 4
  uint64_t vocab_size;
  uint64_t tokenizer_hash;
  uint64_t tokens;
  uint64_t sentences;
  uint64_t documents;
  uint32_t ids_crc;  // CRC32C of the token ids, without padding
  uint32_t sentence_offsets_crc;
  uint32_t document_offsets_crc;
  uint8_t reserved[56];  // zero
  uint32_t header_crc;   // CRC32C of the 124 bytes before it
};
static_assert(sizeof(TokenFileHeader) == 128);
static_assert(offsetof(TokenFileHeader, header_crc) == 124);

inline constexpr char kTokenFileMagic[8] = {'S', 'T', 'R', 'L', 'T', 'O', 'K', '\n'};

// Two bytes an id as long as they suffice.
inline uint32_t IdBytesFor(uint64_t vocab_size) { return vocab_size <= 0x10000 ? 2 : 4; }

// Bytes of padding after `bytes`, so that the next section starts at a multiple of 8.
inline uint64_t PaddingAfter(uint64_t bytes) { return (8 - bytes % 8) % 8; }

}  // namespace starling::data
