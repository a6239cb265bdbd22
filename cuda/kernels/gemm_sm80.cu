// The matrix product of Ampere: blocks of warps, a ring of stages filled by cp.async, fragments by ldmatrix, products by
// mma.sync m16n8k16. Formulas, bytes and FLOPs: cuda/kernels/gemm.h.
//
// One barrier per step of K: it says both that stage k has arrived and that everyone is done with stage k - 1, into
// which the copy for step k + Stages - 1 then goes.
// Read next: cuda/kernels/gemm_sm90.cu.
#include "cuda/kernels/gemm_epilogue.h"
#include "cuda/kernels/tile.h"

namespace trireme::cuda {

namespace {

/// M x N x K of a block, and how its warps divide M and N.
template <int M, int N, int K, int WarpsM, int WarpsN, int Stages_>
struct Shape {
  static constexpr int kM = M, kN = N, kK = K, kWarpsM = WarpsM, kWarpsN = WarpsN, kStages = Stages_;
  static constexpr int kThreads = 32 * WarpsM * WarpsN;
  /// What a multiprocessor shall hold: while one block waits for its first tiles or stores, another multiplies. The most
  /// that leaves ptxas enough registers: 128, 96 and 80 for a thread.
  static constexpr int blocks(Form form) { return kThreads == 256 ? 2 : form == Form::nn ? 5 : 6; }
  static constexpr int kWarpM = M / WarpsM, kWarpN = N / WarpsN;
  static constexpr int kRowsA = kWarpM / 16, kPairsB = kWarpN / 16;
  static constexpr int kStageBytes = (M + N) * K * 2;
  static constexpr int kSlabPitch = kWarpN + 4;  // floats; shifts rows by four banks
  static constexpr int kSlabBytes = 16 * kSlabPitch * 4 * WarpsM * WarpsN;
  static constexpr int kSharedBytes = kStages * kStageBytes > kSlabBytes ? kStages* kStageBytes : kSlabBytes;
};

/// The operands as they are stored: A by rows of K (or, TN, by rows of M), B by rows of N (or, NT, by rows of K).
template <class T, class S, Form F>
struct Operands {
  static constexpr bool kRowsOfM = F == Form::tn, kRowsOfK = F == Form::nt;
  using A = SharedTile<T, kRowsOfM ? S::kK : S::kM, kRowsOfM ? S::kM : S::kK>;
  using B = SharedTile<T, kRowsOfK ? S::kN : S::kK, kRowsOfK ? S::kK : S::kN>;

  __device__ static A a(std::byte* stage) { return {stage}; }
  __device__ static B b(std::byte* stage) { return {stage + A::kBytes}; }

