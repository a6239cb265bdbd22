// The norms of rows that fit in registers: up to 8192 values in 16 bits, 4096 in f32. cuda/kernels/norm.cu calls these,
// and has kernels of its own for wider rows.
// Read next: cuda/kernels/norm_narrow.cu.
#pragma once

#include "cuda/kernels/norm.h"

namespace trireme::cuda::narrow {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kMostPieces = 4;  // of 16 bytes, of a lane

/// The widest row: all warps of a block take it together.
template <class T>
constexpr int kMostWidth = kMostPieces* kThreads* kPackSize<T>;

/// Warps that take a row together: as few as possible, so that more rows are in flight.
template <class T>
constexpr int warps_of_row(int width) {
  int warps = 1;
  while (warps * 32 * kMostPieces * kPackSize<T> < width) warps *= 2;
  return warps;
}

template <class T>
void norm_forward(const NormForward<T>& norm, Stream stream);
/// Writes the partial sums of the parameters' gradients; norm.cu adds them.
template <class T>
void norm_backward(const NormBackward<T>& norm, Stream stream);

}  // namespace trireme::cuda::narrow
