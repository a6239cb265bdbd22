// Level 3: one kernel for each tensor.
//
// The scaled gradient stays in a register between the lines of the formula, and the new weight is rounded right away:
// 28 bytes per element instead of 40. Fusing saves only bytes, and that is enough: at 18 FLOPs per element the
// arithmetic takes less time than the bytes. Every thread computes the clipping factor, from a number in L1. That costs
// a square root.
//
// What is left: 148 launches, most of them for a thousand elements.
// Read next: cuda/kernels/optimizer.cu, the kernel in use, and examples/cuda_lab/adamw/4_shipped.cpp on what it adds.
#include "cuda/kernels/pieces.h"
#include "examples/cuda_lab/adamw/ladder.h"

namespace trireme::cuda::lab::adamw {

namespace {

using Tensor = AdamWTensor<bf16>;

__global__ void __launch_bounds__(kThreads)
    fused_kernel(const __grid_constant__ Tensor t, AdamWSettings s, float max_norm, const double* norm_squared) {
  const MyPiece mine = my_piece<4>(t.count);
  const float factor = factor_of(s, max_norm, norm_squared);
  if (mine.count == 0 || factor < 0) return;
  auto w = load_piece<4>(t.weight + mine.first, mine.count), m = load_piece<4>(t.m + mine.first, mine.count);
  auto v = load_piece<4>(t.v + mine.first, mine.count);
  const auto g = load_piece<4>(t.gradient + mine.first, mine.count);
  Pack<bf16, 4> low;
  TRIREME_UNROLL
  for (int j = 0; j < 4; ++j) {
    update(w.values[j], m.values[j], v.values[j], factor * to_float(g.values[j]), t.decay, s);
    low.values[j] = from_float<bf16>(w.values[j]);
  }
  store_piece(t.weight + mine.first, w, mine.count);
  store_piece(t.m + mine.first, m, mine.count);
  store_piece(t.v + mine.first, v, mine.count);
  store_piece(t.low + mine.first, low, mine.count);
}

}  // namespace

void fused(const Problem& p, Stream stream) {
  for (const Tensor& t : p.tensors)
    launch({"lab fused", grid_of(t.count, 4), {kThreads, 1, 1}, 0, stream}, &fused_kernel, t, p.settings, p.max_norm,
           p.norm_squared);
}

}  // namespace trireme::cuda::lab::adamw