  template <bool Aligned, class P>
  __device__ static void copy(const P& p, const T* pa, const T* pb, std::byte* stage, int m, int n, int k) {
    const int thread = static_cast<int>(threadIdx.x);
    if constexpr (kRowsOfM)
      a(stage).template copy_from<Aligned>(pa, p.a_pitch, k, m, p.k, p.m, thread, S::kThreads);
    else
      a(stage).template copy_from<Aligned>(pa, p.a_pitch, m, k, p.m, p.k, thread, S::kThreads);
    if constexpr (kRowsOfK)
      b(stage).template copy_from<Aligned>(pb, p.b_pitch, n, k, p.n, p.k, thread, S::kThreads);
    else
      b(stage).template copy_from<Aligned>(pb, p.b_pitch, k, n, p.k, p.n, thread, S::kThreads);
  }
  /// A [16, 16] at (m, k) and B [16, 16] at (k, n), as fragments.
  __device__ static void fragment_a(std::byte* stage, std::uint32_t* f, int m, int k) {
    if constexpr (kRowsOfM)
      a(stage).load_transposed(f, k, m);
    else
      a(stage).load(f, m, k);
  }
  __device__ static void fragment_b(std::byte* stage, std::uint32_t* f, int k, int n) {
    if constexpr (kRowsOfK)
      b(stage).load_pair(f, n, k);
    else
      b(stage).load_pair_transposed(f, k, n);
  }
};

/// One stage's products for a warp at (warp_m, warp_n) of the block's tile.
template <class T, class S, Form F>
__device__ __forceinline__ void multiply_stage(std::byte* stage, int warp_m, int warp_n,
                                               float (&sums)[S::kRowsA][2 * S::kPairsB][4]) {
  using O = Operands<T, S, F>;
  TRIREME_UNROLL
  for (int k = 0; k < S::kK; k += 16) {
    std::uint32_t a[S::kRowsA][4], b[S::kPairsB][4];
    TRIREME_UNROLL
    for (int i = 0; i < S::kRowsA; ++i) O::fragment_a(stage, a[i], warp_m + 16 * i, k);
    TRIREME_UNROLL
    for (int j = 0; j < S::kPairsB; ++j) O::fragment_b(stage, b[j], k, warp_n + 16 * j);
    TRIREME_UNROLL
    for (int i = 0; i < S::kRowsA; ++i) TRIREME_UNROLL
    for (int j = 0; j < 2 * S::kPairsB; ++j) mma_m16n8k16<T>(sums[i][j], a[i], b[j / 2] + j % 2 * 2);
  }
}

/// Through shared memory, sixteen rows of a warp at a time, so that global memory sees whole rows.
template <class S, class T, class Out>
__device__ __forceinline__ void store_tile(const Gemm<T, Out>& p, std::byte* memory, int row, int column,
                                           float (&sums)[S::kRowsA][2 * S::kPairsB][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  float* const slab = reinterpret_cast<float*>(memory) + warp * 16 * S::kSlabPitch;
  const std::int64_t offset = blockIdx.z * p.c_stride;
  const bool vectors = rows_allow_vectors<4>(p);
  TRIREME_UNROLL
  for (int i = 0; i < S::kRowsA; ++i) {
    sync_warp();
    TRIREME_UNROLL
    for (int j = 0; j < 2 * S::kPairsB; ++j) {
      TRIREME_UNROLL
      for (int half = 0; half < 2; ++half) {
        const Pack<float, 2> pair = {{sums[i][j][2 * half], sums[i][j][2 * half + 1]}};
        store_vector(slab + (lane / 4 + 8 * half) * S::kSlabPitch + 8 * j + lane % 4 * 2, pair);
      }
    }
    sync_warp();
    for (int at = lane; at < 16 * S::kWarpN / 4; at += 32) {
      const int r = at / (S::kWarpN / 4), c = at % (S::kWarpN / 4) * 4;
      if (row + 16 * i + r >= p.m || column + c >= p.n) continue;
      const auto piece = load_vector<Pack<float, 4>>(slab + r * S::kSlabPitch + c);
      store_row_piece<4>(p, piece.values, row + 16 * i + r, column + c, offset, vectors);
    }
  }
}

template <class T, class Out, class S, Form F, bool Aligned>
__global__ void __launch_bounds__(S::kThreads, S::blocks(F)) gemm_kernel(const __grid_constant__ Gemm<T, Out> p) {
  TRIREME_DYNAMIC_SHARED(memory, 128);
  const TileOrder tile(static_cast<int>(blockIdx.x), (p.m + S::kM - 1) / S::kM, (p.n + S::kN - 1) / S::kN);
  const int m = tile.row * S::kM, n = tile.column * S::kN, steps = (p.k + S::kK - 1) / S::kK;
  const T* const a = p.a + blockIdx.z * p.a_stride;
  const T* const b = p.b + blockIdx.z * p.b_stride;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int warp_m = warp / S::kWarpsN * S::kWarpM, warp_n = warp % S::kWarpsN * S::kWarpN;
  const auto stage = [&](int step) { return memory + step % S::kStages * S::kStageBytes; };
  float sums[S::kRowsA][2 * S::kPairsB][4] = {};

  for (int step = 0; step < S::kStages - 1; ++step) {
    if (step < steps) Operands<T, S, F>::template copy<Aligned>(p, a, b, stage(step), m, n, step * S::kK);
    cp_async_commit();  // also when empty: the count of groups stays the number of the step
  }
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<S::kStages - 2>();
    sync_threads();
    const int ahead = step + S::kStages - 1;
    if (ahead < steps) Operands<T, S, F>::template copy<Aligned>(p, a, b, stage(ahead), m, n, ahead * S::kK);
    cp_async_commit();
    multiply_stage<T, S, F>(stage(step), warp_m, warp_n, sums);
  }
  sync_threads();  // the stages become the epilogue's slabs
  store_tile<S>(p, memory, m + warp_m, n + warp_n, sums);
}

template <class S, class T, class Out>
void launch_shape(const Gemm<T, Out>& p, Stream stream) {
  const auto aligned = [](const T* pointer, std::int64_t pitch, std::int64_t stride) {
    return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0 && pitch % 8 == 0 && stride % 8 == 0;
  };
  const bool fast = aligned(p.a, p.a_pitch, p.a_stride) && aligned(p.b, p.b_pitch, p.b_stride);
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
  const std::int64_t large_tiles = std::int64_t{(p.m + 127) / 128} * ((p.n + 127) / 128) * p.batch;
  // With fewer large tiles than would fill half of a large GPU, small ones spread better.
  if (large_tiles >= 64)
    launch_shape<Shape<128, 128, 32, 2, 4, 4>>(p, stream);
  else
    launch_shape<Shape<64, 64, 32, 2, 2, 4>>(p, stream);
}

template void gemm_sm80(const Gemm<bf16, bf16>&, Stream);
template void gemm_sm80(const Gemm<bf16, float>&, Stream);
template void gemm_sm80(const Gemm<f16, f16>&, Stream);
template void gemm_sm80(const Gemm<f16, float>&, Stream);

}  // namespace trireme::cuda
