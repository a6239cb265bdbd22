// Byte offsets of the shard format, for its reader and its writer. The table is in data/token_shard.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme::shard_layout {

inline constexpr std::string_view magic = "TRIMTOKS";
inline constexpr std::uint32_t version = 2;

inline constexpr std::size_t version_at = 8, width_at = 12, tokens_at = 16, documents_at = 24, first_token_at = 32,
                             tokenizer_at = 40, vocab_at = 48, last_at = 56, payload_hash_at = 64, header_hash_at = 72,
                             header_bytes = 80;

/// Offset of the document starts. The caller has bounded `tokens`, so that this cannot overflow.
constexpr std::size_t documents_begin(std::uint64_t tokens, std::uint64_t bytes_per_token) {
  return header_bytes + (tokens * bytes_per_token + 7) / 8 * 8;
}

}  // namespace trireme::shard_layout
