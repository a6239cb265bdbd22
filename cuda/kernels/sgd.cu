// The kernel of optimizers with one moment; formulas and bytes: cuda/kernels/sgd.h.
#include "cuda/kernels/sgd.h"

#include "cuda/kernels/low_copy.h"
#include "cuda/kernels/pieces.h"
#include "cuda/kernels/tensor_list.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;
constexpr int kMostTensors = 64, kTile = 4096;

template <class Low>
using List = TensorList<SgdTensor<Low>, kMostTensors, kTile>;

/// Updates the moment v and the weight w of one element; `g`: the scaled gradient.
template <SgdRule rule>
__device__ __forceinline__ void step(const SgdSettings& s, float decay, float g, float& v, float& w) {
  if constexpr (rule == SgdRule::lion) {
    const float mix = s.blend * v + (1 - s.blend) * g;
    const float direction = static_cast<float>(mix > 0) - static_cast<float>(mix < 0);
    v = s.momentum * v + (1 - s.momentum) * g;
    w -= s.lr * (direction + decay * w);
  } else {
    const float fresh = g + decay * w;
    v = s.momentum * v + fresh;
    w -= s.lr * (rule == SgdRule::nesterov ? fresh + s.momentum * v : v);
  }
}

template <class Low, SgdRule rule>
__global__ void __launch_bounds__(kThreads)
    sgd_kernel(const __grid_constant__ List<Low> list, const __grid_constant__ SgdSettings s, const float* scale) {
  const auto place = list.my_place();
  const SgdTensor<Low>& t = list.items[place.item];
  const float factor = scale == nullptr ? s.scale : *scale;
  if (scale != nullptr && factor != factor)  // NaN. NOLINT(misc-redundant-expression)
    return copy_low<kWidth, kThreads>(t, place.begin, place.end);
  for (std::int64_t at = place.begin + kWidth * static_cast<int>(threadIdx.x); at < place.end;
       at += kWidth * kThreads) {
    const int count = place.end - at < kWidth ? static_cast<int>(place.end - at) : kWidth;
    const auto g = load_piece<kWidth>(t.gradient + at, count);
    auto w = load_piece<kWidth>(t.weight + at, count);
    Pack<float, kWidth> v = {};
    if (t.velocity != nullptr) v = load_piece<kWidth>(t.velocity + at, count);
    Pack<Low, kWidth> low;
    TRIREME_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      step<rule>(s, t.decay, factor * g.values[i], v.values[i], w.values[i]);
      low.values[i] = from_float<Low>(w.values[i]);
    }
    store_piece(t.weight + at, w, count);
    if (t.velocity != nullptr) store_piece(t.velocity + at, v, count);
    if (t.low != nullptr) store_piece(t.low + at, low, count);
  }
}

template <class Low, SgdRule rule>
void launch_all(std::span<const SgdTensor<Low>> tensors, const SgdSettings& settings, const float* scale,
                Stream stream) {
  for_each_list<SgdTensor<Low>, kMostTensors, kTile>(tensors, [&](const List<Low>& list, unsigned tiles) {
    launch({"sgd", {tiles, 1, 1}, {kThreads, 1, 1}, 0, stream}, sgd_kernel<Low, rule>, list, settings, scale);
  });
}

}  // namespace

template <class Low>
void sgd(std::span<const SgdTensor<Low>> tensors, const SgdSettings& settings, const float* scale, Stream stream) {
  switch (settings.rule) {
    case SgdRule::momentum:
      return launch_all<Low, SgdRule::momentum>(tensors, settings, scale, stream);
    case SgdRule::nesterov:
      return launch_all<Low, SgdRule::nesterov>(tensors, settings, scale, stream);
    case SgdRule::lion:
      return launch_all<Low, SgdRule::lion>(tensors, settings, scale, stream);
  }
}

template void sgd(std::span<const SgdTensor<float>>, const SgdSettings&, const float*, Stream);
template void sgd(std::span<const SgdTensor<bf16>>, const SgdSettings&, const float*, Stream);
template void sgd(std::span<const SgdTensor<f16>>, const SgdSettings&, const float*, Stream);

}  // namespace trireme::cuda
