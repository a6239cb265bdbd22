// Level 3: the row stays in registers, as integers, between the rounds.
//
// Each value is loaded and converted once, for any k. A lane has room for two values, enough for a row of 64. An array
// is in registers only if all loops over it are unrolled, so each round visits all its places, also empty ones: with
// room for 256 columns, a row of 64 costs more than on level 2.
//
// Most of a warp's work for its row is now the five shuffles of a round, each of which waits for the previous one.
// Read next: cuda/kernels/top_k.cu, the kernel in use, and examples/cuda_lab/top_k/4_shipped.cpp on what it adds.
#include "core/error.h"
#include "cuda/kernels/order_key.h"
#include "examples/cuda_lab/top_k/ladder.h"

namespace trireme::cuda::lab::top_k {

namespace {

constexpr int kValues = kMostInRegisters / 32, kRows = kThreads / 32;

__global__ void __launch_bounds__(kThreads) in_registers_kernel(const __grid_constant__ Problem p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t row = std::int64_t{blockIdx.x} * kRows + static_cast<int>(threadIdx.x) / 32;
  if (row >= p.rows) return;  // uniform over the warp
  std::int64_t keys[kValues];
  TRIREME_UNROLL
  for (int i = 0; i < kValues; ++i) {
    const int c = 32 * i + lane;
    keys[i] = c < p.width ? order_key(p.x[row * p.width + c], c) : kNone;
  }
  std::int64_t last = kAll;
  for (int place = 0; place < p.k; ++place) {
    std::int64_t best = kNone;
    TRIREME_UNROLL
    for (const std::int64_t key : keys) best = larger_below(last, best, key);
    last = largest_of(best, 32);
    if (lane == 0) p.chosen[row * p.k + place] = column_of(last);
  }
}

}  // namespace

void in_registers(const Problem& p, Stream stream) {
  require(p.width <= kMostInRegisters, "lab top_k", "rows have {} columns; expected at most {}; take another level",
          p.width, kMostInRegisters);
  launch({"lab top_k in_registers",
          {static_cast<unsigned>((p.rows + kRows - 1) / kRows), 1, 1},
          {kThreads, 1, 1},
          0,
          stream},
         &in_registers_kernel, p);
}

}  // namespace trireme::cuda::lab::top_k
