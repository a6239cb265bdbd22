// The norms: which kernels take a row, and those for rows too wide for registers; formulas and bytes:
// cuda/kernels/norm.h. A block takes a wide row (backward: every n-th row); a thread takes pieces of 16 bytes, keeps
// them in shared memory in f32, and later reads only its own pieces. So the only barriers are those of the reductions.
// Read next: cuda/kernels/norm_narrow.cu.
#include "cuda/kernels/norm.h"

#include "core/error.h"
#include "cuda/kernels/norm_narrow.h"
#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kScratch = 32;  // floats of static shared memory, for reductions

/// Calls piece(column, count) for this thread's pieces of a row; count is kPackSize except at a ragged end.
template <int Width, class Piece>
__device__ __forceinline__ void for_my_pieces(int width, Piece&& piece) {
  for (int c = Width * static_cast<int>(threadIdx.x); c < width; c += Width * kThreads)
    piece(c, width - c < Width ? width - c : Width);
}

template <class T>
__global__ void __launch_bounds__(kThreads) forward_kernel(const __grid_constant__ NormForward<T> p) {
  constexpr int kWidth = kPackSize<T>;
  TRIREME_DYNAMIC_SHARED(memory, 16);
  TRIREME_SHARED(float, scratch, kScratch);
  float* const row = reinterpret_cast<float*>(memory);  // [width]
  const std::int64_t at = std::int64_t{blockIdx.x} * p.width;
  const float scale = 1.0F / static_cast<float>(p.width);

  float sum = 0;
  for_my_pieces<kWidth>(p.width, [&](int c, int count) {
    auto h = load_piece<kWidth>(p.x + at + c, count);
    if (p.residual != nullptr) {
      const auto residual = load_piece<kWidth>(p.residual + at + c, count);
      for (int i = 0; i < count; ++i) h.values[i] = from_float<T>(to_float(h.values[i]) + to_float(residual.values[i]));
    }
    if (p.sum != nullptr) store_piece(p.sum + at + c, h, count);
    for (int i = 0; i < count; ++i) sum += row[c + i] = to_float(h.values[i]);
  });
  const float mean = p.kind == Norm::layer ? reduce_block<Sum>(sum, scratch) * scale : 0.0F;
  float squares = 0;  // of differences: mean square minus squared mean would cancel
  for_my_pieces<kWidth>(p.width, [&](int c, int count) {
    for (int i = 0; i < count; ++i) squares += (row[c + i] - mean) * (row[c + i] - mean);
  });
  const float rstd = reciprocal_sqrt(reduce_block<Sum>(squares, scratch) * scale + p.eps);
  for_my_pieces<kWidth>(p.width, [&](int c, int count) {
    const auto gamma = load_piece<kWidth>(p.gamma + c, count);
    Pack<T, kWidth> beta = {}, y;
    if (p.beta != nullptr) beta = load_piece<kWidth>(p.beta + c, count);
    for (int i = 0; i < count; ++i)
      y.values[i] = from_float<T>((row[c + i] - mean) * rstd * to_float(gamma.values[i]) + to_float(beta.values[i]));
    store_piece(p.y + at + c, y, count);
  });
  if (threadIdx.x != 0) return;
  p.rstd[blockIdx.x] = rstd;
  if (p.kind == Norm::layer) p.mean[blockIdx.x] = mean;
}

/// With g = dy gamma and n = (h - mean) rstd:  dx = rstd (g - mean(g) - n mean(g n)), for RMSNorm without mean(g).
template <class T>
__global__ void __launch_bounds__(kThreads) backward_kernel(const __grid_constant__ NormBackward<T> p) {
  constexpr int kWidth = kPackSize<T>;
  TRIREME_DYNAMIC_SHARED(memory, 16);
  TRIREME_SHARED(float, scratch, kScratch);
  float* const dgamma = reinterpret_cast<float*>(memory);  // [width] this block's sums
  float* const dbeta = dgamma + p.width;                   // [width]
  const float scale = 1.0F / static_cast<float>(p.width);
  for_my_pieces<kWidth>(p.width, [&](int c, int count) {
    for (int i = 0; i < count; ++i) dgamma[c + i] = dbeta[c + i] = 0;
  });
  for (int r = static_cast<int>(blockIdx.x); r < p.rows; r += static_cast<int>(gridDim.x)) {
    const std::int64_t at = std::int64_t{r} * p.width;
    const float mean = p.kind == Norm::layer ? p.mean[r] : 0.0F, rstd = p.rstd[r];
    float sum_g = 0, sum_gn = 0;
    for_my_pieces<kWidth>(p.width, [&](int c, int count) {
      const auto h = load_piece<kWidth>(p.h + at + c, count), dy = load_piece<kWidth>(p.dy + at + c, count);
      const auto gamma = load_piece<kWidth>(p.gamma + c, count);
      for (int i = 0; i < count; ++i) {
        const float n = (to_float(h.values[i]) - mean) * rstd, d = to_float(dy.values[i]);
        sum_g += d * to_float(gamma.values[i]);
        sum_gn += d * to_float(gamma.values[i]) * n;
        dgamma[c + i] += d * n;
        dbeta[c + i] += d;
      }
    });
    const float mean_g = p.kind == Norm::layer ? reduce_block<Sum>(sum_g, scratch) * scale : 0.0F;
    const float mean_gn = reduce_block<Sum>(sum_gn, scratch) * scale;
    // The row is read again, but soon, so from the L1 cache and not from memory.
    for_my_pieces<kWidth>(p.width, [&](int c, int count) {
      const auto h = load_piece<kWidth>(p.h + at + c, count), dy = load_piece<kWidth>(p.dy + at + c, count);
      const auto gamma = load_piece<kWidth>(p.gamma + c, count);
      Pack<T, kWidth> past = {}, dx;
      if (p.dsum != nullptr) past = load_piece<kWidth>(p.dsum + at + c, count);
      for (int i = 0; i < count; ++i) {
        const float n = (to_float(h.values[i]) - mean) * rstd;
        const float g = to_float(dy.values[i]) * to_float(gamma.values[i]);
        dx.values[i] = from_float<T>(rstd * (g - mean_g - n * mean_gn) + to_float(past.values[i]));
      }
      store_piece(p.dx + at + c, dx, count);
    });
  }
  float* const out = p.partials + std::int64_t{blockIdx.x} * p.width;
  float* const out_beta = out + std::int64_t{gridDim.x} * p.width;
  for_my_pieces<kWidth>(p.width, [&](int c, int count) {
    for (int i = 0; i < count; ++i) {
      out[c + i] = dgamma[c + i];
      out_beta[c + i] = dbeta[c + i];
    }
  });
}

