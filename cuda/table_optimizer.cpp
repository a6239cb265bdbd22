// Optimizer steps of the kernel table, by cuda/kernels/optimizer.cu and sgd.cu. The kernels of the first take many tensors
// in one launch; the table hands over one at a time.
#include <cmath>
#include <vector>

#include "cuda/kernels/optimizer.h"
#include "cuda/kernels/sgd.h"
#include "cuda/table_arguments.h"

namespace trireme::cuda {
namespace {

/// `values` in device memory, as bytes.
template <class V>
Tensor on_device(const std::vector<V>& values) {
  const MemoryScope scope(MemoryCategory::workspace);
  Tensor result = Tensor::empty({static_cast<std::int64_t>(values.size() * sizeof(V))}, DType::u8, Device::cuda);
  if (!values.empty()) backend(Device::cuda).upload(result.device_address(), values.data(), values.size() * sizeof(V));
  return result;
}

/// The tiles of one tensor.
std::vector<Tile> tiles_of(const char* entry, std::int64_t count) {
  std::vector<Tile> tiles(static_cast<std::size_t>((count + kOptimizerTile - 1) / kOptimizerTile));
  for (std::size_t i = 0; i < tiles.size(); ++i) tiles[i] = {0, size(entry, static_cast<std::int64_t>(i))};
  return tiles;
}

}  // namespace

void adamw(const AdamWOptions& options, const Tensor& gradient, Tensor& weight, Tensor& m, Tensor& v, Tensor& low) {
  constexpr const char* entry = "adamw";
  if (low.defined()) no_kernel(entry, "f32 gradients with a {} copy of the weights", name(low.dtype()));
  const std::vector<Tile> tiles = tiles_of(entry, weight.count());
  const Tensor tiles_there = on_device(tiles);
  const Tensor tensors = on_device(std::vector<AdamWTensor<float>>{
      {dense<float>(entry, weight), dense<float>(entry, m), dense<float>(entry, v), dense<float>(entry, gradient),
       nullptr, weight.count(), static_cast<float>(options.weight_decay)}});
  const auto correction = [&](double beta) { return static_cast<float>(1.0 / (1.0 - std::pow(beta, options.step))); };
  const AdamWSettings settings = {.lr = static_cast<float>(options.lr),
                                  .beta1 = static_cast<float>(options.beta1),
                                  .beta2 = static_cast<float>(options.beta2),
                                  .eps = static_cast<float>(options.eps),
                                  .inverse1 = correction(options.beta1),
                                  .inverse2 = correction(options.beta2),
                                  .gradient_scale = static_cast<float>(options.gradient_scale),
                                  .max_norm = 0};
  adamw<float>(static_cast<const AdamWTensor<float>*>(tensors.device_address()),
               static_cast<const Tile*>(tiles_there.device_address()), static_cast<int>(tiles.size()), settings,
               nullptr, stream());
}

void sgd(double lr, double momentum_factor, double weight_decay, double gradient_scale, const Tensor& gradient,
         Tensor& weight, Tensor& momentum, Tensor& low) {
  constexpr const char* entry = "sgd";
  visit_training(entry, low.defined() ? low.dtype() : DType::f32, [&](auto tag) {
    using Low = typename decltype(tag)::type;
    sgd<Low>({.lr = static_cast<float>(lr),
              .momentum = static_cast<float>(momentum_factor),
              .decay = static_cast<float>(weight_decay),
              .scale = static_cast<float>(gradient_scale),
              .count = weight.count(),
              .gradient = dense<float>(entry, gradient),
              .weight = dense<float>(entry, weight),
              .velocity = dense<float>(entry, momentum),
              .low = dense<Low>(entry, low)},
             stream());
  });
}

}  // namespace trireme::cuda
