// The kernel of gradient descent; formulas and bytes: cuda/kernels/sgd.h.
#include "cuda/kernels/sgd.h"

#include "cuda/kernels/pieces.h"

namespace trireme::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWidth = 4;

template <class Low>
__global__ void __launch_bounds__(kThreads) sgd_kernel(const __grid_constant__ Sgd<Low> p) {
  const MyPiece mine = my_piece<kWidth>(p.count);
  if (mine.count == 0) return;
  const auto g = load_piece<kWidth>(p.gradient + mine.first, mine.count);
  auto w = load_piece<kWidth>(p.weight + mine.first, mine.count);
  Pack<float, kWidth> v = {};
  if (p.velocity != nullptr) v = load_piece<kWidth>(p.velocity + mine.first, mine.count);
  Pack<Low, kWidth> low;
  TRIREME_UNROLL
  for (int i = 0; i < kWidth; ++i) {
    v.values[i] = p.momentum * v.values[i] + (p.scale * g.values[i] + p.decay * w.values[i]);
    w.values[i] -= p.lr * v.values[i];
    low.values[i] = from_float<Low>(w.values[i]);
  }
  store_piece(p.weight + mine.first, w, mine.count);
  if (p.velocity != nullptr) store_piece(p.velocity + mine.first, v, mine.count);
  if (p.low != nullptr) store_piece(p.low + mine.first, low, mine.count);
}

}  // namespace

template <class Low>
void sgd(const Sgd<Low>& p, Stream stream) {
  if (p.count == 0) return;
  launch({"sgd", grid_of_pieces(p.count, kThreads, kWidth), {kThreads, 1, 1}, 0, stream}, sgd_kernel<Low>, p);
}

#define INSTANTIATE(Low) template void sgd(const Sgd<Low>&, Stream);
INSTANTIATE(float)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE

}  // namespace trireme::cuda
