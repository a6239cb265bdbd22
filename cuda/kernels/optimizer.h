// Fused AdamW over many tensors in one launch.
//
// For every element: g = scale * gradient; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g g;
//   w -= lr (m / c1 / (sqrt(v / c2) + eps) + decay w), with c = 1 - b^step; low = round(w).
// (Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019, algorithm 2.)
// Per element with a 16-bit gradient and low copy: reads 2 + 4 + 4 + 4, writes 4 + 4 + 4 + 2 = 28 bytes, with
// an f32 gradient 30; 18 FLOPs. At less than one FLOP per byte, memory bandwidth alone sets the time.
#pragma once

#include <cstdint>
#include <span>

#include "cuda/device/device.h"

namespace trireme::cuda {

/// One parameter, with gradients in G and a copy of the weights in Low (float, bf16 or f16): both of one type, or f32
/// gradients with a 16-bit copy. Pointers need only the alignment of their elements.
template <class G, class Low = G>
struct AdamWTensor {
  float* weight;      ///< [count] master weights
  float* m;           ///< [count]
  float* v;           ///< [count]
  const G* gradient;  ///< [count]
  Low* low;           ///< [count] the weight rounded to Low; may be null
  std::int64_t count;
  float decay;  ///< weight decay of this tensor: 0 for biases and norms
};

struct AdamWSettings {
  float lr, beta1, beta2, eps;
  float inverse1, inverse2;  ///< 1 / (1 - beta^step), computed in f64 by the host
  float gradient_scale;      ///< multiplies the gradients first
};

constexpr int kOptimizerTile = 4096;       ///< elements a block handles
constexpr int kOptimizerMostTensors = 64;  ///< per launch; more tensors take another launch

/// `scale` (in device memory, may be null) takes the place of settings.gradient_scale: update_scale() of
/// cuda/kernels/update_scale.h computes it from the norm, so no step waits for the host. If it is NaN, as after an
/// overflow, weights and moments stay as they are, and `low` is written from the weights.
template <class G, class Low>
void adamw(std::span<const AdamWTensor<G, Low>> tensors, const AdamWSettings& settings, const float* scale = nullptr,
           Stream stream = nullptr);

}  // namespace trireme::cuda
