// The k largest values of each row, for the router of a mixture of experts: their columns, the largest value first, and
// of equal values the lower column first. Contract: top_k of core/kernels.h. float, bf16 and f16.
// Bytes: each value of b bytes is read once from memory: b width + 4 k per row. Rows beyond 256 columns are read k
// times, from the caches after the first time.
#pragma once

#include <cstdint>

#include "cuda/device/device.h"

namespace trireme::cuda {

/// x [rows, width], chosen [rows, k]. 1 <= k <= width.
template <class T>
void top_k(const T* x, std::int32_t* chosen, std::int64_t rows, std::int64_t width, std::int64_t k,
           Stream stream = nullptr);

}  // namespace trireme::cuda
