// The ladder of AdamW with clipping, over all tensors of a model (formulas: cuda/kernels/optimizer.h). From a bf16
// gradient, f32 weights and moments to the same and a bf16 copy of the weights: 28 bytes per element, 3.5 GB for GPT-2
// 124M: 726 us at 4.8 TB/s. No level can be faster; the last one should come near.
// Read next: examples/cuda_lab/adamw/1_unfused.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include "cuda/kernels/optimizer.h"
#include "examples/cuda_lab/level.h"

namespace trireme::cuda::lab::adamw {

struct Problem {
  std::span<const AdamWTensor<bf16>> tensors;  ///< in host memory; their pointers lead to device memory
  AdamWSettings settings;
  float max_norm;              ///< 0: no clipping
  const double* norm_squared;  ///< [1] in device memory: of all gradients, before the scale
  float* scaled;               ///< [elements of the largest tensor] workspace
};

/// min(1, max_norm / norm) / loss scale; negative when the norm is not finite: the step is to be skipped.
__device__ __forceinline__ float factor_of(const AdamWSettings& s, float max_norm, const double* norm_squared) {
  const float norm = sqrtf(static_cast<float>(*norm_squared)) * s.gradient_scale;
  if (!(norm < 3.4e38F)) return -1.0F;
  return max_norm > 0 && norm > max_norm ? s.gradient_scale * (max_norm / norm) : s.gradient_scale;
}
__device__ __forceinline__ void update(float& w, float& m, float& v, float g, float decay, const AdamWSettings& s) {
  m = s.beta1 * m + (1.0F - s.beta1) * g;
  v = s.beta2 * v + (1.0F - s.beta2) * g * g;
  w -= s.lr * (m * s.inverse1 / (sqrtf(v * s.inverse2) + s.eps) + decay * w);
}

constexpr int kThreads = 256;

inline Dim3 grid_of(std::int64_t count, int per_thread) {
  return {static_cast<unsigned>((count + kThreads * per_thread - 1) / (kThreads * per_thread)), 1, 1};
}

void unfused(const Problem& p, Stream stream = nullptr);
void vectors(const Problem& p, Stream stream = nullptr);
void fused(const Problem& p, Stream stream = nullptr);
void shipped(const Problem& p, Stream stream = nullptr);

std::span<const Level<Problem>> levels();

}  // namespace trireme::cuda::lab::adamw
