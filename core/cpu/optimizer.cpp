// Optimizer steps, one pass over every state: AdamW (Loshchilov and Hutter 2019, algorithm 2) and SGD with momentum.
// Bytes per parameter: AdamW reads 16 and writes 12 (14 with a 16-bit copy); SGD reads 12 and writes 8.
#include <cmath>

#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t optimizer_grain = 8192;  // elements worth a thread

// The copy of the new weights that a 16-bit model computes with.
void write_low(const float* weight, const Tensor& low, std::int64_t begin, std::int64_t end) {
  visit_floating(low.dtype(), "optimizer", [&](auto tag) {
    using T = typename decltype(tag)::type;
    map<float>(
        end - begin, [](float w) { return w; }, low.data<T>() + begin, weight + begin);
  });
}

// Scalars are passed by value: the compiler must see that a store to the state cannot change them.
struct AdamW {
  float beta1, beta2, fresh1, fresh2, rate, root_correction, decay, eps, scale;
};

void adamw_range(const AdamW c, const float* gradient, float* weight, float* m, float* v, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = c.scale * gradient[i];
    const float first = c.beta1 * m[i] + c.fresh1 * g;
    const float second = c.beta2 * v[i] + c.fresh2 * g * g;
    const float update = c.rate * first / (std::sqrt(second) * c.root_correction + c.eps);
    m[i] = first;
    v[i] = second;
    weight[i] -= update + c.decay * weight[i];
  }
}

struct Sgd {
  float rate, factor, decay, scale;
};

void sgd_range(const Sgd c, const float* gradient, float* weight, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) weight[i] -= c.rate * (c.scale * gradient[i] + c.decay * weight[i]);
}

void sgd_momentum_range(const Sgd c, const float* gradient, float* weight, float* momentum, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const float velocity = c.factor * momentum[i] + (c.scale * gradient[i] + c.decay * weight[i]);
    momentum[i] = velocity;
    weight[i] -= c.rate * velocity;
  }
}

// update(begin, length) block by block, each followed by the low copy while the new weights are in L1.
template <class Update>
void for_blocks(const Tensor& weight, const Tensor& low, Update&& update) {
  const float* weights = weight.data<float>();
  parallel_elements(weight.count(), optimizer_grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t from = begin; from < end; from += block_elements) {
      const std::int64_t to = std::min(end, from + block_elements);
      update(from, to - from);
      if (low.defined()) write_low(weights, low, from, to);
    }
  });
}

}  // namespace

void adamw(const AdamWOptions& options, const Tensor& gradient, Tensor& weight, Tensor& m, Tensor& v, Tensor& low) {
  const auto step = static_cast<double>(options.step);
  const AdamW constants = {
      .beta1 = static_cast<float>(options.beta1),
      .beta2 = static_cast<float>(options.beta2),
      .fresh1 = static_cast<float>(1 - options.beta1),
      .fresh2 = static_cast<float>(1 - options.beta2),
      .rate = static_cast<float>(options.lr / (1 - std::pow(options.beta1, step))),
      .root_correction = static_cast<float>(1 / std::sqrt(1 - std::pow(options.beta2, step))),
      .decay = static_cast<float>(options.lr * options.weight_decay),
      .eps = static_cast<float>(options.eps),
      .scale = static_cast<float>(options.gradient_scale),
  };
  const float* gradients = gradient.data<float>();
  float *weights = weight.data<float>(), *first = m.data<float>(), *second = v.data<float>();
  for_blocks(weight, low, [&](std::int64_t at, std::int64_t n) {
    adamw_range(constants, gradients + at, weights + at, first + at, second + at, n);
  });
}

void sgd(double lr, double momentum_factor, double weight_decay, double gradient_scale, const Tensor& gradient,
         Tensor& weight, Tensor& momentum, Tensor& low) {
  const Sgd constants = {.rate = static_cast<float>(lr),
                         .factor = static_cast<float>(momentum_factor),
                         .decay = static_cast<float>(weight_decay),
                         .scale = static_cast<float>(gradient_scale)};
  const float* gradients = gradient.data<float>();
  float *weights = weight.data<float>(), *velocity = momentum.defined() ? momentum.data<float>() : nullptr;
  for_blocks(weight, low, [&](std::int64_t at, std::int64_t n) {
    if (velocity == nullptr) {
      sgd_range(constants, gradients + at, weights + at, n);
    } else {
      sgd_momentum_range(constants, gradients + at, weights + at, velocity + at, n);
    }
  });
}

}  // namespace trireme::cpu
