// Kernels of the norms for rows that fit in registers; formulas and bytes: cuda/kernels/norm.h.
//
// A team of 1, 2, 4 or 8 warps takes row after row; a lane keeps up to four pieces of 16 bytes of one. So a row is read
// once, a block works on up to eight rows, and a team of one warp adds by shuffles, without a barrier. While a team
// works on a row, its next row is copied to shared memory (RowsAhead). Otherwise memory would idle whenever all teams
// compute. In the backward pass, at a width of 768 in 16 bits, a multiprocessor always waits for 16 rows of h and dy:
// 48 KB, where 25 KB hide a latency of 700 ns at the bandwidth of an H200.
// Read next: cuda/kernels/gemm_sm80.cu.
#include "cuda/kernels/norm_narrow.h"

#include "cuda/device/persistent.h"
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
  __device__ __forceinline__ void store(T* row, int piece, const Packed<T, kWidth>& x) const {
    store_piece(row + column(piece), std::bit_cast<Pack<T, kWidth>>(x), count(piece));
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

/// Rows on their way to shared memory. A thread copies the pieces that it will read, so it waits for its own copies and
/// for no barrier. Pieces that an asynchronous copy cannot take, because they are ragged or not aligned to 16 bytes, are
/// loaded and stored at once.
template <class T, int Pieces>
struct RowsAhead {
  static constexpr int kWidth = kPackSize<T>;
  std::byte* mine;  ///< of [2, inputs, Pieces, kThreads] pieces of 16 bytes, those of this thread
  int inputs;       ///< tensors of which a row is read

  __device__ RowsAhead(std::byte* memory, int inputs_) : mine(memory + threadIdx.x * 16), inputs(inputs_) {}
  static constexpr std::size_t bytes(int inputs) {
    return 2 * static_cast<std::size_t>(inputs) * Pieces * kThreads * 16;
  }

  /// turn: 0 and 1 in alternation, from row to row.
  __device__ __forceinline__ void request(const Member<T>& me, int turn, int input, const T* row) const {
    TRIREME_UNROLL
    for (int j = 0; j < Pieces; ++j) {
      const T* const from = row + me.column(j);
      if (me.count(j) >= kWidth && reinterpret_cast<std::uintptr_t>(from) % 16 == 0)
        cp_async_16(place(turn, input, j), from);
      else
        store_vector(place(turn, input, j), load_piece<kWidth>(from, me.count(j)));
    }
  }
  /// Zeros beyond the row. Call cp_async_wait() first.
  __device__ __forceinline__ Packed<T, kWidth> piece(int turn, int input, int j) const {
    return load_vector<Packed<T, kWidth>>(place(turn, input, j));
  }

 private:
  __device__ __forceinline__ std::byte* place(int turn, int input, int j) const {
    return mine + ((turn * inputs + input) * Pieces + j) * (kThreads * 16);
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

/// How many blocks fit on a multiprocessor: the registers of the kernel decide.
template <int Pieces>
constexpr int kForwardBlocks = Pieces < kMaxPieces ? 3 : 2;
template <int Pieces>
constexpr int kBackwardBlocks = Pieces < kMaxPieces ? 2 : 1;

template <class T, int Pieces>
__global__ void __launch_bounds__(kThreads, kForwardBlocks<Pieces>)
    forward_kernel(const __grid_constant__ NormForward<T> p, int warps) {
  constexpr int kWidth = kPackSize<T>;
  TRIREME_DYNAMIC_SHARED(memory, 16);
  TRIREME_SHARED(float, scratch, 4 * kWarps);
  const Member<T> me(warps, p.width);
  const RowsAhead<T, Pieces> ahead(memory, p.residual != nullptr ? 2 : 1);
  const float scale = 1.0F / static_cast<float>(p.width);
  const auto request = [&](int r, int turn) {
    if (r < p.rows) {
      const std::int64_t at = std::int64_t{r} * p.width;
      ahead.request(me, turn, 0, p.x + at);
      if (p.residual != nullptr) ahead.request(me, turn, 1, p.residual + at);
    }
    cp_async_commit();  // after the last row an empty group, so that the wait below means the same for every row
  };

  int turn = 0;
  request(me.first_row(), turn);
  Packed<T, kWidth> gamma[Pieces], beta[Pieces] = {};
  TRIREME_UNROLL
  for (int j = 0; j < Pieces; ++j) {
    gamma[j] = me.load(p.gamma, j);
    if (p.beta != nullptr) beta[j] = me.load(p.beta, j);
  }
  for (int r = me.first_row(); r < p.rows; r += me.row_step(), turn ^= 1) {
    request(r + me.row_step(), turn ^ 1);
    cp_async_wait<1>();
    const std::int64_t at = std::int64_t{r} * p.width;
    Packed<T, kWidth> x[Pieces];  // rounded, as the backward pass will see it
    float sum = 0;
    TRIREME_UNROLL
    for (int j = 0; j < Pieces; ++j) {
      x[j] = ahead.piece(turn, 0, j);
      if (p.residual != nullptr) {
        const auto residual = ahead.piece(turn, 1, j);
        float h[kWidth];
        TRIREME_UNROLL
        for (int i = 0; i < kWidth; ++i) h[i] = me.value(x[j], i) + me.value(residual, i);
        x[j] = packed<T>(h);
      }
      if (p.sum != nullptr) me.store(p.sum + at, j, x[j]);
      TRIREME_UNROLL
      for (int i = 0; i < kWidth; ++i) sum += me.value(x[j], i);
    }
    const float mean = p.kind == Norm::layer ? me.sum(sum, 0.0F, scratch, 0).values[0] * scale : 0.0F;
    float squares = 0;  // of differences: mean square minus squared mean would cancel
    TRIREME_UNROLL
    for (int j = 0; j < Pieces; ++j) {
      forget_unpacked(x[j]);
      TRIREME_UNROLL
      for (int i = 0; i < kWidth; ++i)
        if (i < me.count(j)) squares += (me.value(x[j], i) - mean) * (me.value(x[j], i) - mean);
    }
    const float rstd = reciprocal_sqrt(me.sum(squares, 0.0F, scratch, 1).values[0] * scale + p.eps);
    TRIREME_UNROLL
    for (int j = 0; j < Pieces; ++j) {
      forget_unpacked(x[j], gamma[j], beta[j]);
      float y[kWidth];
      TRIREME_UNROLL
      for (int i = 0; i < kWidth; ++i)
        y[i] = (me.value(x[j], i) - mean) * rstd * me.value(gamma[j], i) + me.value(beta[j], i);
      me.store(p.y + at, j, packed<T>(y));
    }
    if (me.thread != 0) continue;
    p.rstd[r] = rstd;
    if (p.kind == Norm::layer) p.mean[r] = mean;
  }
}

/// With g = dy gamma and n = (h - mean) rstd:  dx = rstd (g - mean(g) - n mean(g n)), for RMSNorm without mean(g).
template <class T, int Pieces>
__global__ void __launch_bounds__(kThreads, kBackwardBlocks<Pieces>)
    backward_kernel(const __grid_constant__ NormBackward<T> p, int warps) {
  constexpr int kWidth = kPackSize<T>;
  TRIREME_DYNAMIC_SHARED(memory, 16);
  TRIREME_SHARED(float, scratch, 4 * kWarps);
  const Member<T> me(warps, p.width);
  const RowsAhead<T, Pieces> ahead(memory, p.dsum != nullptr ? 3 : 2);
  const float scale = 1.0F / static_cast<float>(p.width);
  float next_mean = 0, next_rstd = 0;
  const auto request = [&](int r, int turn) {
    if (r < p.rows) {
      const std::int64_t at = std::int64_t{r} * p.width;
      ahead.request(me, turn, 0, p.h + at);
      ahead.request(me, turn, 1, p.dy + at);
      if (p.dsum != nullptr) ahead.request(me, turn, 2, p.dsum + at);
      if (p.kind == Norm::layer) next_mean = p.mean[r];
      next_rstd = p.rstd[r];
    }
    cp_async_commit();  // after the last row an empty group, so that the wait below means the same for every row
  };

  int turn = 0;
  request(me.first_row(), turn);
  Packed<T, kWidth> gamma[Pieces];
  TRIREME_UNROLL
  for (int j = 0; j < Pieces; ++j) gamma[j] = me.load(p.gamma, j);
  float dgamma[Pieces][kWidth] = {}, dbeta[Pieces][kWidth] = {};  // sums over the rows of this team
  for (int r = me.first_row(); r < p.rows; r += me.row_step(), turn ^= 1) {
    const float mean = next_mean, rstd = next_rstd;
    request(r + me.row_step(), turn ^ 1);
    cp_async_wait<1>();
    float sum_g = 0, sum_gn = 0;
    TRIREME_UNROLL
    for (int j = 0; j < Pieces; ++j) {
      const auto h = ahead.piece(turn, 0, j), dy = ahead.piece(turn, 1, j);
      forget_unpacked(gamma[j]);
      TRIREME_UNROLL
      for (int i = 0; i < kWidth; ++i) {  // beyond the row dy is 0
        const float n = (me.value(h, i) - mean) * rstd, d = me.value(dy, i);
        sum_g += d * me.value(gamma[j], i);
        sum_gn += d * me.value(gamma[j], i) * n;
        dgamma[j][i] += d * n;
        dbeta[j][i] += d;
      }
    }
    const Pack<float, 2> sums = me.sum(sum_g, sum_gn, scratch, turn);
    const float mean_g = p.kind == Norm::layer ? sums.values[0] * scale : 0.0F, mean_gn = sums.values[1] * scale;
    const std::int64_t at = std::int64_t{r} * p.width;
    TRIREME_UNROLL
    for (int j = 0; j < Pieces; ++j) {
      const auto h = ahead.piece(turn, 0, j), dy = ahead.piece(turn, 1, j);
      Packed<T, kWidth> past = {};
      if (p.dsum != nullptr) past = ahead.piece(turn, 2, j);
      forget_unpacked(gamma[j]);
      float dx[kWidth];
      TRIREME_UNROLL
      for (int i = 0; i < kWidth; ++i) {
        const float n = (me.value(h, i) - mean) * rstd;
        const float g = me.value(dy, i) * me.value(gamma[j], i);
        dx[i] = rstd * (g - mean_g - n * mean_gn) + me.value(past, i);
      }
      me.store(p.dx + at, j, packed<T>(dx));
    }
  }

  // The sums of all teams are added in their order, so that bits repeat. They take the memory of the rows.
  sync_threads();
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
  with_pieces<T>(p.width, warps, [&](auto pieces) {
    const unsigned blocks = persistent_blocks((p.rows + teams - 1) / teams, kForwardBlocks<pieces.value>);
    const std::size_t bytes = RowsAhead<T, pieces.value>::bytes(p.residual != nullptr ? 2 : 1);
    launch({"norm_forward", {blocks, 1, 1}, {kThreads, 1, 1}, bytes, stream}, forward_kernel<T, pieces.value>, p,
           warps);
  });
}

template <class T>
void norm_backward(const NormBackward<T>& p, Stream stream) {
  const int warps = warps_of_row<T>(p.width);
  const auto blocks = static_cast<unsigned>(norm_backward_blocks(p.rows));
  const std::size_t of_sums = static_cast<std::size_t>(kWarps / warps * p.width) * 8;
  with_pieces<T>(p.width, warps, [&](auto pieces) {
    const std::size_t bytes = std::max(of_sums, RowsAhead<T, pieces.value>::bytes(p.dsum != nullptr ? 3 : 2));
    launch({"norm_backward", {blocks, 1, 1}, {kThreads, 1, 1}, bytes, stream}, backward_kernel<T, pieces.value>, p,
           warps);
  });
}

#define INSTANTIATE(T)                                       \
  template void norm_forward(const NormForward<T>&, Stream); \
  template void norm_backward(const NormBackward<T>&, Stream);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE

}  // namespace trireme::cuda::narrow
