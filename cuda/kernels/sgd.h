// Stochastic gradient descent with momentum and decay, for every element:
//   v = momentum v + (scale g + decay w);  w -= lr v;  low = round(w)
// Contract: sgd of core/kernels.h. All f32; the low copy float, bf16 or f16.
// Bytes per element with momentum and a 16-bit copy: reads 12, writes 10. 5 FLOPs.
#pragma once

#include <cstdint>

#include "cuda/device/device.h"

namespace trireme::cuda {

template <class Low>
struct Sgd {
  float lr, momentum, decay, scale;
  std::int64_t count;
  const float* gradient;
  float* weight;
  float* velocity;  ///< null: plain descent, v = scale g + decay w
  Low* low;         ///< may be null
};

template <class Low>
void sgd(const Sgd<Low>& problem, Stream stream = nullptr);

}  // namespace trireme::cuda
