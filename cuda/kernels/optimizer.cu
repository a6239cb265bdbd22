// Kernels of the optimizer; formulas and bytes: cuda/kernels/optimizer.h.
#include "cuda/kernels/optimizer.h"

#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 256;

template <class T>
__device__ bool is_aligned(const T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % (4 * sizeof(T)) == 0;
}

__device__ float update(float& w, float& m, float& v, float g, float decay, const AdamWSettings& s) {
  m = s.beta1 * m + (1.0F - s.beta1) * g;
  v = s.beta2 * v + (1.0F - s.beta2) * g * g;
  w -= s.lr * (m * s.inverse1 / (sqrtf(v * s.inverse2) + s.eps) + decay * w);
  return w;
}

/// min(1, max_norm / norm) / loss scale; negative when the step is to be skipped.
__device__ float gradient_factor(const AdamWSettings& s, const float* norm_squared) {
  if (norm_squared == nullptr) return s.gradient_scale;
  const float norm = sqrtf(*norm_squared) * s.gradient_scale;
  if (!(norm < 3.4e38F)) return -1.0F;  // NaN as well
  return s.max_norm > 0 && norm > s.max_norm ? s.gradient_scale * (s.max_norm / norm) : s.gradient_scale;
}

/// A piece of four elements a thread.
template <class G, class Low>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(const __grid_constant__ AdamWTensor<G, Low> t, const __grid_constant__ AdamWSettings s) {
  const MyPiece mine = my_piece<4>(t.count);
  if (mine.count == 0) return;
  auto w = load_piece<4>(t.weight + mine.first, mine.count), m = load_piece<4>(t.m + mine.first, mine.count);
  auto v = load_piece<4>(t.v + mine.first, mine.count);
  const auto g = load_piece<4>(t.gradient + mine.first, mine.count);
  Pack<Low, 4> low;
  TRIREME_UNROLL
  for (int j = 0; j < 4; ++j) {
    const float gradient = s.gradient_scale * to_float(g.values[j]);
    low.values[j] = from_float<Low>(update(w.values[j], m.values[j], v.values[j], gradient, t.decay, s));
  }
  store_piece(t.weight + mine.first, w, mine.count);
  store_piece(t.m + mine.first, m, mine.count);
  store_piece(t.v + mine.first, v, mine.count);
  if (t.low != nullptr) store_piece(t.low + mine.first, low, mine.count);
}

/// One block per tile; four neighbouring elements a thread, 16-byte accesses to f32 where all pointers allow them.
template <class G>
__global__ void __launch_bounds__(kThreads)
    adamw_many_kernel(const AdamWTensor<G>* tensors, const Tile* tiles, AdamWSettings s, const float* norm_squared) {
  const Tile tile = tiles[blockIdx.x];
  const AdamWTensor<G> t = tensors[tile.tensor];
  const float factor = gradient_factor(s, norm_squared);
  if (factor < 0) return;
  const std::int64_t begin = std::int64_t{tile.tile} * kOptimizerTile;
  const std::int64_t end = begin + kOptimizerTile < t.count ? begin + kOptimizerTile : t.count;
  const bool vectors = is_aligned(t.weight) && is_aligned(t.m) && is_aligned(t.v) && is_aligned(t.gradient) &&
                       (t.low == nullptr || is_aligned(t.low));
  for (std::int64_t i = begin + 4 * static_cast<std::int64_t>(threadIdx.x); i < end; i += 4 * kThreads) {
    if (vectors && i + 4 <= end) {
      auto w = load_vector<Pack<float, 4>>(t.weight + i), m = load_vector<Pack<float, 4>>(t.m + i);
      auto v = load_vector<Pack<float, 4>>(t.v + i);
      const auto g = load_vector<Pack<G, 4>>(t.gradient + i);
      Pack<G, 4> low;
      TRIREME_UNROLL
      for (int j = 0; j < 4; ++j)
        low.values[j] =
            from_float<G>(update(w.values[j], m.values[j], v.values[j], factor * to_float(g.values[j]), t.decay, s));
      store_vector(t.weight + i, w);
      store_vector(t.m + i, m);
      store_vector(t.v + i, v);
      if (t.low != nullptr) store_vector(t.low + i, low);
    } else {
      for (std::int64_t j = i; j < i + 4 && j < end; ++j) {
        const float w = update(t.weight[j], t.m[j], t.v[j], factor * to_float(t.gradient[j]), t.decay, s);
        if (t.low != nullptr) t.low[j] = from_float<G>(w);
      }
    }
  }
}

