// The matrix product of Hopper: TMA fills a ring of stages, mbarriers say which are full and which are free, wgmma
// multiplies straight from shared memory. Formulas: cuda/kernels/gemm.h.
//
// Blocks are persistent: one a multiprocessor, each working through tiles. A block is a producer warp group, of which
// one thread issues copies, and consumer warp groups that own 64 rows of the tile each. The producer runs ahead into
// the next tile while the consumers store this one, and gives its registers to them (setmaxnreg).
//
// Work: 2 M N K FLOPs, with M, N and K rounded up to the tile. A tile of 128 x 256 reads 2 (128 + 256) K bytes for
// 2 128 256 K FLOPs: 85 FLOPs a byte from L2, against 64 of gemm_sm80. Global memory: 2 (M K + K N) bytes at least
// once, and M N values written.
// What hangs over an edge costs no branch: TMA brings zeros from outside, and the store leaves out what is not there.
// Read next: cuda/device/nvcc_hopper.h, what each instruction says; tests/cuda/planted_test.cpp, what can go wrong.
#include "cuda/device/tensor_map.h"
#include "cuda/kernels/gemm_epilogue.h"

namespace trireme::cuda {

namespace {

constexpr const char* kName = "gemm_sm90";
constexpr int kGroup = 128;                      // threads of a warp group
constexpr int kStep = 64;                        // K of a stage: a swizzled row of 128 bytes
constexpr int kChunkBytes = 64 * kStep * 2;      // 64 rows of 128 bytes, the unit in which operands lie in a stage
constexpr int kSlabPitch = 64 + 4;               // floats; shifts rows by four banks
constexpr int kSlabBytes = 16 * kSlabPitch * 4;  // of a warp: 16 rows, 64 columns at a time

/// A block's tile is [64 Consumers, N]; N is a multiple of 64 that wgmma offers.
template <int Consumers, int N, int Stages_>
struct Shape {
  static constexpr int kConsumers = Consumers, kM = 64 * Consumers, kN = N, kStages = Stages_;
  static constexpr int kThreads = kGroup * (Consumers + 1);
  static constexpr int kBytesA = Consumers * kChunkBytes, kBytesB = N / 64 * kChunkBytes;
  static constexpr int kStageBytes = kBytesA + kBytesB;
  static constexpr int kSlabs = kStages * kStageBytes;  // where the slabs begin
  static constexpr int kBarriers = kSlabs + 4 * Consumers * kSlabBytes;
  static constexpr int kSharedBytes = kBarriers + 2 * kStages * 8;
  static_assert(kSharedBytes <= 227 * 1024, "more shared memory than a block of sm_90 can have");
};

template <class T, class Out>
struct Parameters {
  Gemm<T, Out> product;
  TensorMap a, b;
  bool a_batched, b_batched;  // false: one matrix for all products of the batch
};

/// Tiles of all products of the batch, in the order in which blocks take them.
template <class S>
struct Tiles {
  int rows, columns, batch;
  template <class P>
  __host__ __device__ explicit Tiles(const P& p)
      : rows((p.m + S::kM - 1) / S::kM), columns((p.n + S::kN - 1) / S::kN), batch(p.batch) {}
  __host__ __device__ int count() const { return rows * columns * batch; }
};

/// The place of step `step`, counted over all tiles of a block, in the ring.
template <class S>
struct Slot {
  std::byte *a, *b;
  std::uint64_t *full, *empty;
  std::uint32_t parity;
  __device__ __forceinline__ Slot(std::byte* memory, int step) {
    const int index = step % S::kStages;
    a = memory + index * S::kStageBytes;
    b = a + S::kBytesA;
    full = reinterpret_cast<std::uint64_t*>(memory + S::kBarriers) + index;
    empty = full + S::kStages;
    parity = static_cast<std::uint32_t>(step / S::kStages % 2);
  }
};

/// Where an operand lies in a stage, for wgmma. KMajor: a row of 128 bytes holds 64 of K, so that a product's 16 of K
/// are 32 bytes of each row. Otherwise a row holds 64 of M or N, and 16 of K are 16 rows.
template <bool KMajor>
__device__ __forceinline__ std::uint64_t descriptor(const std::byte* operand, int k) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62, kEightRows = std::uint64_t{1024 >> 4} << 32;
  // From 64 of M or N to the next 64; K-major operands have no use for it.
  constexpr std::uint64_t kLeading = std::uint64_t{kChunkBytes >> 4} << 16;
  const std::uint32_t start = shared_address(operand) + static_cast<std::uint32_t>(KMajor ? 2 * k : 128 * k);
  return ((start >> 4) & 0x3fffU) | kLeading | kEightRows | kSwizzle128;
}

/// One thread: the copies of every step of every tile of this block.
template <class S, Form F, class P>
__device__ __forceinline__ void produce(const P& p, std::byte* memory, const Tiles<S>& tiles, int steps) {
  int step = 0;
  for (int t = static_cast<int>(blockIdx.x); t < tiles.count(); t += static_cast<int>(gridDim.x)) {
    const int batch = t / (tiles.rows * tiles.columns);
    const TileOrder tile(t % (tiles.rows * tiles.columns), tiles.rows, tiles.columns);
    const int m = tile.row * S::kM, n = tile.column * S::kN;
    const int za = p.a_batched ? batch : 0, zb = p.b_batched ? batch : 0;
    for (int k = 0; k < steps * kStep; k += kStep, ++step) {
      const Slot<S> slot(memory, step);
      mbarrier_wait(slot.empty, slot.parity ^ 1U);
      mbarrier_arrive_expect(slot.full, S::kStageBytes);
      for (int i = 0; i < S::kM; i += 64)
        if constexpr (F == Form::tn)
          tma_load_3d(slot.a + i / 64 * kChunkBytes, p.a, m + i, k, za, slot.full);
        else
          tma_load_3d(slot.a + i / 64 * kChunkBytes, p.a, k, m + i, za, slot.full);
      for (int j = 0; j < S::kN; j += 64)
        if constexpr (F == Form::nt)
          tma_load_3d(slot.b + j / 64 * kChunkBytes, p.b, k, n + j, zb, slot.full);
        else
          tma_load_3d(slot.b + j / 64 * kChunkBytes, p.b, n + j, k, zb, slot.full);
    }
  }
}

/// A consumer's 64 rows of one tile. A product stays in flight while the next step's is issued; a slot is free when the
/// product that reads it has ended, which each warp knows only of itself.
template <class T, class S, Form F>
__device__ __forceinline__ void multiply(std::byte* memory, int group, int first, int steps, float (&sums)[S::kN / 2]) {
  const bool announces = threadIdx.x % 32 == 0;
  TRIREME_UNROLL
  for (int i = 0; i < S::kN / 2; ++i) sums[i] = 0.0F;
  for (int step = first; step < first + steps; ++step) {
    const Slot<S> slot(memory, step);
    mbarrier_wait(slot.full, slot.parity);
    wgmma_fence();
    TRIREME_UNROLL
    for (int k = 0; k < kStep; k += 16)
      wgmma_m64k16<T, S::kN, F == Form::tn, F != Form::nt>(
          sums, descriptor<F != Form::tn>(slot.a + group * kChunkBytes, k), descriptor<F == Form::nt>(slot.b, k), true);
    wgmma_commit();
    wgmma_wait<1>();
    if (announces && step > first) mbarrier_arrive(Slot<S>(memory, step - 1).empty);
  }
  wgmma_wait<0>();
  wgmma_hold<S::kN / 2>(sums);
  if (announces) mbarrier_arrive(Slot<S>(memory, first + steps - 1).empty);
}

/// Through the warp's slab, 64 columns at a time, so that global memory sees whole rows.
template <class S, class T, class Out>
__device__ __forceinline__ void store_rows(const Gemm<T, Out>& p, const Place<T>& place, float* slab, int row,
                                           int column, bool vectors, const float (&sums)[S::kN / 2]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  TRIREME_UNROLL
  for (int chunk = 0; chunk < S::kN; chunk += 64) {
    sync_warp();
    TRIREME_UNROLL
    for (int i = 0; i < 32; i += 2) {  // sums 4 j + 2 h and the next: row lane / 4 + 8 h, columns 8 j + 2 (lane % 4)
      const Pack<float, 2> pair = {{sums[chunk / 2 + i], sums[chunk / 2 + i + 1]}};
      store_vector(slab + (lane / 4 + i / 2 % 2 * 8) * kSlabPitch + i / 4 * 8 + lane % 4 * 2, pair);
    }
    sync_warp();
    for (int at = lane; at < 16 * 16; at += 32) {
      const int r = at / 16, c = at % 16 * 4;
      if (row + r >= place.m_end || column + chunk + c >= p.n) continue;
      const auto piece = load_vector<Pack<float, 4>>(slab + r * kSlabPitch + c);
      store_row_piece<4>(p, place, piece.values, row + r, column + chunk + c, vectors);
    }
  }
}

template <class T, class S, Form F, class P>
__device__ __forceinline__ void consume(const P& p, std::byte* memory, const Tiles<S>& tiles, int steps) {
  const int warp = static_cast<int>(threadIdx.x / 32) - 4;  // warps 0 to 3 are the producer's
  float* const slab = reinterpret_cast<float*>(memory + S::kSlabs + warp * kSlabBytes);
  const bool vectors = rows_allow_vectors<4>(p.product);
  float sums[S::kN / 2];
  int step = 0;
  for (int t = static_cast<int>(blockIdx.x); t < tiles.count(); t += static_cast<int>(gridDim.x), step += steps) {
    const TileOrder tile(t % (tiles.rows * tiles.columns), tiles.rows, tiles.columns);
    multiply<T, S, F>(memory, warp / 4, step, steps, sums);
    const int batch = t / (tiles.rows * tiles.columns);
    store_rows<S>(p.product, {batch * p.product.c_stride, p.product.m, p.product.epilogue.bias}, slab,
                  tile.row * S::kM + 16 * warp, tile.column * S::kN, vectors, sums);
  }
}

template <class T, class Out, class S, Form F>
__global__ void __launch_bounds__(S::kThreads, 1) gemm_kernel(const __grid_constant__ Parameters<T, Out> p) {
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  TRIREME_DYNAMIC_SHARED(memory, 1024);
  const int thread = static_cast<int>(threadIdx.x), steps = (p.product.k + kStep - 1) / kStep;
  const Tiles<S> tiles(p.product);
  if (thread == 0) {
    tma_prefetch(p.a);
    tma_prefetch(p.b);
    for (int i = 0; i < S::kStages; ++i) {
      mbarrier_init(Slot<S>(memory, i).full, 1);
      mbarrier_init(Slot<S>(memory, i).empty, 4 * S::kConsumers);
    }
    fence_mbarrier_init();
  }
  sync_threads();
  // With one consumer a thread may have 255 registers anyway; with two, 168 at launch.
  if (thread < kGroup) {
    if constexpr (S::kConsumers > 1) set_max_registers_down<40>();
    if (thread == 0) produce<S, F>(p, memory, tiles, steps);
  } else {
    if constexpr (S::kConsumers > 1) set_max_registers_up<232>();
    consume<T, S, F>(p, memory, tiles, steps);
  }
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
  const Tiles<S> tiles(p);
  const auto blocks = static_cast<unsigned>(tiles.count() < multiprocessors() ? tiles.count() : multiprocessors());
  const LaunchConfig config = {kName, {blocks, 1, 1}, {S::kThreads, 1, 1}, S::kSharedBytes, stream};
  if (p.form == Form::nn) launch(config, &gemm_kernel<T, Out, S, Form::nn>, parameters);
  if (p.form == Form::nt) launch(config, &gemm_kernel<T, Out, S, Form::nt>, parameters);
  if (p.form == Form::tn) launch(config, &gemm_kernel<T, Out, S, Form::tn>, parameters);
}

using Large = Shape<2, 256, 4>;
using Medium = Shape<2, 128, 4>;
using Small = Shape<1, 64, 4>;

/// The largest tile with which every multiprocessor has at least one.
template <class T, class Out>
Tile90 choose(const Gemm<T, Out>& p) {
  if (Tiles<Large>(p).count() >= multiprocessors()) return Tile90::m128n256;
  return Tiles<Medium>(p).count() >= multiprocessors() ? Tile90::m128n128 : Tile90::m64n64;
}

}  // namespace

template <class T, class Out>
void gemm_sm90(const Gemm<T, Out>& p, Stream stream, Tile90 tile) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  check_epilogue(kName, p);
  if (p.k < 1) fail(ExitCode::usage, kName, "k is {}; expected at least 1, because TMA has no empty tensors", p.k);
  if (tile == Tile90::automatic) tile = choose(p);
  if (tile == Tile90::m128n256) return launch_shape<Large>(p, stream);
  if (tile == Tile90::m128n128) return launch_shape<Medium>(p, stream);
  launch_shape<Small>(p, stream);
}

template void gemm_sm90(const Gemm<bf16, bf16>&, Stream, Tile90);
template void gemm_sm90(const Gemm<bf16, float>&, Stream, Tile90);
template void gemm_sm90(const Gemm<f16, f16>&, Stream, Tile90);
template void gemm_sm90(const Gemm<f16, float>&, Stream, Tile90);

}  // namespace trireme::cuda
