// One 64-bit content hash for whatever is stored or compared: XXH3, which runs at memory speed.
// It detects damage and mix-ups, not malice.
// Read next: core/hash.cpp (a few lines over the xxHash library), data/token_shard.h (which uses it).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace trireme {

/// XXH3 (64 bits, seed 0) of these bytes.
std::uint64_t hash_bytes(std::span<const std::byte> bytes);
inline std::uint64_t hash_bytes(std::string_view text) { return hash_bytes(std::as_bytes(std::span(text))); }

/// The same hash over pieces: equals hash_bytes() of their concatenation.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void add(std::span<const std::byte> bytes);  ///< the next piece
  std::uint64_t value() const;                 ///< of all pieces so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
