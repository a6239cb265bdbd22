// Running sums along the middle dim. Contract: cumsum of core/kernels.h, for float, bf16 and f16, with sums in f32.
// Bytes per element of b bytes: 2 b. A thread walks one column, so the loads of a warp are together where columns are;
// with one column per matrix (sums over the last dim), each thread reads a row of its own through the cache.
#pragma once

#include <cstdint>

#include "cuda/device/device.h"

namespace trireme::cuda {

/// x, y [matrices, length, width]; sums from the end on if `reverse`.
template <class T>
void cumsum(const T* x, T* y, std::int64_t matrices, std::int64_t length, std::int64_t width, bool reverse,
            Stream stream = nullptr);

}  // namespace trireme::cuda
