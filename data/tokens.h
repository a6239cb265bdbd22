// Token ids, wherever they are: a TokenSource is a long read-only sequence, in memory or in mapped shards, and a
// TokenRange a piece of one. The sampler and the evaluation read through TokenRange and work with both.
// Read next: data/token_shard.h (mapped), data/corpus.h (who makes ranges).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace trireme {

/// Threads may read one source at the same time.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual std::int64_t count() const = 0;  ///< how many tokens there are
  /// Ids first .. first + out.size() - 1, which must exist.
  virtual void read(std::int64_t first, std::span<std::int32_t> out) const = 0;
};

/// A contiguous piece of a source. Copying one copies no tokens.
class TokenRange {
 public:
  TokenRange() = default;  ///< empty
  explicit TokenRange(std::shared_ptr<const TokenSource> source);

  std::int64_t count() const { return count_; }
  /// Tokens first .. first + count - 1 of this range.
  TokenRange part(std::int64_t first, std::int64_t count) const;
  /// Ids first .. first + out.size() - 1 of this range.
  void read(std::int64_t first, std::span<std::int32_t> out) const;

 private:
  std::shared_ptr<const TokenSource> source_;
  std::int64_t first_ = 0, count_ = 0;
};

/// Ids in memory, in the narrowest type that holds the vocabulary: u16 up to 65,536 ids, else i32.
class TokenBuffer {
 public:
  explicit TokenBuffer(std::int32_t vocab_size) : narrow_(vocab_size <= 65536) {}
  void append(std::span<const std::int32_t> ids);  ///< adds ids to the end
  /// Makes room for this many ids, so that adding them copies none.
  void reserve(std::size_t ids) { narrow_ ? small_.reserve(ids) : large_.reserve(ids); }
  std::int64_t count() const { return static_cast<std::int64_t>(narrow_ ? small_.size() : large_.size()); }
  /// The stored form: 2 or 4 bytes per token, little-endian.
  std::span<const std::byte> bytes() const;
  int bytes_per_token() const { return narrow_ ? 2 : 4; }
  void clear() { small_.clear(), large_.clear(); }                   ///< removes all ids
  void read(std::int64_t first, std::span<std::int32_t> out) const;  ///< ids first .. first + out.size() - 1

 private:
  bool narrow_;
  std::vector<std::uint16_t> small_;
  std::vector<std::int32_t> large_;
};

/// A finished buffer as a source.
std::shared_ptr<const TokenSource> in_memory(TokenBuffer tokens);

/// A hash of the ids themselves: the same for the same tokens in memory and in shards.
std::uint64_t hash_tokens(const TokenSource& tokens);

}  // namespace trireme
