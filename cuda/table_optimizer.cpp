// Optimizer steps of the kernel table, by cuda/kernels/optimizer.cu and sgd.cu: one tensor at a time.
#include <cmath>

#include "cuda/kernels/optimizer.h"
#include "cuda/kernels/sgd.h"
#include "cuda/table_arguments.h"

namespace trireme::cuda {

void adamw(const AdamWOptions& options, const Tensor& gradient, Tensor& weight, Tensor& m, Tensor& v, Tensor& low) {
  constexpr const char* entry = "adamw";
  const auto correction = [&](double beta) {
    return static_cast<float>(1.0 / (1.0 - std::pow(beta, static_cast<double>(options.step))));
  };
  const AdamWSettings settings = {.lr = static_cast<float>(options.lr),
                                  .beta1 = static_cast<float>(options.beta1),
                                  .beta2 = static_cast<float>(options.beta2),
                                  .eps = static_cast<float>(options.eps),
                                  .inverse1 = correction(options.beta1),
                                  .inverse2 = correction(options.beta2),
                                  .gradient_scale = static_cast<float>(options.gradient_scale),
                                  .max_norm = 0};
  visit_training(entry, low.defined() ? low.dtype() : DType::f32, [&](auto tag) {
    using Low = typename decltype(tag)::type;
    const AdamWTensor<float, Low> tensor = {.weight = dense<float>(entry, weight),
                                            .m = dense<float>(entry, m),
                                            .v = dense<float>(entry, v),
                                            .gradient = dense<float>(entry, gradient),
                                            .low = dense<Low>(entry, low),
                                            .count = weight.count(),
                                            .decay = static_cast<float>(options.weight_decay)};
    adamw(tensor, settings, stream());
  });
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
