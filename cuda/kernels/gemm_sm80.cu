// The matrix product of Ampere and later: one tile of c for each block (cuda/kernels/gemm_tiles_sm80.h).
// Read next: cuda/kernels/gemm_sm90.cu.
#include "cuda/kernels/gemm_tiles_sm80.h"

namespace trireme::cuda {

namespace {

template <class T, class Out, class S, Form F, bool Aligned>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks) gemm_kernel(const __grid_constant__ Gemm<T, Out> p) {
  TRIREME_DYNAMIC_SHARED(memory, 128);
  const TileOrder tile(static_cast<int>(blockIdx.x), (p.m + S::kM - 1) / S::kM, (p.n + S::kN - 1) / S::kN);
  const int m = tile.row * S::kM, n = tile.column * S::kN;
  float sums[S::kSums] = {};
  sm80::multiply_tile<S, F, Aligned>(p, p.a + blockIdx.z * p.a_stride, p.b + blockIdx.z * p.b_stride, {p.m, 0, p.k},
                                     memory, m, n, sums);
  sm80::store_tile<S>(p, {blockIdx.z * p.c_stride, p.m, p.epilogue.bias}, memory, m, n, sums);
}

template <class S, class T, class Out>
void launch_shape(const Gemm<T, Out>& p, Stream stream) {
  const bool fast = sm80::aligned(p.a, p.a_pitch, p.a_stride) && sm80::aligned(p.b, p.b_pitch, p.b_stride);
  const auto tiles = static_cast<unsigned>(((p.m + S::kM - 1) / S::kM) * ((p.n + S::kN - 1) / S::kN));
  const LaunchConfig config = {
      "gemm_sm80", {tiles, 1, static_cast<unsigned>(p.batch)}, {S::kThreads, 1, 1}, S::kSharedBytes, stream};
  const auto start = [&](auto* slow_kernel, auto* fast_kernel) { launch(config, fast ? fast_kernel : slow_kernel, p); };
  if (p.form == Form::nn) start(&gemm_kernel<T, Out, S, Form::nn, false>, &gemm_kernel<T, Out, S, Form::nn, true>);
  if (p.form == Form::nt) start(&gemm_kernel<T, Out, S, Form::nt, false>, &gemm_kernel<T, Out, S, Form::nt, true>);
  if (p.form == Form::tn) start(&gemm_kernel<T, Out, S, Form::tn, false>, &gemm_kernel<T, Out, S, Form::tn, true>);
}

}  // namespace

template <class T, class Out>
void gemm_sm80(const Gemm<T, Out>& p, Stream stream) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  check_epilogue("gemm_sm80", p);
  if (p.row_sums != nullptr) fail(ExitCode::usage, "gemm_sm80", "it gives no row sums; use gemm_sm90, or reduce");
  const std::int64_t large_tiles = std::int64_t{(p.m + 127) / 128} * ((p.n + 127) / 128) * p.batch;
  // With fewer large tiles than would fill half of a large GPU, small ones spread better.
  if (large_tiles >= 64)
    launch_shape<sm80::Large>(p, stream);
  else
    launch_shape<sm80::Small>(p, stream);
}

template void gemm_sm80(const Gemm<bf16, bf16>&, Stream);
template void gemm_sm80(const Gemm<bf16, float>&, Stream);
template void gemm_sm80(const Gemm<f16, f16>&, Stream);
template void gemm_sm80(const Gemm<f16, float>&, Stream);

}  // namespace trireme::cuda
