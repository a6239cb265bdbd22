// LayerNorm and RMSNorm of rows, fused with the residual addition before them.
//   h = x + residual;  LayerNorm: y = (h - mean) rstd gamma + beta;  RMSNorm: y = h rstd gamma
//   rstd = 1 / sqrt(mean of (h - mean)^2 + eps), for RMSNorm 1 / sqrt(mean of h^2 + eps)
// (Ba, Kiros, Hinton, Layer Normalization, 2016; Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.)
// Bytes per value in 16 bits: forward reads x and residual, writes h and y: 8; backward reads h, dy and the residual
// stream's gradient, writes dx: 8. About 8 and 14 FLOPs. Memory bandwidth is the limit, so each row is read once.
#pragma once

#include <cstdint>

#include "cuda/device/device.h"

namespace trireme::cuda {

enum class Norm : std::uint8_t { layer, rms };

/// T: float, bf16 or f16. Rows are dense. width <= norm_max_width().
template <class T>
struct NormForward {
  Norm kind;
  int rows, width;
  const T* x;         ///< [rows, width]
  const T* residual;  ///< [rows, width] or null: h = x
  T* sum;             ///< [rows, width] receives h rounded to T; may be null when residual is
  const T* gamma;     ///< [width]
  const T* beta;      ///< [width]; null for RMSNorm, may be null for LayerNorm
  float eps;
  T* y;         ///< [rows, width]
  float* mean;  ///< [rows], for the backward; not used by RMSNorm
  float* rstd;  ///< [rows]
};

template <class T>
struct NormBackward {
  Norm kind;
  int rows, width;
  const T* h;  ///< [rows, width]: the input of the norm
  const T* gamma;
  const float* mean;
  const float* rstd;
  const T* dy;      ///< [rows, width]
  const T* dsum;    ///< [rows, width] or null: the gradient of h that bypasses the norm; added to dx
  T* dx;            ///< [rows, width]: the gradient of h, and so of x and of the residual
  float* dgamma;    ///< [width], overwritten
  float* dbeta;     ///< [width], overwritten; may be null
  float* partials;  ///< workspace [2, norm_backward_blocks(rows), width]
};

/// The widest row for the current device: the backward pass keeps two rows of f32 in shared memory. 29,040 on an H100
/// or H200, 20,848 on an A100. The forward pass keeps one, but has the same limit, so that training is refused early.
int norm_max_width();

/// The number of blocks of the backward pass: each sums the parameters' gradients over its rows, in order; then the
/// blocks' sums are added in order. There are no atomics, so every run gives the same bits.
int norm_backward_blocks(int rows);

template <class T>
void norm_forward(const NormForward<T>& norm, Stream stream = nullptr);
template <class T>
void norm_backward(const NormBackward<T>& norm, Stream stream = nullptr);

}  // namespace trireme::cuda
