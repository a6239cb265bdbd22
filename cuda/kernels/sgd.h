// Optimizers with one moment or none over many tensors in one launch: stochastic gradient descent with momentum and
// decay, and Lion. For every element, by SgdRule::momentum:
//   v = momentum v + (scale g + decay w);  w -= lr v;  low = round(w)
// Contract, and the other rules: sgd of core/kernels.h. All f32; the low copy float, bf16 or f16.
// Bytes per element with momentum and a 16-bit copy: reads 12, writes 10. 5 FLOPs (Nesterov 7, Lion 10).
#pragma once

#include <cstdint>
#include <span>

#include "core/kernels.h"
#include "cuda/device/device.h"

namespace trireme::cuda {

template <class Low>
struct SgdTensor {
  const float* gradient;
  float* weight;
  float* velocity;  ///< null: plain descent, v = scale g + decay w; with SgdRule::momentum only
  Low* low;         ///< may be null
  std::int64_t count;
  float decay;
};

struct SgdSettings {
  float lr, momentum, scale;
  SgdRule rule = SgdRule::momentum;
  float blend = 0;  ///< Lion's beta1
};

/// `scale` (in device memory, may be null): as for adamw() of cuda/kernels/optimizer.h.
template <class Low>
void sgd(std::span<const SgdTensor<Low>> tensors, const SgdSettings& settings, const float* scale = nullptr,
         Stream stream = nullptr);

}  // namespace trireme::cuda
