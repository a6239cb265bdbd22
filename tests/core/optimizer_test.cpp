// AdamW and SGD steps against their formulas in f64.
#include <cmath>

#include "support.h"

using namespace trireme;
using namespace trireme::test;

namespace {
const KernelTable& table = kernels(Device::cpu);
}  // namespace

TEST_CASE("adamw: five steps with decay, gradient scale and a 16-bit copy") {
  for (const std::int64_t n : {1, 31, 5000}) {
    AdamWOptions options{
        .lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.1, .gradient_scale = 0.5};
    Tensor weight = random({n}, DType::f32, 1), m = Tensor::zeros({n}), v = Tensor::zeros({n});
    Tensor bf = Tensor::empty({n}, DType::bf16);
    std::vector<double> w = values(weight), first(w.size(), 0), second(w.size(), 0);
    for (options.step = 1; options.step <= 5; ++options.step) {
      const Tensor gradient = random({n}, DType::f32, static_cast<unsigned>(10 + options.step));
      table.adamw(options, gradient, weight, m, v, bf);
      const std::vector<double> g = values(gradient);
      const auto step = static_cast<double>(options.step);
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double scaled = options.gradient_scale * g[i];
        first[i] = options.beta1 * first[i] + (1 - options.beta1) * scaled;
        second[i] = options.beta2 * second[i] + (1 - options.beta2) * scaled * scaled;
        const double m_hat = first[i] / (1 - std::pow(options.beta1, step));
        const double v_hat = second[i] / (1 - std::pow(options.beta2, step));
        w[i] -= options.lr * (m_hat / (std::sqrt(v_hat) + options.eps) + options.weight_decay * w[i]);
      }
      check_close(m, first, 1e-6, 1e-7);
      check_close(v, second, 2e-6, 1e-9);
      check_close(weight, w, 1e-6, 1e-6);
      check_close(bf, values(cast(weight, DType::bf16)), 0, 0);
    }
  }
}

TEST_CASE("adamw: a zero gradient leaves decay only; without a copy of low precision") {
  Tensor weight = Tensor::full({100}, 2), m = Tensor::zeros({100}), v = Tensor::zeros({100}), none;
  const AdamWOptions options{.lr = 0.1, .weight_decay = 0.5};
  table.adamw(options, Tensor::zeros({100}), weight, m, v, none);
  check_close(weight, std::vector<double>(100, 1.9), 1e-6, 0);
}

TEST_CASE("sgd: with and without momentum") {
  for (const bool with_momentum : {false, true}) {
    const std::int64_t n = 1037;
    Tensor weight = random({n}, DType::f32, 1), momentum = with_momentum ? Tensor::zeros({n}) : Tensor();
    Tensor low = Tensor::empty({n}, DType::f16);
    std::vector<double> w = values(weight), velocity(w.size(), 0);
    for (unsigned step = 0; step < 4; ++step) {
      const Tensor gradient = random({n}, DType::f32, 10 + step);
      table.sgd(0.05, 0.9, 0.01, 2, gradient, weight, momentum, low);
      const std::vector<double> g = values(gradient);
      for (std::size_t i = 0; i < w.size(); ++i) {
        velocity[i] = (with_momentum ? 0.9 * velocity[i] : 0) + 2 * g[i] + 0.01 * w[i];
        w[i] -= 0.05 * velocity[i];
      }
      check_close(weight, w, 1e-6, 1e-6);
      check_close(low, values(cast(weight, DType::f16)), 0, 0);
    }
    if (with_momentum) check_close(momentum, velocity, 1e-6, 1e-6);
  }
}

TEST_CASE("optimizers: the same for any number of threads") {
  const Tensor gradient = random({100003}, DType::f32, 1), start = random({100003}, DType::f32, 2);
  Tensor none;
  check_same_for_any_threads([&] {
    Tensor weight = clone(start), m = clone(gradient), v = Tensor::full({100003}, 0.3);
    table.adamw({.lr = 0.1, .weight_decay = 0.2, .step = 3}, gradient, weight, m, v, none);
    return weight;
  });
  check_same_for_any_threads([&] {
    Tensor weight = clone(start), momentum = clone(gradient);
    table.sgd(0.1, 0.9, 0.1, 0.7, gradient, weight, momentum, none);
    return weight;
  });
}
