// The matrix product for Hopper: persistent blocks, one per multiprocessor, alone or in clusters, take the tiles of all
// products of a batch in turns. Tiles that do not fill a last wave are divided among all blocks
// (cuda/kernels/gemm_cut.h); a second kernel adds their partial sums. How a tile is multiplied, bytes and FLOPs:
// cuda/kernels/gemm_tiles_sm90.h.
// Read next: that header; tests/cuda/planted_test.cpp, what can go wrong.
#include "cuda/device/persistent.h"
#include "cuda/kernels/gemm_cut.h"
#include "cuda/kernels/gemm_row_sums.h"
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
  float* partials;      // [sharers, items, blocks of a cluster, tile]
  float* row_partials;  // [sharers, items, blocks of a cluster, rows of a tile]: of the row sums, if these are wanted
  int row_turns;        // 1, 2 or 4: tiles of a row that take steps of the row sums in turns
};

/// Where the tile of block `rank` of a cluster begins, if the cluster has number `number` of all products of the batch.
/// What a cluster computes may extend beyond the product; then blocks may have tiles outside.
template <class S>
struct TilePlace {
  int m = 0, n = 0, batch = 0;
  TilePlace() = default;
  static constexpr int kN = S::kN * S::kBlocks, kHeight = std::max(1, 2048 / S::kM);
  template <class P>
  __device__ TilePlace(const P& product, int number, int rank) {
    const int rows = (product.m + S::kM - 1) / S::kM, columns = (product.n + kN - 1) / kN;
    batch = number / (rows * columns);
    const TileOrder tile(number % (rows * columns), rows, columns, kHeight);
    m = tile.row * S::kM;
    n = tile.column * kN + rank * S::kN;
  }
  template <class T, class Out>
  __device__ Place<T> place(const Gemm<T, Out>& product) const {
    return {batch * product.c_stride, product.m, product.epilogue.bias};
  }
  /// The number of the tile at row m and in column `column` of tiles, if there is one product.
  template <class P>
  static __device__ int number_of(const P& product, int m, int column) {
    const int rows = (product.m + S::kM - 1) / S::kM, columns = (product.n + kN - 1) / kN;
    return TileOrder::index_of(m / S::kM, column, rows, columns, kHeight);
  }
};

/// Where the partial sums of an item lie, counted in tiles of blocks.
template <class S>
__device__ __forceinline__ int slot_of(const sm90::Shares& shares, const sm90::ShareItem& item, int rank) {
  return (item.sharer * shares.items() + item.number) * S::kBlocks + rank;
}

/// The tiles of a block: whole ones in turns with the other blocks, then its share of the divided ones. A cluster acts
/// as one block here, and numbers count what it computes at once.
template <class S>
struct BatchTiles {
  static constexpr bool kCutsK = false;  // TMA brings zeros from beyond K
  int m = 0, n = 0;
  int first = 0, last = 0;  // steps of K
  int slot = -1;            // of the partial sums of a divided tile

  template <class P>
  __device__ __forceinline__ bool seek(const P& p, int item) {
    const int cluster = static_cast<int>(blockIdx.x) / S::kBlocks, clusters = static_cast<int>(gridDim.x) / S::kBlocks;
    const int rank = S::kBlocks > 1 ? cluster_rank() : 0;
    int number = cluster + item * clusters;
    first = 0;
    last = p.cut.steps;
    if (number >= p.cut.whole) {
      const int of_share = item - (p.cut.whole > cluster ? (p.cut.whole - cluster + clusters - 1) / clusters : 0);
      const sm90::ShareItem share = p.cut.shares.item(cluster, of_share);
      if (share.empty()) return false;
      number = p.cut.whole + share.tile;
      first = share.first;
      last = share.last;
      slot = slot_of<S>(p.cut.shares, share, rank);
    }
    at = TilePlace<S>(p.product, number, rank);
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

/// The same in form TN, with the sums of a's rows.
template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, 1) row_sums_kernel(const __grid_constant__ Parameters<T, float> p) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  sm90::run<T, S, Form::tn, BatchTiles<S>, sm90::RowSums<T, S>>(p, memory);
#else
  __trap();  // compiled for another architecture, and started all the same
#endif
}

inline constexpr int kJoinColumns = 64;  // of a block of join_kernel, and 64 rows

