// The device header: all that a kernel needs beyond plain C++. nvcc.h (inline PTX) and the emulator both implement the
// same names. Below them are helpers that are the same on both.
//
// Rules that keep one source for both: kernels start only through launch(); shared memory comes only from the two
// TRIREME_..._SHARED macros; PTX, barriers and waits only from here; blocks never wait for each other.
// Read next: cuda/kernels/norm.cu, the simplest whole kernel.
#pragma once

#if defined(__CUDACC__)
#include "cuda/device/nvcc.h"
#else
#include "cuda/emu/device.h"
#endif

namespace trireme::cuda {

/// N values that move in one load or store; 16 bytes are the widest.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
};

/// How many values of T fill a 16-byte load.
template <class T>
inline constexpr int kPackSize = 16 / static_cast<int>(sizeof(T));

struct Sum {
  __device__ static float join(float a, float b) { return a + b; }
  static constexpr float kNeutral = 0.0F;
};
struct Max {
  __device__ static float join(float a, float b) { return a > b ? a : b; }
  static constexpr float kNeutral = -3.4e38F;
};

/// Every lane gets the reduction over the warp: five shuffles, in the same order on every run.
template <class Op>
__device__ __forceinline__ float reduce_warp(float value) {
  TRIREME_UNROLL
  for (int bits = 16; bits > 0; bits /= 2) value = Op::join(value, shuffle_xor(value, bits));
  return value;
}

/// Every thread gets the reduction over the block; the block is one-dimensional, a multiple of 32, up to 1024.
/// `scratch` [32] in shared memory must be free; the first barrier separates this call from an earlier one.
template <class Op>
__device__ __forceinline__ float reduce_block(float value, float* scratch) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int warps = static_cast<int>(blockDim.x / 32);
  value = reduce_warp<Op>(value);
  sync_threads();
  if (lane == 0) scratch[warp] = value;
  sync_threads();
  return reduce_warp<Op>(lane < warps ? scratch[lane] : Op::kNeutral);
}

}  // namespace trireme::cuda
