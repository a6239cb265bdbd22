// The matrix product for Hopper: persistent blocks, one per multiprocessor, take the tiles of all products of a batch
// in turns. How a tile is multiplied, bytes and FLOPs: cuda/kernels/gemm_tiles_sm90.h.
// Read next: that header; tests/cuda/planted_test.cpp, what can go wrong.
#include "cuda/device/persistent.h"
#include "cuda/kernels/gemm_tiles_sm90.h"

namespace trireme::cuda {

namespace {

constexpr const char* kName = "gemm_sm90";

template <class T, class Out>
struct Parameters {
  Gemm<T, Out> product;
  TensorMap a, b;
  bool a_batched, b_batched;  // false: one matrix for all products of the batch
};

template <class S, class P>
__host__ __device__ int tile_count(const P& p) {
  return (p.m + S::kM - 1) / S::kM * ((p.n + S::kN - 1) / S::kN) * p.batch;
}

/// Tiles of all products of the batch, in the order in which blocks take them; see gemm_tiles_sm90.h.
template <class S>
struct BatchTiles {
  static constexpr bool kCutsK = false;  // TMA brings zeros from beyond K
  int m = 0, n = 0, batch = 0;

  template <class P>
  __device__ __forceinline__ bool seek(const P& p, int number) {
    const int rows = (p.product.m + S::kM - 1) / S::kM, columns = (p.product.n + S::kN - 1) / S::kN;
    if (number >= rows * columns * p.product.batch) return false;
    batch = number / (rows * columns);
    const TileOrder tile(number % (rows * columns), rows, columns);
    m = tile.row * S::kM;
    n = tile.column * S::kN;
    return true;
  }
  template <class P>
  __device__ bool idle(const P&) const {
    return false;
  }
  template <class P>
  __device__ int z_of_a(const P& p) const {
    return p.a_batched ? batch : 0;
  }
  template <class P>
  __device__ int z_of_b(const P& p) const {
    return p.b_batched ? batch : 0;
  }
  template <class P>
  __device__ int k_begin(const P&) const {
    return 0;
  }
  template <class P>
  __device__ int k_end(const P& p) const {
    return p.product.k;
  }
  template <class T, class Out>
  __device__ Place<T> place(const Parameters<T, Out>& p) const {
    return {batch * p.product.c_stride, p.product.m, p.product.epilogue.bias};
  }
};

template <class T, class Out, class S, Form F>
__global__ void __launch_bounds__(S::kThreads, 1) gemm_kernel(const __grid_constant__ Parameters<T, Out> p) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  sm90::run<T, S, F, BatchTiles<S>>(p, memory);
#else
  __trap();  // compiled for another architecture, and started all the same
#endif
}

template <class S, class T, class Out>
void launch_shape(const Gemm<T, Out>& p, Stream stream) {
  const bool a_of_m = p.form == Form::tn, b_of_k = p.form == Form::nt;
  Parameters<T, Out> parameters{p, {}, {}, p.a_stride != 0, p.b_stride != 0};
  // [rows, columns] as they are stored; every copy is of 64 rows of 64 values.
  parameters.a = tensor_map(kName, {"a", p.a, a_of_m ? p.k : p.m, a_of_m ? p.m : p.k, p.a_pitch,
                                    parameters.a_batched ? p.batch : 1, p.a_stride, 64, 64});
  parameters.b = tensor_map(kName, {"b", p.b, b_of_k ? p.n : p.k, b_of_k ? p.k : p.n, p.b_pitch,
                                    parameters.b_batched ? p.batch : 1, p.b_stride, 64, 64});
  const LaunchConfig config = {
      kName, {persistent_blocks(tile_count<S>(p)), 1, 1}, {S::kThreads, 1, 1}, S::kSharedBytes, stream};
  if (p.form == Form::nn) launch(config, &gemm_kernel<T, Out, S, Form::nn>, parameters);
  if (p.form == Form::nt) launch(config, &gemm_kernel<T, Out, S, Form::nt>, parameters);
  if (p.form == Form::tn) launch(config, &gemm_kernel<T, Out, S, Form::tn>, parameters);
}

/// The largest tile with which every multiprocessor has at least one.
template <class T, class Out>
Tile90 choose(const Gemm<T, Out>& p) {
  if (tile_count<sm90::Large>(p) >= multiprocessors()) return Tile90::m128n256;
  return tile_count<sm90::Medium>(p) >= multiprocessors() ? Tile90::m128n128 : Tile90::m64n64;
}

}  // namespace

template <class T, class Out>
void gemm_sm90(const Gemm<T, Out>& p, Stream stream, Tile90 tile) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  check_epilogue(kName, p);
  if (p.k < 1) fail(ExitCode::usage, kName, "k is {}; expected at least 1, because TMA has no empty tensors", p.k);
  if (tile == Tile90::automatic) tile = choose(p);
  if (tile == Tile90::m128n256) return launch_shape<sm90::Large>(p, stream);
  if (tile == Tile90::m128n128) return launch_shape<sm90::Medium>(p, stream);
  launch_shape<sm90::Small>(p, stream);
}

template void gemm_sm90(const Gemm<bf16, bf16>&, Stream, Tile90);
template void gemm_sm90(const Gemm<bf16, float>&, Stream, Tile90);
template void gemm_sm90(const Gemm<f16, f16>&, Stream, Tile90);
template void gemm_sm90(const Gemm<f16, float>&, Stream, Tile90);

}  // namespace trireme::cuda
