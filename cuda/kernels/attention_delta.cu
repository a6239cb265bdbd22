// Computes what attention's backward needs for each query before it starts; formulas: cuda/kernels/attention.h.
// Read next: cuda/kernels/attention_backward_sm80.cu.
#include "cuda/kernels/attention_delta.h"

#include "cuda/kernels/attention_tiles.h"

namespace trireme::cuda {

using namespace attention;

namespace {

/// delta = rowsum(dout out) - dlse. Sixteen threads share a row of one head: 16 bytes each.
template <class T>
__global__ void __launch_bounds__(kThreads) delta_kernel(const __grid_constant__ AttentionBackward<T> p) {
  const auto& f = p.forward;
  const int lane = static_cast<int>(threadIdx.x % 16);
  const std::int64_t item = std::int64_t{blockIdx.x} * (kThreads / 16) + threadIdx.x / 16;  // (token, head)
  const std::int64_t token = item / f.heads;
  const int head = static_cast<int>(item % f.heads), column = head * f.head_dim + 8 * lane;
  const bool exists = token < std::int64_t{f.batch} * f.queries;
  float sum = 0;
  if (exists && 8 * lane < f.head_dim) {
    const auto out = load_vector<Pack<T, 8>>(f.out + token * f.out_pitch + column);
    const auto dout = load_vector<Pack<T, 8>>(p.dout + token * p.dout_pitch + column);
    TRIREME_UNROLL
    for (int i = 0; i < 8; ++i) sum += to_float(out.values[i]) * to_float(dout.values[i]);
  }
  TRIREME_UNROLL
  for (int bits = 8; bits > 0; bits /= 2) sum += shuffle_xor(sum, bits);
  if (!exists || lane != 0) return;
  const std::int64_t at = (token / f.queries * f.heads + head) * f.queries + token % f.queries;
  p.delta[at] = p.dlse == nullptr ? sum : sum - p.dlse[at];
}

/// The smallest first key of every 64 queries: blocks of keys before it skip these queries. One warp each.
template <class T>
__global__ void __launch_bounds__(32) first_tile_kernel(const __grid_constant__ AttentionBackward<T> p) {
  const int first = first_key_of_rows(p.forward, blockIdx.y, static_cast<int>(blockIdx.x) * kRows);
  if (threadIdx.x == 0) p.first_tile[blockIdx.y * gridDim.x + blockIdx.x] = first;
}

}  // namespace

template <class T>
void attention_delta(const AttentionBackward<T>& p, Stream stream) {
  const auto& f = p.forward;
  if (f.queries == 0 || f.batch == 0) return;
  const auto blocks = [](std::int64_t n, int size) { return static_cast<unsigned>((n + size - 1) / size); };
  const unsigned rows = blocks(std::int64_t{f.batch} * f.queries * f.heads, kThreads / 16);
  launch({"attention_delta", {rows, 1, 1}, {kThreads, 1, 1}, 0, stream}, &delta_kernel<T>, p);
  if (f.first_key == nullptr) return;
  const Dim3 tiles = {blocks(f.queries, kRows), static_cast<unsigned>(f.batch), 1};
  launch({"attention_delta first_tile", tiles, {32, 1, 1}, 0, stream}, &first_tile_kernel<T>, p);
}

template void attention_delta(const AttentionBackward<bf16>&, Stream);
template void attention_delta(const AttentionBackward<f16>&, Stream);

}  // namespace trireme::cuda
