// XXH3 by the xxHash library, compiled into this file alone: nothing to link, and no macro reaches other files.
#include "core/hash.h"

#define XXH_INLINE_ALL
#ifdef __AVX512F__
#define XXH_VECTOR \
  XXH_AVX2  // the same values; g++ 12 warns, wrongly, inside its own AVX-512 intrinsics (GCC bug 105593)
#endif
#include <xxhash.h>

namespace trireme {

struct Hasher::State {
  XXH3_state_t xxh;
};

std::uint64_t hash_bytes(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh); }

Hasher::~Hasher() = default;

void Hasher::add(std::span<const std::byte> bytes) { XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size()); }

std::uint64_t Hasher::value() const { return XXH3_64bits_digest(&state_->xxh); }

}  // namespace trireme
