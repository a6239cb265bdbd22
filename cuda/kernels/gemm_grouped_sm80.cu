// The products of a mixture of experts on Ampere and later: GroupedGemm in cuda/kernels/gemm.h. Persistent blocks
// process the tiles of all groups; a tile is that of gemm_sm80, cut off at the end of its group.
//
// Work: 2 R N K FLOPs for R rows, NT and NN, with each group's rows rounded up to the tile; 2 M N R for TN, with each
// group's rows rounded up to 32. Bytes: the rows once for every column of tiles, a matrix once for every row of tiles
// of its group, from L2; c once. Offsets: 4 (G + 1) bytes per block.
// All tiles of NT and NN cost the same, and blocks take them in turns. A tile of TN costs as much as its group has
// rows. A group's tiles are neighbours, so they too are spread evenly if there are as many as blocks.
// Read next: cuda/kernels/gemm_grouped_sm90.cu.
#include "cuda/device/persistent.h"
#include "cuda/kernels/gemm_groups.h"
#include "cuda/kernels/gemm_tiles_sm80.h"

namespace trireme::cuda {

namespace {

constexpr const char* kName = "grouped_gemm_sm80";
/// Per multiprocessor. With a third, ptxas would spill registers of small tiles.
constexpr int kBlocks = 2;

template <class T, class Out, class S, Form F, bool Aligned>
__global__ void __launch_bounds__(S::kThreads, kBlocks) grouped_kernel(const __grid_constant__ GroupedGemm<T, Out> p) {
  TRIREME_DYNAMIC_SHARED(memory, 128);
  GroupedTiles<S::kM, S::kN, F> tiles;
  for (int item = 0; tiles.seek(p, item); ++item) {
    if (tiles.idle(p)) continue;
    const sm80::Part part = {tiles.place(p).m_end, tiles.k_begin(p), tiles.k_end(p)};
    const T* const b = p.product.b + tiles.z_of_b(p) * p.product.b_stride;
    float sums[S::kSums] = {};
    sync_threads();  // the last tile's slabs become stages
    sm80::multiply_tile<S, F, Aligned>(p.product, p.product.a, b, part, memory, tiles.m, tiles.n, sums);
    sm80::store_tile<S>(p.product, tiles.place(p), memory, tiles.m, tiles.n, sums);
  }
}

template <class S, class T, class Out>
void launch_shape(const GroupedGemm<T, Out>& p, Stream stream) {
  const Gemm<T, Out>& all = p.product;
  const bool fast = sm80::aligned(all.a, all.a_pitch, 0) && sm80::aligned(all.b, all.b_pitch, all.b_stride);
  const unsigned started = persistent_blocks(most_tiles<S::kM, S::kN>(p), kBlocks);
  const LaunchConfig config = {kName, {started, 1, 1}, {S::kThreads, 1, 1}, S::kSharedBytes, stream};
  const auto start = [&](auto* slow_kernel, auto* fast_kernel) { launch(config, fast ? fast_kernel : slow_kernel, p); };
  if (all.form == Form::nn)
    start(&grouped_kernel<T, Out, S, Form::nn, false>, &grouped_kernel<T, Out, S, Form::nn, true>);
  if (all.form == Form::nt)
    start(&grouped_kernel<T, Out, S, Form::nt, false>, &grouped_kernel<T, Out, S, Form::nt, true>);
  if (all.form == Form::tn)
    start(&grouped_kernel<T, Out, S, Form::tn, false>, &grouped_kernel<T, Out, S, Form::tn, true>);
}

}  // namespace

template <class T, class Out>
void grouped_gemm_sm80(const GroupedGemm<T, Out>& p, Stream stream) {
  if (p.product.m == 0 || p.product.n == 0 || p.groups == 0) return;
  check_groups(kName, p);
  // Large tiles if they fill half of a large GPU, and an average group has rows for one.
  if (most_tiles<128, 128>(p) >= 64 && average_rows(p) >= 128)
    launch_shape<sm80::Large>(p, stream);
  else
    launch_shape<sm80::Small>(p, stream);
}

template void grouped_gemm_sm80(const GroupedGemm<bf16, bf16>&, Stream);
template void grouped_gemm_sm80(const GroupedGemm<bf16, float>&, Stream);
template void grouped_gemm_sm80(const GroupedGemm<f16, f16>&, Stream);
template void grouped_gemm_sm80(const GroupedGemm<f16, float>&, Stream);

}  // namespace trireme::cuda
