// Level 2: four elements per thread, in loads and stores of 16 bytes.
//
// It moves the same bytes with a quarter of the instructions. In the update a thread has 64 bytes under way instead of
// 16, so the multiprocessors wait a quarter as often. A tensor that does not begin at a multiple of 16 bytes, or does
// not end at one, goes element by element there (load_piece).
// Read next: examples/cuda_lab/adamw/3_fused.cu.
#include "cuda/kernels/pieces.h"
#include "examples/cuda_lab/adamw/ladder.h"

namespace trireme::cuda::lab::adamw {

namespace {

using Tensor = AdamWTensor<bf16>;

__global__ void __launch_bounds__(kThreads) scale_kernel(const __grid_constant__ Tensor t, AdamWSettings s,
                                                         float max_norm, const double* norm_squared, float* scaled) {
  const MyPiece mine = my_piece<4>(t.count);
  const float factor = factor_of(s, max_norm, norm_squared);
  if (mine.count == 0 || factor < 0) return;
  const auto g = load_piece<4>(t.gradient + mine.first, mine.count);
  Pack<float, 4> result;
  TRIREME_UNROLL
  for (int j = 0; j < 4; ++j) result.values[j] = factor * to_float(g.values[j]);
  store_piece(scaled + mine.first, result, mine.count);
}

__global__ void __launch_bounds__(kThreads)
    update_kernel(const __grid_constant__ Tensor t, AdamWSettings s, float max_norm, const double* norm_squared,
                  const float* scaled) {
  const MyPiece mine = my_piece<4>(t.count);
  if (mine.count == 0 || factor_of(s, max_norm, norm_squared) < 0) return;
  auto w = load_piece<4>(t.weight + mine.first, mine.count), m = load_piece<4>(t.m + mine.first, mine.count);
  auto v = load_piece<4>(t.v + mine.first, mine.count);
  const auto g = load_piece<4>(scaled + mine.first, mine.count);
  TRIREME_UNROLL
  for (int j = 0; j < 4; ++j) update(w.values[j], m.values[j], v.values[j], g.values[j], t.decay, s);
  store_piece(t.weight + mine.first, w, mine.count);
  store_piece(t.m + mine.first, m, mine.count);
  store_piece(t.v + mine.first, v, mine.count);
}

__global__ void __launch_bounds__(kThreads) round_kernel(const __grid_constant__ Tensor t) {
  const MyPiece mine = my_piece<4>(t.count);
  if (mine.count == 0) return;
  const auto w = load_piece<4>(t.weight + mine.first, mine.count);
  Pack<bf16, 4> low;
  TRIREME_UNROLL
  for (int j = 0; j < 4; ++j) low.values[j] = from_float<bf16>(w.values[j]);
  store_piece(t.low + mine.first, low, mine.count);
}

}  // namespace

void vectors(const Problem& p, Stream stream) {
  for (const Tensor& t : p.tensors) {
    const Dim3 grid = grid_of(t.count, 4), threads = {kThreads, 1, 1};
    launch({"lab scale", grid, threads, 0, stream}, &scale_kernel, t, p.settings, p.max_norm, p.norm_squared, p.scaled);
    launch({"lab update", grid, threads, 0, stream}, &update_kernel, t, p.settings, p.max_norm, p.norm_squared,
           p.scaled);
    launch({"lab round", grid, threads, 0, stream}, &round_kernel, t);
  }
}

}  // namespace trireme::cuda::lab::adamw
