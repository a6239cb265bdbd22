// The f32 product: tiles in shared memory, 8 x 8 sums in the registers of a thread. Formulas, bytes and FLOPs:
// cuda/kernels/gemm_f32.h.
//
// Both tiles lie in shared memory by rows of one k, so that a thread loads its operands with four loads of 16 bytes for
// 64 multiply-adds; an operand stored by rows of K is transposed on the way. There are two stages: while a block
// multiplies one, the next step's values are loaded into registers and then written to the other; one barrier per step.
// Read next: examples/cuda_lab/gemm/4_register_tiles.cu, the same without the second stage.
#include "cuda/kernels/gemm_f32.h"

#include "cuda/kernels/gemm_epilogue.h"
#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

using Four = Pack<float, 4>;

/// M x N x K of a block. A thread owns 8 x 8 of it: four rows in each half of M and four columns in each half of N, so
/// that neighbouring threads read neighbouring 16 bytes.
template <int M, int N, int K>
struct Shape {
  static constexpr int kM = M, kN = N, kK = K, kThreads = M * N / 64, kAcross = N / 8;
  static constexpr int kBlocks = kThreads == 256 ? 2 : 4;  ///< that a multiprocessor should hold
};

/// A stage's tile of one operand, [K, Width]. RowsOfK: the operand's rows run along K, [Width, K] as stored.
template <int Width, int K, int Threads, bool RowsOfK>
struct Operand {
  static constexpr int kPitch = Width + 4, kPieces = Width * K / 4 / Threads;
  static constexpr int kCount = K * kPitch;  ///< floats of a stage

  /// This thread's part of the tile at (outer, k) of an operand [size, depth]; zeros outside.
  __device__ static __forceinline__ void load(const float* from, std::int64_t pitch, int outer, int k, int size,
                                              int depth, Four (&pieces)[kPieces]) {
    TRIREME_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      const int piece = static_cast<int>(threadIdx.x) + i * Threads;
      const int row = RowsOfK ? outer + piece / (K / 4) : k + piece / (Width / 4);
      const int column = RowsOfK ? k + piece % (K / 4) * 4 : outer + piece % (Width / 4) * 4;
      const int rows = RowsOfK ? size : depth, columns = RowsOfK ? depth : size;
      const int left = row < rows ? columns - column : 0;
      pieces[i] = load_piece<4>(from + row * pitch + column, left);
    }
  }
  __device__ static __forceinline__ void store(float* tile, const Four (&pieces)[kPieces]) {
    TRIREME_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      const int piece = static_cast<int>(threadIdx.x) + i * Threads;
      if constexpr (RowsOfK) {
        TRIREME_UNROLL
        for (int j = 0; j < 4; ++j) tile[(piece % (K / 4) * 4 + j) * kPitch + piece / (K / 4)] = pieces[i].values[j];
      } else {
        store_vector(tile + piece / (Width / 4) * kPitch + piece % (Width / 4) * 4, pieces[i]);
      }
    }
  }
  /// The eight values of step k that this thread's rows, or columns, need.
  __device__ static __forceinline__ void read(const float* tile, int k, int mine, float (&values)[8]) {
    TRIREME_UNROLL
    for (int half = 0; half < 2; ++half) {
      const auto four = load_vector<Four>(tile + k * kPitch + half * (Width / 2) + 4 * mine);
      TRIREME_UNROLL
      for (int i = 0; i < 4; ++i) values[4 * half + i] = four.values[i];
    }
  }
};

/// alpha sums + bias + beta c, for the rows and columns that exist.
template <class S>
__device__ __forceinline__ void store_sums(const GemmF32& p, float* c, int row, int column, const float (&sums)[8][8]) {
  TRIREME_UNROLL
  for (int i = 0; i < 8; ++i) {
    const int r = row + i / 4 * (S::kM / 2) + i % 4;
    TRIREME_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int first = column + half * (S::kN / 2), count = r < p.m ? p.n - first : 0;
      float* const to = c + r * p.c_pitch + first;
      Four before = {}, result;
      if (p.beta != 0) before = load_piece<4>(to, count);
      TRIREME_UNROLL
      for (int j = 0; j < 4; ++j) {
        float x = p.alpha * sums[i][4 * half + j];
        if (p.bias != nullptr && j < count) x += p.bias[first + j];
        result.values[j] = p.beta != 0 ? x + p.beta * before.values[j] : x;
      }
      store_piece<4>(to, result, count);
    }
  }
}

