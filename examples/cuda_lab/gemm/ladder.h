// The ladder of matrix products: from one thread per element to the kernels in use, one idea a level. Every level
// computes c = a b from bf16, in f32, so that levels differ only in speed.
//
// A level's limit is counted, not guessed: for a block's step along K, its FLOPs, the wavefronts that its loads
// take in L1 and shared memory (one per clock and multiprocessor: 128 different bytes, or one line; at least one
// per load of a warp), and the bytes it reads from L2. The slowest of the three is the level's limit; a GPU stays
// below it.
// Read next: examples/cuda_lab/gemm/1_naive.cu, then the next levels; docs/ladder.md explains them.
#pragma once

#include <cstdint>
#include <span>

#include "cuda/device/device.h"

namespace trireme::cuda::lab {

/// c [M, N] = a [M, K] b [K, N], all dense and row-major. M, N and K are multiples of 8, and addresses of 16 bytes, so
/// that rows can be copied in pieces of 16 bytes; cuda/kernels/gemm.h has the general product.
struct Product {
  int m, n, k;
  const bf16* a;
  const bf16* b;
  float* c;
};

enum class Unit : std::uint8_t { fma, tensor_core };

/// What a block does for a step along K.
struct Cost {
  Unit unit;
  double flops;
  double wavefronts;  ///< of loads from L1 and shared memory, over the block's warps
  double l2_bytes;    ///< read from L2, if a block's concurrent repeated reads hit L1
};

struct Level {
  const char* name;
  const char* idea;  ///< what is new
  void (*run)(const Product&, Stream);
  Cost cost;
};

/// Clocks per multiprocessor of an H200 (sm_90) for a Cost: by arithmetic, wavefronts and bytes.
struct Clocks {
  double arithmetic, wavefronts, l2;
  double slowest() const;
  const char* bound() const;  ///< the name of the slowest
};
Clocks clocks(const Cost& cost);
/// TFLOP/s that a whole H200 cannot exceed with blocks of this cost.
double limit_tflops(const Cost& cost);

void naive(const Product& p, Stream stream = nullptr);
void coalesced(const Product& p, Stream stream = nullptr);
void shared_tiles(const Product& p, Stream stream = nullptr);
void register_tiles(const Product& p, Stream stream = nullptr);
void pipelined(const Product& p, Stream stream = nullptr);
void tensor_cores(const Product& p, Stream stream = nullptr);
void shipped_sm80(const Product& p, Stream stream = nullptr);
void shipped_sm90(const Product& p, Stream stream = nullptr);

std::span<const Level> gemm_levels();

}  // namespace trireme::cuda::lab
