// Kernels of the norms for rows that fit in registers; formulas and bytes: cuda/kernels/norm.h.
//
// A team of 1, 2, 4 or 8 warps takes a row; a lane keeps up to four pieces of 16 bytes of it. So a row is read once, a
// block has up to eight rows in flight, and a team of one warp needs no barrier: its sums are shuffles. At a width of
// 768 in 16 bits, 16 rows of a multiprocessor are in flight, 48 KB of h and dy; to hide a latency of 700 ns at the
// bandwidth of an H100 takes 18 KB.
// Read next: cuda/kernels/gemm_sm80.cu.
#include "cuda/kernels/norm_narrow.h"

#include "cuda/kernels/pieces.h"

namespace trireme::cuda::narrow {

namespace {

/// A thread's place: which team it is in, and which columns of the team's row it has.
template <class T>
struct Member {
  static constexpr int kWidth = kPackSize<T>;
  int warps, teams, team, thread;  ///< thread: of the team
  int width;

  __device__ Member(int warps_, int width_)
      : warps(warps_),
        teams(kWarps / warps_),
        team(static_cast<int>(threadIdx.x) / (32 * warps_)),
        thread(static_cast<int>(threadIdx.x) % (32 * warps_)),
        width(width_) {}
  __device__ int column(int piece) const { return (piece * 32 * warps + thread) * kWidth; }
  /// Values of the row from a piece on: negative beyond the row, more than kWidth before its last piece.
  __device__ int count(int piece) const { return width - column(piece); }
  __device__ __forceinline__ Packed<T, kWidth> load(const T* row, int piece) const {
    return std::bit_cast<Packed<T, kWidth>>(load_piece<kWidth>(row + column(piece), count(piece)));
  }
  __device__ __forceinline__ void store(T* row, int piece, const float (&x)[kWidth]) const {
    store_piece(row + column(piece), std::bit_cast<Pack<T, kWidth>>(packed<T>(x)), count(piece));
  }
  static __device__ __forceinline__ float value(const Packed<T, kWidth>& of, int i) {
    return unpacked<T, kWidth>(of, i);
  }
  __device__ int first_row() const { return static_cast<int>(blockIdx.x) * teams + team; }
  __device__ int row_step() const { return static_cast<int>(gridDim.x) * teams; }

