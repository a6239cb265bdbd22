// The matrix product for Hopper: persistent blocks, one per multiprocessor, take the tiles of all products of a batch
// in turns. Tiles that do not fill a last wave are divided among all blocks (cuda/kernels/gemm_cut.h); a second kernel
// adds their partial sums. How a tile is multiplied, bytes and FLOPs: cuda/kernels/gemm_tiles_sm90.h.
// Read next: that header; tests/cuda/planted_test.cpp, what can go wrong.
#include "cuda/device/persistent.h"
#include "cuda/kernels/gemm_cut.h"
#include "cuda/kernels/gemm_tiles_sm90.h"

namespace trireme::cuda {

namespace {

constexpr const char* kName = "gemm_sm90";

template <class T, class Out>
struct Parameters {
  Gemm<T, Out> product;
  TensorMap a, b;
  bool a_batched, b_batched;  // false: one matrix for all products of the batch
  sm90::Cut cut;
  float* partials;  // [sharers, 2, tile]
};

/// Where tile `number` of all products of the batch begins.
template <class S>
struct TilePlace {
  int m = 0, n = 0, batch = 0;
  TilePlace() = default;
  template <class P>
  __device__ TilePlace(const P& product, int number) {
    const int rows = (product.m + S::kM - 1) / S::kM, columns = (product.n + S::kN - 1) / S::kN;
    batch = number / (rows * columns);
    const TileOrder tile(number % (rows * columns), rows, columns);
    m = tile.row * S::kM;
    n = tile.column * S::kN;
  }
  template <class T, class Out>
  __device__ Place<T> place(const Gemm<T, Out>& product) const {
    return {batch * product.c_stride, product.m, product.epilogue.bias};
  }
};

/// The tiles of a block: whole ones in turns with the other blocks, then its share of the divided ones.
template <class S>
struct BatchTiles {
  static constexpr bool kCutsK = false;  // TMA brings zeros from beyond K
  int m = 0, n = 0;
  int first = 0, last = 0;  // steps of K
  int slot = -1;            // of the partial sums of a divided tile

  template <class P>
  __device__ __forceinline__ bool seek(const P& p, int item) {
    const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
    int number = block + item * blocks;
    first = 0;
    last = p.cut.steps;
    if (number >= p.cut.whole) {
      const int met = item - (p.cut.whole > block ? (p.cut.whole - block + blocks - 1) / blocks : 0);
      if (!seek_share(p.cut, block, met)) return false;
      number = p.cut.whole + share_tile;
    }
    at = TilePlace<S>(p.product, number);
    m = at.m;
    n = at.n;
    return true;
  }
  template <class P>
  __device__ bool idle(const P&) const {
    return false;
  }
  template <class P>
  __device__ int z_of_a(const P& p) const {
    return p.a_batched ? at.batch : 0;
  }
  template <class P>
  __device__ int z_of_b(const P& p) const {
    return p.b_batched ? at.batch : 0;
  }
  template <class P>
  __device__ int k_begin(const P&) const {
    return first * sm90::kStep;
  }
  template <class P>
  __device__ int k_end(const P& p) const {
    return last * sm90::kStep < p.product.k ? last * sm90::kStep : p.product.k;
  }
  template <class P>
  __device__ float* partial(const P& p) const {
    return slot < 0 ? nullptr : p.partials + std::int64_t{slot} * S::kM * S::kN;
  }
  template <class T, class Out>
  __device__ Place<T> place(const Parameters<T, Out>& p) const {
    return at.place(p.product);
  }

 private:
  TilePlace<S> at;
  int share_tile = 0;  // counted from the first divided tile