template <class S, Form F>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks) gemm_f32_kernel(const __grid_constant__ GemmF32 p) {
  using A = Operand<S::kM, S::kK, S::kThreads, F != Form::tn>;
  using B = Operand<S::kN, S::kK, S::kThreads, F == Form::nt>;
  TRIREME_SHARED(float, memory, 2 * (A::kCount + B::kCount));
  const TileOrder tile(static_cast<int>(blockIdx.x), (p.m + S::kM - 1) / S::kM, (p.n + S::kN - 1) / S::kN);
  const int m = tile.row * S::kM, n = tile.column * S::kN, steps = (p.k + S::kK - 1) / S::kK;
  const int thread = static_cast<int>(threadIdx.x), down = thread / S::kAcross, across = thread % S::kAcross;
  const float* const a = p.a + blockIdx.z * p.a_stride;
  const float* const b = p.b + blockIdx.z * p.b_stride;
  const auto a_tile = [&](int step) { return memory + step % 2 * A::kCount; };
  const auto b_tile = [&](int step) { return memory + 2 * A::kCount + step % 2 * B::kCount; };
  Four a_next[A::kPieces], b_next[B::kPieces];
  float sums[8][8] = {};

  if (steps > 0) {
    A::load(a, p.a_pitch, m, 0, p.m, p.k, a_next);
    B::load(b, p.b_pitch, n, 0, p.n, p.k, b_next);
    A::store(a_tile(0), a_next);
    B::store(b_tile(0), b_next);
  }
  for (int step = 0; step < steps; ++step) {
    sync_threads();  // this stage is written, and all threads are done with the other
    const bool more = step + 1 < steps;
    if (more) {
      A::load(a, p.a_pitch, m, (step + 1) * S::kK, p.m, p.k, a_next);
      B::load(b, p.b_pitch, n, (step + 1) * S::kK, p.n, p.k, b_next);
    }
    TRIREME_UNROLL
    for (int k = 0; k < S::kK; ++k) {
      float x[8], y[8];
      A::read(a_tile(step), k, down, x);
      B::read(b_tile(step), k, across, y);
      TRIREME_UNROLL
      for (int i = 0; i < 8; ++i) {
        TRIREME_UNROLL
        for (int j = 0; j < 8; ++j) sums[i][j] += x[i] * y[j];
      }
    }
    if (more) {
      A::store(a_tile(step + 1), a_next);
      B::store(b_tile(step + 1), b_next);
    }
  }
  store_sums<S>(p, p.c + blockIdx.z * p.c_stride, m + 4 * down, n + 4 * across, sums);
}

template <class S>
void launch_shape(const GemmF32& p, Stream stream) {
  const auto tiles = static_cast<unsigned>(((p.m + S::kM - 1) / S::kM) * ((p.n + S::kN - 1) / S::kN));
  const LaunchConfig config = {"gemm_f32", {tiles, 1, static_cast<unsigned>(p.batch)}, {S::kThreads, 1, 1}, 0, stream};
  if (p.form == Form::nn) launch(config, &gemm_f32_kernel<S, Form::nn>, p);
  if (p.form == Form::nt) launch(config, &gemm_f32_kernel<S, Form::nt>, p);
  if (p.form == Form::tn) launch(config, &gemm_f32_kernel<S, Form::tn>, p);
}

}  // namespace

void gemm_f32(const GemmF32& p, Stream stream) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  const std::int64_t large_tiles = std::int64_t{(p.m + 127) / 128} * ((p.n + 127) / 128) * p.batch;
  // With fewer large tiles than would fill half of a large GPU, small ones spread better.
  if (large_tiles >= 64)
    launch_shape<Shape<128, 128, 8>>(p, stream);
  else
    launch_shape<Shape<64, 64, 16>>(p, stream);
}

}  // namespace trireme::cuda
