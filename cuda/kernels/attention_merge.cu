// The kernel that joins attention over two sets of keys; formulas and bytes: cuda/kernels/attention_merge.h. A
// head of a token takes one lane for eight values, so a warp takes four heads of 64. The work per head, finding
// its place and its two factors, costs more instructions than its values.
#include "cuda/kernels/attention_merge.h"

#include <cmath>

#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 256, kWidth = 4, kPieces = 2;  // a lane has kPieces pieces of kWidth under way

/// 2^lane_bits lanes of a warp share a head.
template <class T>
__global__ void __launch_bounds__(kThreads) merge_kernel(const __grid_constant__ AttentionMerge<T> p, int lane_bits) {
  const auto [row, lane, lanes] = my_row_share(lane_bits);
  const std::int64_t h = row % p.heads, t = row / p.heads % p.tokens, b = row / p.heads / p.tokens;
  const std::int64_t at = b * p.lse_stride[0] + h * p.lse_stride[1] + t * p.lse_stride[2];
  float old = -INFINITY, added = -INFINITY;
  if (b < p.batch) {
    old = p.lse[at];
    added = p.part_lse[b * p.part_lse_stride[0] + h * p.part_lse_stride[1] + t * p.part_lse_stride[2]];
  }
  sync_warp();  // all lanes have read lse before one writes it
  const float top = fmaxf(old, added);
  if (top == -INFINITY) return;  // neither part saw a key, or there is no such head
  const float of_old = expf(old - top), of_added = expf(added - top), total = of_old + of_added;
  const float kept = of_old / total, joined = of_added / total;
  if (lane == 0) p.lse[at] = top + logf(total);
  const T* const part = p.part + b * p.part_stride[0] + t * p.part_stride[1] + h * p.part_stride[2];
  float* const out = p.out + b * p.out_stride[0] + t * p.out_stride[1] + h * p.out_stride[2];
  for (std::int64_t begin = lane * kWidth; begin < p.width; begin += kPieces * kWidth * lanes) {
    Pack<float, kWidth> sums[kPieces];
    Pack<T, kWidth> others[kPieces];
    int counts[kPieces];
    TRIREME_UNROLL
    for (int k = 0; k < kPieces; ++k) {
      const std::int64_t c = begin + k * kWidth * lanes;
      counts[k] = static_cast<int>(p.width - c);
      sums[k] = load_piece<kWidth>(out + c, counts[k]);
      others[k] = load_piece<kWidth>(part + c, counts[k]);
    }
    TRIREME_UNROLL
    for (int k = 0; k < kPieces; ++k) {
      TRIREME_UNROLL
      for (int i = 0; i < kWidth; ++i)
        sums[k].values[i] = kept * sums[k].values[i] + joined * to_float(others[k].values[i]);
      store_piece(out + begin + k * kWidth * lanes, sums[k], counts[k]);
    }
  }
}

}  // namespace

template <class T>
void attention_merge(const AttentionMerge<T>& p, Stream stream) {
  const std::int64_t rows = p.batch * p.tokens * p.heads;
  if (rows * p.width == 0) return;
  const int lane_bits = lane_bits_of_row(p.width, kPieces * kWidth);
  launch({"attention_merge", grid_of_pieces(rows << lane_bits, kThreads, 1), {kThreads, 1, 1}, 0, stream},
         merge_kernel<T>, p, lane_bits);
}

#define INSTANTIATE(T) template void attention_merge(const AttentionMerge<T>&, Stream);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE

}  // namespace trireme::cuda
