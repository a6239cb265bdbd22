// The products of a mixture of experts on Hopper: GroupedGemm in cuda/kernels/gemm.h. Tiles are multiplied as by
// gemm_sm90 (cuda/kernels/gemm_tiles_sm90.h); persistent blocks find theirs by walking the offsets.
//
// One tensor map covers the rows of all groups, so the host need not know the groups:
//   NT, NN: a tile that hangs over its group's end reads rows of the next group; the sums they give are not stored.
//   TN: a stage that hangs over its group's end holds rows of the next group; they are overwritten with zeros
//     (clear_rows), once a tile. A map for each group would need tensormap.replace and its fences before every tile.
// Work and bytes: as counted in cuda/kernels/gemm_grouped_sm80.cu, with K of TN rounded up to 64 for each group.
// Read next: tests/cuda/gemm_grouped_test.cpp.
#include "cuda/device/persistent.h"
#include "cuda/kernels/gemm_groups.h"
#include "cuda/kernels/gemm_tiles_sm90.h"

namespace trireme::cuda {

namespace {

constexpr const char* kName = "grouped_gemm_sm90";

template <class T, class Out>
struct Parameters {
  Gemm<T, Out> product;
  int groups;
  const int* offsets;
  TensorMap a, b;
};

template <class T, class Out, class S, Form F>
__global__ void __launch_bounds__(S::kThreads, 1) grouped_kernel(const __grid_constant__ Parameters<T, Out> p) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  sm90::run<T, S, F, GroupedTiles<S::kM, S::kN, F>>(p, memory);
#else
  __trap();  // compiled for another architecture, and started all the same
#endif
}

template <class S, class T, class Out>
void launch_shape(const GroupedGemm<T, Out>& g, Stream stream) {
  const Gemm<T, Out>& p = g.product;
  const bool cuts_k = p.form == Form::tn, b_of_k = p.form == Form::nt;
  Parameters<T, Out> parameters{p, g.groups, g.offsets, {}, {}};
  // [rows, columns] as they are stored; every copy is of 64 rows of 64 values.
  parameters.a = tensor_map(kName, {"a", p.a, cuts_k ? p.k : p.m, cuts_k ? p.m : p.k, p.a_pitch, 1, 0, 64, 64});
  parameters.b = tensor_map(
      kName, {"b", p.b, b_of_k ? p.n : p.k, b_of_k ? p.k : p.n, p.b_pitch, cuts_k ? 1 : g.groups, p.b_stride, 64, 64});
  const unsigned blocks = persistent_blocks(most_tiles<S::kM, S::kN>(g));
  const LaunchConfig config = {kName, {blocks, 1, 1}, {S::kThreads, 1, 1}, S::kSharedBytes, stream};
  if (p.form == Form::nn) launch(config, &grouped_kernel<T, Out, S, Form::nn>, parameters);
  if (p.form == Form::nt) launch(config, &grouped_kernel<T, Out, S, Form::nt>, parameters);
  if (p.form == Form::tn) launch(config, &grouped_kernel<T, Out, S, Form::tn>, parameters);
}

/// The largest tile that gives every multiprocessor one and whose rows an average group fills.
template <class T, class Out>
Tile90 choose(const GroupedGemm<T, Out>& p) {
  if (average_rows(p) < 128) return Tile90::m64n64;
  if (most_tiles<128, 256>(p) >= multiprocessors()) return Tile90::m128n256;
  return most_tiles<128, 128>(p) >= multiprocessors() ? Tile90::m128n128 : Tile90::m64n64;
}

}  // namespace

template <class T, class Out>
void grouped_gemm_sm90(const GroupedGemm<T, Out>& p, Stream stream, Tile90 tile) {
  if (p.product.m == 0 || p.product.n == 0 || p.groups == 0) return;
  check_groups(kName, p);
  if (p.product.k < 1 && p.product.form == Form::tn) return grouped_gemm_sm80(p, stream);  // TMA has no empty tensors
  if (p.product.k < 1)
    fail(ExitCode::usage, kName, "k is {}; expected at least 1, because TMA has no empty tensors", p.product.k);
  if (tile == Tile90::automatic) tile = choose(p);
  if (tile >= Tile90::m128n256) return launch_shape<sm90::Large>(p, stream);
  if (tile == Tile90::m128n128) return launch_shape<sm90::Medium>(p, stream);
  launch_shape<sm90::Small>(p, stream);
}

template void grouped_gemm_sm90(const GroupedGemm<bf16, bf16>&, Stream, Tile90);
template void grouped_gemm_sm90(const GroupedGemm<bf16, float>&, Stream, Tile90);
template void grouped_gemm_sm90(const GroupedGemm<f16, f16>&, Stream, Tile90);
template void grouped_gemm_sm90(const GroupedGemm<f16, float>&, Stream, Tile90);

}  // namespace trireme::cuda
