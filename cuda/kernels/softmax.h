// Softmax over rows and its gradient.
//   y = exp(x - max) / sum;   dx = y (dy - sum(y dy))
// Contracts: softmax and softmax_backward of core/kernels.h. float, bf16 and f16; sums in f32. Bytes per value of b
// bytes: forward reads x and writes y: 2 b from memory. It reads rows beyond 1024 columns twice, the second time from
// the L2 cache. So does backward with all rows: 3 b from memory. Sums are in a fixed order.
#pragma once

#include <cstdint>

#include "cuda/device/device.h"

namespace trireme::cuda {

/// x, y [rows, width]; y may be x.
template <class T>
void softmax(const T* x, T* y, std::int64_t rows, std::int64_t width, Stream stream = nullptr);

/// y, dy, dx [rows, width]; dx may be dy.
template <class T>
void softmax_backward(const T* y, const T* dy, T* dx, std::int64_t rows, std::int64_t width, Stream stream = nullptr);

}  // namespace trireme::cuda