  /// The part of the share that lies in the first (met = 0) or second tile that it meets.
  __device__ __forceinline__ bool seek_share(const sm90::Cut& cut, int sharer, int met) {
    if (sharer >= cut.sharers || met > 1) return false;
    const std::int64_t begin = sm90::share_begin(sharer, cut.divided, cut.steps, cut.sharers);
    const std::int64_t end = sm90::share_begin(sharer + 1, cut.divided, cut.steps, cut.sharers);
    share_tile = static_cast<int>(begin / cut.steps) + met;
    const std::int64_t start = std::int64_t{share_tile} * cut.steps;
    if (start >= end) return false;
    first = begin > start ? static_cast<int>(begin - start) : 0;
    last = end - start < cut.steps ? static_cast<int>(end - start) : cut.steps;
    slot = 2 * sharer + met;
    return true;
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

/// Adds the partial sums of a divided tile in the order of K, and finishes it. A block has one consumer's rows.
template <class T, class Out, class S>
__global__ void __launch_bounds__(sm90::kGroup, 2) join_kernel(const __grid_constant__ Parameters<T, Out> p) {
  TRIREME_SHARED(float, slabs, kSlabBytes);  // four warps
  const sm90::Cut& cut = p.cut;
  const int tile = static_cast<int>(blockIdx.x) / S::kConsumers, group = static_cast<int>(blockIdx.x) % S::kConsumers;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const auto begin = [&](int sharer) { return sm90::share_begin(sharer, cut.divided, cut.steps, cut.sharers); };
  const std::int64_t tile_begin = std::int64_t{tile} * cut.steps, tile_end = tile_begin + cut.steps;
  int sharer = static_cast<int>(std::int64_t{tile} * cut.sharers / cut.divided);
  while (begin(sharer + 1) <= tile_begin) ++sharer;
  while (begin(sharer) > tile_begin) --sharer;
  float sums[S::kSums] = {};
  TRIREME_NO_UNROLL
  for (; sharer < cut.sharers && begin(sharer) < tile_end; ++sharer) {
    const int met = begin(sharer) < tile_begin ? 1 : 0;
    const float* const partial = p.partials + std::int64_t{2 * sharer + met} * S::kM * S::kN;
    sm90::add_partial<S>(partial, group * sm90::kGroup + thread, sums);
  }
  const TilePlace<S> at(p.product, cut.whole + tile);
  const Place<T> place = at.place(p.product);
  const Finisher<true, T, Out> finisher(p.product, reinterpret_cast<std::byte*>(slabs) + warp * kSlabBytes);
  store_windows<sm90::WarpWindows<S>, S::kEpilogues>(
      finisher, sm90::first_window<S>(p.product, place, at.m, at.n, 4 * group + warp), place.bias, sums);
}

template <class S, class T, class Out>
void launch_shape(const Gemm<T, Out>& p, const sm90::Cut& cut, const Workspace& workspace, Stream stream) {
  const bool a_of_m = p.form == Form::tn, b_of_k = p.form == Form::nt;
  Parameters<T, Out> parameters{
      p, {}, {}, p.a_stride != 0, p.b_stride != 0, cut, cut.divided > 0 ? workspace(cut.workspace) : nullptr};
  // [rows, columns] as they are stored; every copy is of 64 rows of 64 values.
  parameters.a = tensor_map(kName, {"a", p.a, a_of_m ? p.k : p.m, a_of_m ? p.m : p.k, p.a_pitch,
                                    parameters.a_batched ? p.batch : 1, p.a_stride, 64, 64});
  parameters.b = tensor_map(kName, {"b", p.b, b_of_k ? p.n : p.k, b_of_k ? p.k : p.n, p.b_pitch,
                                    parameters.b_batched ? p.batch : 1, p.b_stride, 64, 64});
  const LaunchConfig config = {
      kName, {static_cast<unsigned>(cut.blocks), 1, 1}, {S::kThreads, 1, 1}, S::kSharedBytes, stream};
  if constexpr (!activates(S::kEpilogues))  // kernels for forms that cannot be are not made
    if (p.form == Form::nn) launch(config, &gemm_kernel<T, Out, S, Form::nn>, parameters);
  if constexpr (!differentiates(S::kEpilogues))
    if (p.form == Form::nt) launch(config, &gemm_kernel<T, Out, S, Form::nt>, parameters);
  if constexpr (!activates(S::kEpilogues) && !differentiates(S::kEpilogues))
    if (p.form == Form::tn) launch(config, &gemm_kernel<T, Out, S, Form::tn>, parameters);
  if (cut.divided == 0) return;
  const auto blocks = static_cast<unsigned>(cut.divided * S::kConsumers);
  launch({kName, {blocks, 1, 1}, {sm90::kGroup, 1, 1}, 0, stream}, &join_kernel<T, Out, S>, parameters);
}

template <class T, class Out>
void launch_wide(const Gemm<T, Out>& p, Epilogues epilogues, const sm90::Cut& cut, const Workspace& workspace,
                 Stream stream) {
  if constexpr (std::is_same_v<T, Out>) {
    if (epilogues == Epilogues::gelu_tanh)
      return launch_shape<sm90::Wide<Epilogues::gelu_tanh>>(p, cut, workspace, stream);
    if (epilogues == Epilogues::gelu) return launch_shape<sm90::Wide<Epilogues::gelu>>(p, cut, workspace, stream);
    if (epilogues == Epilogues::gelu_tanh_derivative)
      return launch_shape<sm90::Wide<Epilogues::gelu_tanh_derivative>>(p, cut, workspace, stream);
    if (epilogues == Epilogues::gelu_derivative)
      return launch_shape<sm90::Wide<Epilogues::gelu_derivative>>(p, cut, workspace, stream);
  }
  launch_shape<sm90::Wide<Epilogues::simple>>(p, cut, workspace, stream);
}

}  // namespace

template <class T, class Out>
void gemm_sm90(const Gemm<T, Out>& p, Stream stream, Tile90 tile, const Workspace& workspace) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  check_epilogue(kName, p);
  if (p.k < 1) fail(ExitCode::usage, kName, "k is {}; expected at least 1, because TMA has no empty tensors", p.k);
  const Epilogues epilogues = epilogues_of(p);
  const sm90::Cut cut = sm90::cut(p.m, p.n, p.k, p.batch, usable_multiprocessors(), workspace != nullptr,
                                  epilogues != Epilogues::all, tile);
  if (cut.tile == Tile90::m256n192) return launch_wide(p, epilogues, cut, workspace, stream);
  if (cut.tile == Tile90::m128n256) return launch_shape<sm90::Large>(p, cut, workspace, stream);
  if (cut.tile == Tile90::m128n128) return launch_shape<sm90::Medium>(p, cut, workspace, stream);
  launch_shape<sm90::Small>(p, cut, workspace, stream);
}

template void gemm_sm90(const Gemm<bf16, bf16>&, Stream, Tile90, const Workspace&);
template void gemm_sm90(const Gemm<bf16, float>&, Stream, Tile90, const Workspace&);
template void gemm_sm90(const Gemm<f16, f16>&, Stream, Tile90, const Workspace&);
template void gemm_sm90(const Gemm<f16, float>&, Stream, Tile90, const Workspace&);

}  // namespace trireme::cuda
