// The kernel that joins attention over two sets of keys; formulas and bytes: cuda/kernels/attention_merge.h. A warp takes
// a head of a token: it knows both factors, and the lane that writes lse does so after all have read it.
#include "cuda/kernels/attention_merge.h"

#include <cmath>

#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) merge_kernel(const __grid_constant__ AttentionMerge<T> p) {
  constexpr int kWidth = 4;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t row = std::int64_t{blockIdx.x} * (kThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  if (row >= p.batch * p.tokens * p.heads) return;
  const std::int64_t h = row % p.heads, t = row / p.heads % p.tokens, b = row / p.heads / p.tokens;
  float* const lse = p.lse + b * p.lse_stride[0] + h * p.lse_stride[1] + t * p.lse_stride[2];
  const float old = *lse;
  const float added = p.part_lse[b * p.part_lse_stride[0] + h * p.part_lse_stride[1] + t * p.part_lse_stride[2]];
  const float top = fmaxf(old, added);
  if (top == -INFINITY) return;  // neither saw a key
  const float kept = expf(old - top), joined = expf(added - top), total = kept + joined;
  const T* const part = p.part + b * p.part_stride[0] + t * p.part_stride[1] + h * p.part_stride[2];
  float* const out = p.out + b * p.out_stride[0] + t * p.out_stride[1] + h * p.out_stride[2];
  for (std::int64_t c = lane * kWidth; c < p.width; c += 32 * kWidth) {
    const int count = p.width - c < kWidth ? static_cast<int>(p.width - c) : kWidth;
    auto sum = load_piece<kWidth>(out + c, count);
    const auto other = load_piece<kWidth>(part + c, count);
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i)
      sum.values[i] = kept / total * sum.values[i] + joined / total * to_float(other.values[i]);
    store_piece(out + c, sum, count);
  }
  sync_warp();
  if (lane == 0) *lse = top + logf(total);
}

}  // namespace

template <class T>
void attention_merge(const AttentionMerge<T>& p, Stream stream) {
  const std::int64_t rows = p.batch * p.tokens * p.heads;
  if (rows * p.width == 0) return;
  launch({"attention_merge", grid_of_pieces(rows * 32, kThreads, 1), {kThreads, 1, 1}, 0, stream}, merge_kernel<T>, p);
}

#define INSTANTIATE(T) template void attention_merge(const AttentionMerge<T>&, Stream);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE

}  // namespace trireme::cuda
