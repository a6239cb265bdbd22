// AdamW and SGD steps against their formulas in f64.
#include <cmath>
#include <limits>

#include "support.h"
#include "tests/support/team.h"

using namespace trireme;
using namespace trireme::testing;

namespace {}  // namespace

TEST_CASE("adamw: five steps with decay, gradient scale and a 16-bit copy") {
  for (const std::int64_t n : {1, 31, 5000}) {
    AdamWOptions options{.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .gradient_scale = 0.5};
    const double decay = 0.1;
    Tensor weight = random({n}, 1, DType::f32, uniform(-2, 2)), m = Tensor::zeros({n}), v = Tensor::zeros({n});
    Tensor bf = Tensor::empty({n}, DType::bf16);
    std::vector<double> w = values(weight), first(w.size(), 0), second(w.size(), 0);
    for (options.step = 1; options.step <= 5; ++options.step) {
      const Tensor gradient = random({n}, static_cast<std::uint64_t>(10 + options.step), DType::f32, uniform(-2, 2));
      const AdamWUpdate update{gradient, weight, m, v, bf, decay};
      table.adamw(options, {&update, 1});
      const std::vector<double> g = values(gradient);
      const auto step = static_cast<double>(options.step);
      for (std::size_t i = 0; i < w.size(); ++i) {
        const double scaled = options.gradient_scale * g[i];
        first[i] = options.beta1 * first[i] + (1 - options.beta1) * scaled;
        second[i] = options.beta2 * second[i] + (1 - options.beta2) * scaled * scaled;
        const double m_hat = first[i] / (1 - std::pow(options.beta1, step));
        const double v_hat = second[i] / (1 - std::pow(options.beta2, step));
        w[i] -= options.lr * (m_hat / (std::sqrt(v_hat) + options.eps) + decay * w[i]);
      }
      check_close(m, first, 1e-6, 1e-7);
      check_close(v, second, 2e-6, 1e-9);
      check_close(weight, w, 1e-6, 1e-6);
      check_close(bf, values(cast(weight, DType::bf16)), 0, 0);
    }
  }
}

TEST_CASE("adamw: a zero gradient leaves decay only; without a copy of low precision") {
  Tensor weight = Tensor::full({100}, 2), m = Tensor::zeros({100}), v = Tensor::zeros({100});
  const AdamWUpdate update{.gradient = Tensor::zeros({100}), .weight = weight, .m = m, .v = v, .weight_decay = 0.5};
  table.adamw({.lr = 0.1}, {&update, 1});
  check_close(weight, std::vector<double>(100, 1.9), 1e-6, 0);
}

