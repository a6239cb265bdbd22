// Rewrites the 16-bit copy of the weights in a step that the optimizer skips: weights and moments do not change, but
// the caller may have new memory for the copy. Read next: cuda/kernels/optimizer.cu and sgd.cu.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

/// low = weight, rounded, for elements [begin, end) of a tensor with the two; a block's work.
template <int kWidth, int kThreads, class Tensor>
__device__ void copy_low(const Tensor& t, std::int64_t begin, std::int64_t end) {
  using Low = std::remove_pointer_t<decltype(t.low)>;
  if (t.low == nullptr) return;
  for (std::int64_t i = begin + kWidth * static_cast<int>(threadIdx.x); i < end; i += kWidth * kThreads) {
    const int count = end - i < kWidth ? static_cast<int>(end - i) : kWidth;
    const auto weight = load_piece<kWidth>(t.weight + i, count);
    Pack<Low, kWidth> low;
    TRIREME_UNROLL
    for (int j = 0; j < kWidth; ++j) low.values[j] = from_float<Low>(weight.values[j]);
    store_piece(t.low + i, low, count);
  }
}

}  // namespace trireme::cuda
