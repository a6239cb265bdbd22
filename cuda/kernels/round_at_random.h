// Rounding of f32 to bf16 at random, up or down, so that the expected value stays: for moments of an optimizer. The
// random word of element e of the whole tensor is random_word(seed, stream, e), as on the CPU, so every sharding and
// every device gives the same bits. Contract: round_at_random of core/kernels.h. Bytes per element: 6.
#pragma once

#include "cuda/kernels/dropout.h"

namespace trireme::cuda {

/// x, y dense.
void round_at_random(const float* x, bf16* y, std::uint64_t seed, std::uint64_t stream_id, const DropoutPlace& place,
                     Stream stream = nullptr);

}  // namespace trireme::cuda