TEST_CASE("sgd: with and without momentum") {
  for (const bool with_momentum : {false, true}) {
    const std::int64_t n = 1037;
    Tensor weight = random({n}, 1, DType::f32, uniform(-2, 2)),
           momentum = with_momentum ? Tensor::zeros({n}) : Tensor();
    Tensor low = Tensor::empty({n}, DType::f16);
    std::vector<double> w = values(weight), velocity(w.size(), 0);
    for (unsigned step = 0; step < 4; ++step) {
      const Tensor gradient = random({n}, 10 + step, DType::f32, uniform(-2, 2));
      const SgdUpdate update{gradient, weight, momentum, low, 0.01};
      table.sgd({.lr = 0.05, .momentum = 0.9, .gradient_scale = 2}, {&update, 1});
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

TEST_CASE("sgd by Nesterov's rule, and Lion") {
  for (const SgdRule rule : {SgdRule::nesterov, SgdRule::lion}) {
    const std::int64_t n = 1037;
    Tensor weight = random({n}, 1, DType::f32, uniform(-2, 2)), momentum = Tensor::zeros({n});
    Tensor low = Tensor::empty({n}, DType::bf16);
    std::vector<double> w = values(weight), v(w.size(), 0);
    const double mu = 0.98, blend = 0.9, decay = 0.01, lr = 0.05;
    for (unsigned step = 0; step < 4; ++step) {
      Tensor gradient = random({n}, 10 + step, DType::f32, uniform(-2, 2));
      if (step == 0) gradient.data<float>()[7] = 0;  // Lion's direction is then 0
      const SgdUpdate update{gradient, weight, momentum, low, decay};
      table.sgd({.lr = lr, .momentum = mu, .gradient_scale = 2, .rule = rule, .blend = blend}, {&update, 1});
      const std::vector<double> g = values(gradient);
      for (std::size_t i = 0; i < w.size(); ++i) {
        if (rule == SgdRule::nesterov) {
          const double fresh = 2 * g[i] + decay * w[i];
          v[i] = mu * v[i] + fresh;
          w[i] -= lr * (fresh + mu * v[i]);
        } else {
          const double mix = blend * v[i] + (1 - blend) * 2 * g[i];
          w[i] -= lr * ((mix > 0 ? 1 : mix < 0 ? -1 : 0) + decay * w[i]);
          v[i] = mu * v[i] + (1 - mu) * 2 * g[i];
        }
      }
      check_close(weight, w, 1e-6, 1e-6);
      check_close(momentum, v, 1e-6, 1e-6);
      check_close(low, values(cast(weight, DType::bf16)), 0, 0);
    }
    const SgdUpdate without{momentum, weight};
    CHECK_THROWS_AS(table.sgd({.rule = rule}, {&without, 1}), Error);
  }
}

TEST_CASE("optimizers: a list gives the bits of one tensor after the other, for any number of threads") {
  const std::vector<std::int64_t> counts = {3, 0, 100003, 1024, 1, 9000, 0};
  std::vector<Tensor> gradients, starts;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    gradients.push_back(random({counts[i]}, static_cast<std::uint64_t>(i), DType::f32, uniform(-2, 2)));
    starts.push_back(random({counts[i]}, static_cast<std::uint64_t>(20 + i), DType::f32, uniform(-2, 2)));
  }
  const auto adamw_updates = [&] {
    std::vector<AdamWUpdate> updates;
    for (std::size_t i = 0; i < counts.size(); ++i)
      updates.push_back({gradients[i], clone(starts[i]), clone(gradients[i]), Tensor::full({counts[i]}, 0.3),
                         i % 2 == 0 ? Tensor::zeros({counts[i]}, DType::bf16) : Tensor(),
                         0.1 * static_cast<double>(i)});
    return updates;
  };
  const auto sgd_updates = [&] {
    std::vector<SgdUpdate> updates;
    for (std::size_t i = 0; i < counts.size(); ++i)
      updates.push_back({gradients[i], clone(starts[i]), i % 3 == 0 ? Tensor() : clone(gradients[i]),
                         i % 2 == 0 ? Tensor() : Tensor::zeros({counts[i]}, DType::f16), 0.1});
    return updates;
  };
  const AdamWOptions adamw{.lr = 0.1, .step = 3};
  const SgdOptions sgd{.lr = 0.1, .momentum = 0.9, .gradient_scale = 0.7};
  const std::vector<AdamWUpdate> adamw_alone = adamw_updates();
  const std::vector<SgdUpdate> sgd_alone = sgd_updates();
  for (const AdamWUpdate& update : adamw_alone) table.adamw(adamw, {&update, 1});
  for (const SgdUpdate& update : sgd_alone) table.sgd(sgd, {&update, 1});
  for (const int count : {1, 2, 3}) {
    const TeamOf team(count);
    const std::vector<AdamWUpdate> both = adamw_updates();
    const std::vector<SgdUpdate> steps = sgd_updates();
    table.adamw(adamw, both);
    table.sgd(sgd, steps);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      check_close(both[i].weight, values(adamw_alone[i].weight), 0, 0);
      check_close(both[i].v, values(adamw_alone[i].v), 0, 0);
      if (both[i].low.defined()) check_close(both[i].low, values(adamw_alone[i].low), 0, 0);
      check_close(steps[i].weight, values(sgd_alone[i].weight), 0, 0);
      if (steps[i].momentum.defined()) check_close(steps[i].momentum, values(sgd_alone[i].momentum), 0, 0);
    }
  }
  table.adamw(adamw, {});
  table.sgd(sgd, {});
}

TEST_CASE("update_scale: clips by the norm and divides by the loss scale; NaN for what is not finite") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const auto scale = [](double loss, double squares, double loss_scale, double max_norm) {
    Tensor result = Tensor::empty({1});
    table.update_scale(Tensor::full({1}, loss, DType::f64), Tensor::full({1}, squares, DType::f64), loss_scale,
                       max_norm, result);
    return result.item();
  };
  CHECK(scale(3, 64, 1, 0) == 1);
  CHECK(scale(3, 64, 1, 10) == 1);
  CHECK(scale(3, 64, 1, 2) == 0.25);
  CHECK(scale(-3, 64, 4, 1) == 0.125);  // the norm of the unscaled loss is 2
  CHECK(scale(3, 0, 1, 1) == 1);
  for (const double bad : {inf, -inf, nan}) CHECK(std::isnan(scale(bad, 64, 1, 1)));
  for (const double bad : {inf, nan}) CHECK(std::isnan(scale(3, bad, 1, 1)));
}

TEST_CASE("optimizers: a scale in a tensor takes the place of the number; NaN leaves weights and moments") {
  const std::int64_t n = 1037;
  const Tensor gradient = random({n}, 1, DType::f32, uniform(-2, 2)),
               start = random({n}, 2, DType::f32, uniform(-2, 2));
  const auto run = [&](double number, const Tensor& there, bool adamw) {
    const std::vector<Tensor> t = {clone(start), Tensor::full({n}, 0.25), Tensor::full({n}, 0.5),
                                   Tensor::zeros({n}, DType::bf16)};
    const AdamWUpdate update{gradient, t[0], t[1], t[2], t[3], 0.1};
    const SgdUpdate descent{gradient, t[0], t[1], t[3], 0.1};
    if (adamw) table.adamw({.lr = 0.1, .gradient_scale = number, .scale_there = there}, {&update, 1});
    if (!adamw) table.sgd({.lr = 0.1, .momentum = 0.9, .gradient_scale = number, .scale_there = there}, {&descent, 1});
    return t;
  };
  for (const bool adamw : {true, false}) {
    const std::vector<Tensor> by_number = run(0.3, {}, adamw), by_tensor = run(7, Tensor::full({1}, 0.3), adamw);
    for (std::size_t i = 0; i < 4; ++i) check_close(by_tensor[i], values(by_number[i]), 0, 0);
    const std::vector<Tensor> skipped = run(1, Tensor::full({1}, NAN), adamw);
    check_close(skipped[0], values(start), 0, 0);
    check_close(skipped[1], std::vector<double>(1037, 0.25), 0, 0);
    check_close(skipped[2], std::vector<double>(1037, 0.5), 0, 0);
    check_close(skipped[3], values(cast(start, DType::bf16)), 0, 0);  // written all the same
  }
}
