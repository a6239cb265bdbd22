// LayerNorm and RMSNorm of rows that fit in registers: up to 8192 values of 16 bits, or 4096 in f32.
// cuda/kernels/norm.cu calls these, and has kernels of its own for wider rows.
// Read next: cuda/kernels/norm_narrow.cu.
#pragma once

#include "cuda/kernels/norm.h"

namespace trireme::cuda::narrow {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kMaxPieces = 4;  // of 16 bytes that a lane holds

/// The widest row: all warps of a block take it together.
template <class T>
constexpr int kMaxWidth = kMaxPieces* kThreads* kPackSize<T>;

/// Warps that take a row together: as few as possible, so that more rows are in flight.
template <class T>
constexpr int warps_of_row(int width) {
  int warps = 1;
  while (warps * 32 * kMaxPieces * kPackSize<T> < width) warps *= 2;
  return warps;
}

template <class T>
void norm_forward(const NormForward<T>& norm, Stream stream);
/// Writes dx, and partial sums of the gradients of gamma and beta, which norm.cu adds.
template <class T>
void norm_backward(const NormBackward<T>& norm, Stream stream);

}  // namespace trireme::cuda::narrow
