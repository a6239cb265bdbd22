// The kernel of AdamW; formulas and bytes: cuda/kernels/optimizer.h.
#include "cuda/kernels/optimizer.h"

#include "cuda/kernels/low_copy.h"
#include "cuda/kernels/pieces.h"
#include "cuda/kernels/tensor_list.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;

template <class G, class Low>
using List = TensorList<AdamWTensor<G, Low>, kOptimizerMostTensors, kOptimizerTile>;

__device__ float update(float& w, float& m, float& v, float g, float decay, const AdamWSettings& s) {
  m = s.beta1 * m + (1.0F - s.beta1) * g;
  v = s.beta2 * v + (1.0F - s.beta2) * g * g;
  w -= s.lr * (m * s.inverse1 / (sqrtf(v * s.inverse2) + s.eps) + decay * w);
  return w;
}

/// One block per tile; each thread takes a piece of four elements at a time.
template <class G, class Low>
__global__ void __launch_bounds__(kThreads, 5)
    adamw_kernel(const __grid_constant__ List<G, Low> list, const __grid_constant__ AdamWSettings s,
                 const float* scale) {
  const auto place = list.my_place();
  const AdamWTensor<G, Low>& t = list.items[place.item];
  const float factor = scale == nullptr ? s.gradient_scale : *scale;
  if (scale != nullptr && factor != factor)  // NaN. NOLINT(misc-redundant-expression)
    return copy_low<kWidth, kThreads>(t, place.begin, place.end);
  for (std::int64_t i = place.begin + kWidth * static_cast<int>(threadIdx.x); i < place.end; i += kWidth * kThreads) {
    const int count = place.end - i < kWidth ? static_cast<int>(place.end - i) : kWidth;
    auto w = load_piece<kWidth>(t.weight + i, count), m = load_piece<kWidth>(t.m + i, count);
    auto v = load_piece<kWidth>(t.v + i, count);
    const auto g = load_piece<kWidth>(t.gradient + i, count);
    Pack<Low, kWidth> low;
    TRIREME_UNROLL
    for (int j = 0; j < kWidth; ++j)
      low.values[j] =
          from_float<Low>(update(w.values[j], m.values[j], v.values[j], factor * to_float(g.values[j]), t.decay, s));
    store_piece(t.weight + i, w, count);
    store_piece(t.m + i, m, count);
    store_piece(t.v + i, v, count);
    if (t.low != nullptr) store_piece(t.low + i, low, count);
  }
}

}  // namespace

template <class G, class Low>
void adamw(std::span<const AdamWTensor<G, Low>> tensors, const AdamWSettings& settings, const float* scale,
           Stream stream) {
  for_each_list<AdamWTensor<G, Low>, kOptimizerMostTensors, kOptimizerTile>(
      tensors, [&](const List<G, Low>& list, unsigned tiles) {
        launch({"adamw", {tiles, 1, 1}, {kThreads, 1, 1}, 0, stream}, adamw_kernel<G, Low>, list, settings, scale);
      });
}

template void adamw(std::span<const AdamWTensor<float, float>>, const AdamWSettings&, const float*, Stream);
template void adamw(std::span<const AdamWTensor<bf16, bf16>>, const AdamWSettings&, const float*, Stream);
template void adamw(std::span<const AdamWTensor<f16, f16>>, const AdamWSettings&, const float*, Stream);
template void adamw(std::span<const AdamWTensor<float, bf16>>, const AdamWSettings&, const float*, Stream);
template void adamw(std::span<const AdamWTensor<float, f16>>, const AdamWSettings&, const float*, Stream);

}  // namespace trireme::cuda