/// Adds the partial row sums of rows [first, first + 64) of divided tiles. Of each tile that took turns, one warp adds
/// the sums in the order of K; then one thread adds those of a row. `scratch` [4, 64] is free again on return.
template <class S, class P>
__device__ __forceinline__ void join_row_sums(const P& p, int first, int m, float* scratch) {
  const int thread = static_cast<int>(threadIdx.x), turn = thread / 32;
  const sm90::Shares& shares = p.cut.shares;
  if (turn < p.row_turns) {
    const int tile = TilePlace<S>::number_of(p.product, m, turn) - p.cut.whole;
    float sums[2] = {};
    TRIREME_NO_UNROLL
    for (int step = 0; step < shares.steps();) {
      const sm90::ShareItem item = shares.item_with(tile, step);
      const float* const of_item = p.row_partials + std::int64_t{slot_of<S>(shares, item, 0)} * S::kM + first;
      TRIREME_UNROLL
      for (int i = 0; i < 2; ++i) sums[i] += of_item[thread % 32 + 32 * i];
      step = item.last;
    }
    TRIREME_UNROLL
    for (int i = 0; i < 2; ++i) scratch[thread + 32 * (turn + i)] = sums[i];
  }
  sync_threads();
  float sum = 0;
  for (int i = 0; i < p.row_turns; ++i) sum += scratch[thread % 64 + 64 * i];
  if (thread < 64 && m + first + thread < p.product.m) p.product.row_sums[m + first + thread] = sum;
  sync_threads();
}

/// Adds the partial sums of divided tiles in the order of K, and finishes them. `tile` counts what a cluster computes,
/// `rank` the cluster's blocks.
template <class T, class Out, class S>
__global__ void __launch_bounds__(sm90::kGroup, 3) join_kernel(const __grid_constant__ Parameters<T, Out> p) {
  TRIREME_SHARED(float, slabs, kSlabBytes);  // four warps
  constexpr int kSums = kJoinColumns / 2;
  using W = Windows<kSums / kWindowSums, kSums / kWindowSums, 64>;
  const int column = static_cast<int>(blockIdx.x) % (S::kN / kJoinColumns) * kJoinColumns;
  const int rows_64 = static_cast<int>(blockIdx.x) / (S::kN / kJoinColumns), part = rows_64 % S::kParts;
  const int rank = static_cast<int>(blockIdx.y), tile = static_cast<int>(blockIdx.z);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const sm90::Shares& shares = p.cut.shares;
  float sums[kSums] = {};
  TRIREME_NO_UNROLL
  for (int step = 0; step < shares.steps();) {
    const sm90::ShareItem item = shares.item_with(tile, step);
    const float* const partial = p.partials + std::int64_t{slot_of<S>(shares, item, rank)} * S::kM * S::kN;
    const int of_tile = rows_64 / S::kParts * sm90::kGroup + thread;
    sm90::add_partial<S>(partial, of_tile, part * S::kN / 2 + column / 2, sums);
    step = item.last;
  }
  const TilePlace<S> at(p.product, p.cut.whole + tile, rank);
  if constexpr (std::is_same_v<Out, float>)
    if (p.product.row_sums != nullptr && at.n + column == 0) join_row_sums<S>(p, rows_64 * 64, at.m, slabs);
  const Place<T> place = at.place(p.product);
  const Finisher<true, T, Out> finisher(p.product, reinterpret_cast<std::byte*>(slabs) + warp * kSlabBytes);
  const Window window = W::first(place, at.m + rows_64 * 64 + warp * 16, at.n + column, p.product.n, p.product.c_pitch);
  store_windows<W, S::kEpilogues>(finisher, window, place.bias, sums);
}

template <class S>
LaunchConfig config_of(int blocks, Stream stream) {
  return {kName, {static_cast<unsigned>(blocks), 1, 1}, {S::kThreads, 1, 1}, S::kSharedBytes, stream, S::kBlocks};
}