  /// Every thread of the team gets both sums. `scratch` [2, kWarps, 2]; `turn` alternates between calls, so that a warp
  /// never overwrites what another still reads.
  __device__ __forceinline__ Pack<float, 2> sum(float a, float b, float* scratch, int turn) const {
    a = reduce_warp<Sum>(a);
    b = reduce_warp<Sum>(b);
    if (warps == 1) return {{a, b}};
    float* const mine = scratch + turn * 2 * kWarps + team * 2 * warps;
    if (threadIdx.x % 32 == 0) store_vector(mine + 2 * (thread / 32), Pack<float, 2>{{a, b}});
    barrier_sync(1 + team, 32 * warps);
    Pack<float, 2> total = {};
    for (int w = 0; w < warps; ++w) {
      const auto other = load_vector<Pack<float, 2>>(mine + 2 * w);
      total.values[0] += other.values[0];
      total.values[1] += other.values[1];
    }
    return total;
  }
};

/// Keeps nvcc from holding 16-bit values unpacked across a reduction, where they would take twice the registers.
template <class... Pieces>
__device__ __forceinline__ void forget_unpacked(Pieces&... pieces) {
  const auto forget = [](auto& piece) {
    if constexpr (requires { piece.words; })
      for (std::uint32_t& word : piece.words) compute_again(word);
  };
  (forget(pieces), ...);
}

template <class T, int Pieces>
__global__ void __launch_bounds__(kThreads, Pieces < kMaxPieces ? 4 : 2)
    forward_kernel(const __grid_constant__ NormForward<T> p, int warps) {
  constexpr int kWidth = kPackSize<T>;
  TRIREME_SHARED(float, scratch, 4 * kWarps);
  const Member<T> me(warps, p.width);
  const float scale = 1.0F / static_cast<float>(p.width);
  for (int r = me.first_row(); r < p.rows; r += me.row_step()) {
    const std::int64_t at = std::int64_t{r} * p.width;
    float x[Pieces][kWidth];
    float sum = 0;
    TRIREME_UNROLL
    for (int j = 0; j < Pieces; ++j) {
      const auto h = me.load(p.x + at, j);
      TRIREME_UNROLL
      for (int i = 0; i < kWidth; ++i) x[j][i] = me.value(h, i);
      if (p.residual != nullptr) {
        const auto residual = me.load(p.residual + at, j);
        TRIREME_UNROLL
        for (int i = 0; i < kWidth; ++i) x[j][i] += me.value(residual, i);
        const auto rounded = packed<T>(x[j]);  // the backward pass sees the stored sum
        TRIREME_UNROLL
        for (int i = 0; i < kWidth; ++i) x[j][i] = me.value(rounded, i);
      }
      if (p.sum != nullptr) me.store(p.sum + at, j, x[j]);
      TRIREME_UNROLL
      for (int i = 0; i < kWidth; ++i) sum += x[j][i];
    }
    const float mean = p.kind == Norm::layer ? me.sum(sum, 0.0F, scratch, 0).values[0] * scale : 0.0F;
    float squares = 0;  // of differences: mean square minus squared mean would cancel
    TRIREME_UNROLL
    for (int j = 0; j < Pieces; ++j) {
      TRIREME_UNROLL
      for (int i = 0; i < kWidth; ++i)
        if (i < me.count(j)) squares += (x[j][i] - mean) * (x[j][i] - mean);
    }
    const float rstd = reciprocal_sqrt(me.sum(squares, 0.0F, scratch, 1).values[0] * scale + p.eps);
    TRIREME_UNROLL
    for (int j = 0; j < Pieces; ++j) {
      const auto gamma = me.load(p.gamma, j);
      Packed<T, kWidth> beta = {};
      if (p.beta != nullptr) beta = me.load(p.beta, j);
      float y[kWidth];
      TRIREME_UNROLL
      for (int i = 0; i < kWidth; ++i) y[i] = (x[j][i] - mean) * rstd * me.value(gamma, i) + me.value(beta, i);
      me.store(p.y + at, j, y);
    }
    if (me.thread != 0) continue;
    p.rstd[r] = rstd;
    if (p.kind == Norm::layer) p.mean[r] = mean;
  }
}

/// With g = dy gamma and n = (h - mean) rstd:  dx = rstd (g - mean(g) - n mean(g n)), for RMSNorm without mean(g).
template <class T, int Pieces>
__global__ void __launch_bounds__(kThreads, Pieces < kMaxPieces ? 2 : 1)
    backward_kernel(const __grid_constant__ NormBackward<T> p, int warps) {
  constexpr int kWidth = kPackSize<T>;
  TRIREME_DYNAMIC_SHARED(memory, 16);
  TRIREME_SHARED(float, scratch, 4 * kWarps);
  const Member<T> me(warps, p.width);
  const float scale = 1.0F / static_cast<float>(p.width);
  float dgamma[Pieces][kWidth] = {}, dbeta[Pieces][kWidth] = {};  // sums over the rows of this team

  int turn = 0;
  for (int r = me.first_row(); r < p.rows; r += me.row_step(), turn ^= 1) {
    const std::int64_t at = std::int64_t{r} * p.width;
    const float mean = p.kind == Norm::layer ? p.mean[r] : 0.0F, rstd = p.rstd[r];
    Packed<T, kWidth> h[Pieces] = {}, dy[Pieces] = {}, past[Pieces] = {};
    TRIREME_UNROLL
    for (int j = 0; j < Pieces; ++j) {
      h[j] = me.load(p.h + at, j);
      dy[j] = me.load(p.dy + at, j);
      if (p.dsum != nullptr) past[j] = me.load(p.dsum + at, j);
    }
    float sum_g = 0, sum_gn = 0;
    TRIREME_UNROLL
    for (int j = 0; j < Pieces; ++j) {
      const auto gamma = me.load(p.gamma, j);  // from L1, and again below: to keep it would take too many registers
      TRIREME_UNROLL
      for (int i = 0; i < kWidth; ++i) {  // beyond the row dy is 0
        const float n = (me.value(h[j], i) - mean) * rstd, d = me.value(dy[j], i);
        sum_g += d * me.value(gamma, i);
        sum_gn += d * me.value(gamma, i) * n;
        dgamma[j][i] += d * n;
        dbeta[j][i] += d;
      }
    }
    const Pack<float, 2> sums = me.sum(sum_g, sum_gn, scratch, turn);
    TRIREME_UNROLL
    for (int j = 0; j < Pieces; ++j) forget_unpacked(h[j], dy[j]);
    const float mean_g = p.kind == Norm::layer ? sums.values[0] * scale : 0.0F, mean_gn = sums.values[1] * scale;
    TRIREME_UNROLL
    for (int j = 0; j < Pieces; ++j) {
      const auto gamma = me.load(p.gamma, j);
      float dx[kWidth];
      TRIREME_UNROLL
      for (int i = 0; i < kWidth; ++i) {
        const float n = (me.value(h[j], i) - mean) * rstd;
        const float g = me.value(dy[j], i) * me.value(gamma, i);
        dx[i] = rstd * (g - mean_g - n * mean_gn) + me.value(past[j], i);
      }
      me.store(p.dx + at, j, dx);
    }
  }

  // The sums of all teams are added in their order, so that bits repeat.
  float* const sums = reinterpret_cast<float*>(memory);  // [teams, 2, width]
  float* const mine = sums + me.team * 2 * p.width;
  TRIREME_UNROLL
  for (int j = 0; j < Pieces; ++j) {
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      if (i >= me.count(j)) continue;
      mine[me.column(j) + i] = dgamma[j][i];
      mine[p.width + me.column(j) + i] = dbeta[j][i];
    }
  }
  sync_threads();
  for (int c = static_cast<int>(threadIdx.x); c < 2 * p.width; c += kThreads) {
    float total = 0;
    for (int team = 0; team < me.teams; ++team) total += sums[team * 2 * p.width + c];
    const int row = c / p.width;  // 0: of gamma, 1: of beta
    p.partials[(std::int64_t{gridDim.x} * row + blockIdx.x) * p.width + c - row * p.width] = total;
  }
}

/// f(std::integral_constant<int, pieces of a lane>).
template <class T, class F>
void with_pieces(int width, int warps, F f) {
  const int of_row = 32 * warps * kPackSize<T>, pieces = (width + of_row - 1) / of_row;
  if (pieces == 1) return f(std::integral_constant<int, 1>());
  if (pieces == 2) return f(std::integral_constant<int, 2>());
  if (pieces == 3) return f(std::integral_constant<int, 3>());
  f(std::integral_constant<int, kMaxPieces>());
}

}  // namespace

template <class T>
void norm_forward(const NormForward<T>& p, Stream stream) {
  const int warps = warps_of_row<T>(p.width), teams = kWarps / warps;
  const LaunchConfig config = {
      "norm_forward", {static_cast<unsigned>((p.rows + teams - 1) / teams), 1, 1}, {kThreads, 1, 1}, 0, stream};
  with_pieces<T>(p.width, warps, [&](auto pieces) { launch(config, forward_kernel<T, pieces.value>, p, warps); });
}

template <class T>
void norm_backward(const NormBackward<T>& p, Stream stream) {
  const int warps = warps_of_row<T>(p.width);
  const LaunchConfig config = {"norm_backward",
                               {static_cast<unsigned>(norm_backward_blocks(p.rows)), 1, 1},
                               {kThreads, 1, 1},
                               static_cast<std::size_t>(kWarps / warps * p.width) * 8,
                               stream};
  with_pieces<T>(p.width, warps, [&](auto pieces) { launch(config, backward_kernel<T, pieces.value>, p, warps); });
}

#define INSTANTIATE(T)                                       \
  template void norm_forward(const NormForward<T>&, Stream); \
  template void norm_backward(const NormBackward<T>&, Stream);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE

}  // namespace trireme::cuda::narrow