template <class G>
__global__ void __launch_bounds__(kThreads)
    squares_kernel(const AdamWTensor<G>* tensors, const Tile* tiles, float* partial) {
  TRIREME_SHARED(float, scratch, 32);
  const Tile tile = tiles[blockIdx.x];
  const AdamWTensor<G> t = tensors[tile.tensor];
  const std::int64_t begin = std::int64_t{tile.tile} * kOptimizerTile;
  const std::int64_t end = begin + kOptimizerTile < t.count ? begin + kOptimizerTile : t.count;
  const bool vectors = is_aligned(t.gradient);
  float sum = 0;
  for (std::int64_t i = begin + 4 * static_cast<std::int64_t>(threadIdx.x); i < end; i += 4 * kThreads) {
    if (vectors && i + 4 <= end) {
      const auto g = load_vector<Pack<G, 4>>(t.gradient + i);
      TRIREME_UNROLL
      for (int j = 0; j < 4; ++j) sum += to_float(g.values[j]) * to_float(g.values[j]);
    } else {
      for (std::int64_t j = i; j < i + 4 && j < end; ++j) sum += to_float(t.gradient[j]) * to_float(t.gradient[j]);
    }
  }
  sum = reduce_block<Sum>(sum, scratch);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// One block adds the partial sums, each thread its own in order: no atomics, so the result never varies.
__global__ void __launch_bounds__(kThreads) add_partials_kernel(const float* partial, int count, float* result) {
  TRIREME_SHARED(float, scratch, 32);
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum += partial[i];
  sum = reduce_block<Sum>(sum, scratch);
  if (threadIdx.x == 0) *result = sum;
}

Dim3 blocks(int count) { return {static_cast<unsigned>(count), 1, 1}; }

}  // namespace

template <class G, class Low>
void adamw(const AdamWTensor<G, Low>& tensor, const AdamWSettings& settings, Stream stream) {
  if (tensor.count > 0)
    launch({"adamw", grid_of_pieces(tensor.count, kThreads, 4), {kThreads, 1, 1}, 0, stream}, adamw_kernel<G, Low>,
           tensor, settings);
}

template <class G>
void adamw(const AdamWTensor<G>* tensors, const Tile* tiles, int tile_count, const AdamWSettings& settings,
           const float* norm_squared, Stream stream) {
  if (tile_count == 0) return;
  launch({"adamw", blocks(tile_count), {kThreads, 1, 1}, 0, stream}, adamw_many_kernel<G>, tensors, tiles, settings,
         norm_squared);
}

template <class G>
void gradient_norm_squared(const AdamWTensor<G>* tensors, const Tile* tiles, int tile_count, float* partial,
                           float* result, Stream stream) {
  if (tile_count > 0)
    launch({"gradient_norm", blocks(tile_count), {kThreads, 1, 1}, 0, stream}, squares_kernel<G>, tensors, tiles,
           partial);
  launch({"gradient_norm", blocks(1), {kThreads, 1, 1}, 0, stream}, add_partials_kernel, partial, tile_count, result);
}

#define INSTANTIATE(G)                                                                                      \
  template void adamw(const AdamWTensor<G>*, const Tile*, int, const AdamWSettings&, const float*, Stream); \
  template void gradient_norm_squared(const AdamWTensor<G>*, const Tile*, int, float*, float*, Stream);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE
template void adamw(const AdamWTensor<float, float>&, const AdamWSettings&, Stream);
template void adamw(const AdamWTensor<float, bf16>&, const AdamWSettings&, Stream);
template void adamw(const AdamWTensor<float, f16>&, const AdamWSettings&, Stream);

}  // namespace trireme::cuda
