// How large an upload may be that the host does not wait for. Both backends use it: a GPU's real one, and the emulated
// one when it counts waits. Read next: cuda/runtime/real.cpp.
#pragma once

#include <cstddef>

namespace trireme::cuda {

/// A piece of pinned memory that uploads pass through, and how many there are.
inline constexpr std::size_t kUploadPiece = std::size_t{1} << 18;
inline constexpr std::size_t kUploadPieces = 32;
/// Bytes. An upload takes as many pieces as it needs, at most half of them; a larger one waits. Token ids of a
/// micro-batch of 1024 sequences of 1024 tokens just fit.
inline constexpr std::size_t kLargestQueuedUpload = kUploadPiece * kUploadPieces / 2;

}  // namespace trireme::cuda