template <class S, class T, class Out>
void launch_shape(const Gemm<T, Out>& p, const sm90::Cut& cut, const Workspace& workspace, Stream stream) {
  const bool a_of_m = p.form == Form::tn, b_of_k = p.form == Form::nt;
  Parameters<T, Out> parameters{p, {}, {}, p.a_stride != 0, p.b_stride != 0, cut, nullptr, nullptr, 1};
  if (cut.shares.tiles() > 0) {
    parameters.partials = workspace(cut.workspace + (p.row_sums != nullptr ? cut.workspace / S::kN : 0));
    parameters.row_partials = parameters.partials + cut.workspace;
    if (cut.whole == 0) parameters.row_turns = p.n > 3 * S::kN ? 4 : p.n > S::kN ? 2 : 1;
  }
  // [rows, columns] as they are stored; blocks that share an operand divide 64 rows of 64 values.
  parameters.a = tensor_map(kName, {"a", p.a, a_of_m ? p.k : p.m, a_of_m ? p.m : p.k, p.a_pitch,
                                    parameters.a_batched ? p.batch : 1, p.a_stride, 64 / S::kBlocks, 64});
  parameters.b = tensor_map(kName, {"b", p.b, b_of_k ? p.n : p.k, b_of_k ? p.k : p.n, p.b_pitch,
                                    parameters.b_batched ? p.batch : 1, p.b_stride, 64, 64});
  const LaunchConfig config = config_of<S>(cut.clusters * S::kBlocks, stream);
  if constexpr (!activates(S::kEpilogues))  // kernels for forms that cannot be are not made
    if (p.form == Form::nn) launch(config, &gemm_kernel<T, Out, S, Form::nn>, parameters);
  if constexpr (!differentiates(S::kEpilogues))
    if (p.form == Form::nt) launch(config, &gemm_kernel<T, Out, S, Form::nt>, parameters);
  if constexpr (!activates(S::kEpilogues) && !differentiates(S::kEpilogues)) {
    if (p.form == Form::tn && p.row_sums == nullptr) launch(config, &gemm_kernel<T, Out, S, Form::tn>, parameters);
    if constexpr (std::is_same_v<Out, float> && S::kBlocks == 1) {
      LaunchConfig with_notes = config;
      with_notes.dynamic_shared += sm90::RowSums<T, S>::kBytes;
      if (p.row_sums != nullptr) launch(with_notes, &row_sums_kernel<T, S>, parameters);
    }
  }
  if (cut.shares.tiles() == 0) return;
  const Dim3 blocks = {S::kM / 64 * (S::kN / kJoinColumns), S::kBlocks, static_cast<unsigned>(cut.shares.tiles())};
  launch({kName, blocks, {sm90::kGroup, 1, 1}, 0, stream}, &join_kernel<T, Out, S>, parameters);
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

// Clusters: the kernels of all types and forms need the same resources.
sm90::Resident sm90::resident_of_gemm() {
  using S = sm90::Pair;
  const int clusters = resident_clusters(config_of<S>(S::kBlocks, nullptr), &gemm_kernel<bf16, bf16, S, Form::nn>);
  return {usable_multiprocessors(), std::min(clusters, usable_multiprocessors() / S::kBlocks)};
}

template <class T, class Out>
void gemm_sm90(const Gemm<T, Out>& p, Stream stream, Tile90 tile, const Workspace& workspace) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  check_epilogue(kName, p);
  if (const char* const problem = row_sums_problem(p)) fail(ExitCode::usage, kName, "it is asked for {}", problem);
  if (p.k < 1) fail(ExitCode::usage, kName, "k is {}; expected at least 1, because TMA has no empty tensors", p.k);
  const Epilogues epilogues = epilogues_of(p);
  sm90::Resident resident = sm90::resident_of_gemm();
  if (p.row_sums != nullptr) resident.pairs = 0;  // clusters have no kernel that gives them
  const sm90::Cut cut = sm90::cut(p.m, p.n, p.k, p.batch, resident, workspace != nullptr, epilogues, tile);
  if (cut.tile == Tile90::m256n384) return launch_shape<sm90::Pair>(p, cut, workspace, stream);
  if (cut.tile == Tile90::m128n192) return launch_wide(p, epilogues, cut, workspace, stream);
  if (cut.tile == Tile90::m128n256) return launch_shape<sm90::Large>(p, cut, workspace, stream);
  if (cut.tile == Tile90::m128n128) return launch_shape<sm90::Medium>(p, cut, workspace, stream);
  launch_shape<sm90::Small>(p, cut, workspace, stream);
}

template void gemm_sm90(const Gemm<bf16, bf16>&, Stream, Tile90, const Workspace&);
template void gemm_sm90(const Gemm<bf16, float>&, Stream, Tile90, const Workspace&);
template void gemm_sm90(const Gemm<f16, f16>&, Stream, Tile90, const Workspace&);
template void gemm_sm90(const Gemm<f16, float>&, Stream, Tile90, const Workspace&);

}  // namespace trireme::cuda