/// A block adds the sums of 32 columns: each warp those of an eighth of the blocks, in order, then one warp the
/// eighths.
__global__ void __launch_bounds__(kThreads)
    add_partials_kernel(const float* partials, int blocks, int width, float* dgamma, float* dbeta) {
  constexpr int kWarps = kThreads / 32;
  TRIREME_SHARED(float, sums, 2 * kThreads);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int c = static_cast<int>(blockIdx.x) * 32 + lane, end = (warp + 1) * blocks / kWarps;
  float gamma = 0, beta = 0;
  constexpr int kTogether = 8;  // loads on their way before the first is added
  for (int first = warp * blocks / kWarps; first < end && c < width; first += kTogether) {
    float gammas[kTogether] = {}, betas[kTogether] = {};
    TRIREME_UNROLL
    for (int i = 0; i < kTogether; ++i) {
      if (first + i >= end) continue;
      gammas[i] = partials[std::int64_t{first + i} * width + c];
      betas[i] = partials[std::int64_t{blocks + first + i} * width + c];
    }
    TRIREME_UNROLL
    for (int i = 0; i < kTogether; ++i) {
      gamma += gammas[i];
      beta += betas[i];
    }
  }
  sums[threadIdx.x] = gamma;
  sums[kThreads + static_cast<int>(threadIdx.x)] = beta;
  sync_threads();
  if (warp != 0 || c >= width) return;
  for (int w = 1; w < kWarps; ++w) {
    gamma += sums[32 * w + lane];
    beta += sums[kThreads + 32 * w + lane];
  }
  dgamma[c] = gamma;
  if (dbeta != nullptr) dbeta[c] = beta;
}

Dim3 grid(int blocks) { return {static_cast<unsigned>(blocks), 1, 1}; }

void check_width(const char* where, int width) {
  if (width >= 1 && width <= norm_max_width()) return;
  fail(ExitCode::usage, where,
       "width {}; expected 1 to {}, so that two rows of f32 fit in the {} bytes of shared memory that a block has on "
       "this GPU; use a smaller width, or --device cpu",
       width, norm_max_width(), device_limits().shared_per_block);
}

}  // namespace

int norm_max_width() {
  const std::size_t row_bytes = (device_limits().shared_per_block - kScratch * sizeof(float)) / 2;
  return static_cast<int>(row_bytes / sizeof(float));
}

int norm_backward_blocks(int rows) { return rows < 264 ? rows : 264; }  // two for each multiprocessor of an H100

template <class T>
void norm_forward(const NormForward<T>& p, Stream stream) {
  check_width("norm_forward", p.width);
  if (p.rows == 0) return;
  if (p.width <= narrow::kMaxWidth<T>) return narrow::norm_forward(p, stream);
  launch({"norm_forward", grid(p.rows), {kThreads, 1, 1}, static_cast<std::size_t>(p.width) * 4, stream},
         forward_kernel<T>, p);
}

template <class T>
void norm_backward(const NormBackward<T>& p, Stream stream) {
  check_width("norm_backward", p.width);
  const int blocks = norm_backward_blocks(p.rows);
  if (blocks > 0 && p.width <= narrow::kMaxWidth<T>)
    narrow::norm_backward(p, stream);
  else if (blocks > 0)
    launch({"norm_backward", grid(blocks), {kThreads, 1, 1}, static_cast<std::size_t>(p.width) * 8, stream},
           backward_kernel<T>, p);
  launch({"norm_backward", grid((p.width + 31) / 32), {kThreads, 1, 1}, 0, stream}, add_partials_kernel, p.partials,
         blocks, p.width, p.dgamma, p.dbeta);
}

#define INSTANTIATE(T)                                       \
  template void norm_forward(const NormForward<T>&, Stream); \
  template void norm_backward(const NormBackward<T>&, Stream);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE

}  // namespace trireme::cuda
