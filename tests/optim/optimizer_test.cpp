// AdamW, SGD and Lion against plain loops in f64, written from the papers' formulas: decoupled decay on matrices only,
// bias correction that survives a resume, and f32 master weights of bf16 parameters.
#include "optim/optimizer.h"

#include "core/half.h"
#include "nn/build.h"
#include "tests/support/elements.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// A matrix that decays and a vector that does not, with gradients that are a function of the step.
struct Model {
  nn::Build build;
  explicit Model(DType dtype) : build(std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), dtype, 4) {
    build.parameter("matrix", {7, 5}, {}, nn::Init::normal(1.0), {.decay = true});
    build.parameter("vector", {13}, {}, nn::Init::normal(1.0));
    for (const ParameterPtr& p : parameters()) p->grad() = Tensor::zeros(p->local.shape());
  }
  const ParameterList& parameters() const { return build.parameters(); }
  void set_gradients(int step) {
    for (const ParameterPtr& p : parameters()) {
      const Tensor g = random(p->local.shape(), stream_of(p->name) + static_cast<std::uint64_t>(step), DType::f32);
      copy(g, p->grad());
    }
  }
};

/// One parameter, updated by loops.
struct Reference {
  std::vector<double> w, m, v;
  bool decay;
  explicit Reference(const Parameter& p) : w(values(p.local)), m(w.size(), 0), v(w.size(), 0), decay(p.decay) {}

  /// Loshchilov and Hutter 2019, algorithm 2.
  void adamw(const std::vector<double>& gradient, double lr, double scale, int step, const optim::AdamWConfig& c) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = scale * gradient[i];
      m[i] = c.beta1 * m[i] + (1 - c.beta1) * g;
      v[i] = c.beta2 * v[i] + (1 - c.beta2) * g * g;
      const double m_hat = m[i] / (1 - std::pow(c.beta1, step)), v_hat = v[i] / (1 - std::pow(c.beta2, step));
      w[i] -= lr * (m_hat / (std::sqrt(v_hat) + c.eps) + (decay ? c.weight_decay : 0) * w[i]);
    }
  }

  /// Chen et al. 2023, algorithm 2.
  void lion(const std::vector<double>& gradient, double lr, double scale, const optim::LionConfig& c) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = scale * gradient[i], mix = c.beta1 * m[i] + (1 - c.beta1) * g;
      w[i] -= lr * ((mix > 0 ? 1 : mix < 0 ? -1 : 0) + (decay ? c.weight_decay : 0) * w[i]);
      m[i] = c.beta2 * m[i] + (1 - c.beta2) * g;
    }
  }

  void sgd(const std::vector<double>& gradient, double lr, double scale, const optim::SgdConfig& c) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double fresh = scale * gradient[i] + (decay ? c.weight_decay : 0) * w[i];
      v[i] = c.momentum * v[i] + fresh;
      w[i] -= lr * (c.nesterov ? fresh + c.momentum * v[i] : v[i]);
    }
  }
};

double lr_of(int step) { return 0.01 / step; }
double scale_of(int step) { return step % 3 == 0 ? 0.25 : 1.0; }
constexpr double rounding = 10 * 0x1p-24;  // one rounding of 2^-24 for each of ten steps

std::vector<Reference> references(const Model& model) {
  std::vector<Reference> all;
  for (const ParameterPtr& p : model.parameters()) all.emplace_back(*p);
  return all;
}

Tensor state_of(optim::Optimizer& optimizer, const std::string& name, const Parameter& p) {
  for (const StateTensor& s : optimizer.state()) {
    if (s.name == name && s.parameter == &p) return s.value;
  }
  FAIL("no state ", name, " of ", p.name);
  return {};
}

}  // namespace

TEST_CASE("ten steps of AdamW are ten steps of the formula, with decay on the matrix only") {
  for (const optim::AdamWConfig config :
       {optim::AdamWConfig{}, optim::AdamWConfig{.beta1 = 0.8, .beta2 = 0.999, .eps = 1e-3, .weight_decay = 2.0}}) {
    Model model(DType::f32);
    auto expected = references(model);
    const auto optimizer = optim::make_adamw(model.parameters(), config);
    for (int step = 1; step <= 10; ++step) {
      model.set_gradients(step);
      optimizer->step(lr_of(step), scale_of(step));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const Parameter& p = *model.parameters()[i];
        expected[i].adamw(values(p.grad()), lr_of(step), scale_of(step), step, config);
        CAPTURE(p.name);
        CAPTURE(step);
        CHECK(relative_difference(values(p.local), expected[i].w) < rounding);
        CHECK(relative_difference(values(state_of(*optimizer, "m", p)), expected[i].m) < rounding);
        CHECK(relative_difference(values(state_of(*optimizer, "v", p)), expected[i].v) < rounding);
      }
    }
    CHECK(optimizer->steps() == 10);
    CHECK(optimizer->state().size() == 4);
  }
}

TEST_CASE("ten steps of SGD, with and without momentum, Nesterov's rule and decay") {
  struct Kind {
    double momentum;
    bool nesterov = false;
  };
  for (const auto& [momentum, nesterov] : {Kind{0.0}, Kind{0.9}, Kind{0.9, true}}) {
    for (const double decay : {0.0, 0.3}) {
      const optim::SgdConfig config{.momentum = momentum, .nesterov = nesterov, .weight_decay = decay};
      Model model(DType::f32);
      auto expected = references(model);
      const auto optimizer = optim::make_sgd(model.parameters(), config);
      CHECK(optimizer->state().size() == (momentum > 0 ? 2 : 0));
      for (int step = 1; step <= 10; ++step) {
        model.set_gradients(step);
        optimizer->step(lr_of(step), scale_of(step));
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const Parameter& p = *model.parameters()[i];
          expected[i].sgd(values(p.grad()), lr_of(step), scale_of(step), config);
          CHECK_MESSAGE(relative_difference(values(p.local), expected[i].w) < rounding, p.name, " at step ", step);
        }
      }
    }
  }
}

TEST_CASE("ten steps of Lion are ten steps of the formula, with decay on the matrix only") {
  for (const optim::LionConfig config : {optim::LionConfig{}, optim::LionConfig{.beta1 = 0.95, .weight_decay = 3}}) {
    Model model(DType::f32);
    auto expected = references(model);
    const auto optimizer = optim::make_lion(model.parameters(), config);
    CHECK(optimizer->state().size() == 2);
    for (int step = 1; step <= 10; ++step) {
      model.set_gradients(step);
      optimizer->step(lr_of(step), scale_of(step));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const Parameter& p = *model.parameters()[i];
        expected[i].lion(values(p.grad()), lr_of(step), scale_of(step), config);
        CHECK_MESSAGE(relative_difference(values(p.local), expected[i].w) < rounding, p.name, " at step ", step);
        CHECK(relative_difference(values(state_of(*optimizer, "m", p)), expected[i].m) < rounding);
      }
    }
  }
}

TEST_CASE("without gradients AdamW only decays, and only the matrix") {
  Model model(DType::f32);
  const auto before = references(model);
  const auto optimizer = optim::make_adamw(model.parameters(), {.weight_decay = 0.1});
  for (int step = 0; step < 10; ++step) optimizer->step(0.5, 1.0);
  CHECK(values(model.parameters()[1]->local) == before[1].w);
  std::vector<double> decayed = before[0].w;
  for (double& w : decayed) w *= std::pow(1 - 0.5 * 0.1, 10);
  CHECK(relative_difference(values(model.parameters()[0]->local), decayed) < rounding);
}

TEST_CASE("a resumed optimizer goes on as if it had not stopped; bias correction needs the step") {
  for (const bool with_steps : {true, false}) {
    Model straight(DType::f32), stopped(DType::f32);
    const auto run = [](Model& model, optim::Optimizer& optimizer, int from, int to) {
      for (int step = from; step <= to; ++step) {
        model.set_gradients(step);
        optimizer.step(lr_of(step), 1.0);
      }
    };
    const auto whole = optim::make_adamw(straight.parameters(), {}),
               first = optim::make_adamw(stopped.parameters(), {});
    run(straight, *whole, 1, 10);
    run(stopped, *first, 1, 5);
    const auto second = optim::make_adamw(stopped.parameters(), {});
    const auto saved = first->state();
    auto restored = second->state();
    for (std::size_t i = 0; i < saved.size(); ++i) copy(saved[i].value, restored[i].value);
    if (with_steps) second->set_steps(first->steps());
    run(stopped, *second, 6, 10);
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(same_bits(stopped.parameters()[i]->local, straight.parameters()[i]->local) == with_steps);
    }
  }
}

TEST_CASE("bf16 parameters follow their f32 masters, in which small steps are not lost") {
  Model model(DType::bf16);
  auto expected = references(model);  // from the rounded weights
  const optim::AdamWConfig config{.weight_decay = 0.1};
  const auto optimizer = optim::make_adamw(model.parameters(), config);
  CHECK(optimizer->state().size() == 6);
  for (int step = 1; step <= 10; ++step) {
    model.set_gradients(step);
    optimizer->step(1e-4, 1.0);  // far below half a step of bf16, 2^-9, for weights near 1
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const Parameter& p = *model.parameters()[i];
      expected[i].adamw(values(p.grad()), 1e-4, 1.0, step, config);
      const Tensor master = state_of(*optimizer, "master", p);
      CHECK(master.dtype() == DType::f32);
      CHECK(relative_difference(values(master), expected[i].w) < rounding);
      CHECK(same_bits(p.local.detach(), cast(master, DType::bf16)));
    }
  }
}

TEST_CASE("factors of the learning rate and of the decay, by name") {
  using optim::ParameterFactors;
  const ParameterFactors lr("--lr-factor", "*=0.5,vec?or=2"), decay("--decay-factor", "m*x=3");
  CHECK(lr.of("matrix") == 0.5);
  CHECK(lr.of("vector") == 2);
  CHECK(decay.of("matrices") == 1);
  Model model(DType::f32);
  auto expected = references(model);
  const optim::AdamWConfig config{.weight_decay = 0.1};
  const auto optimizer = optim::make_adamw(model.parameters(), config);
  optimizer->set_factors(lr, decay);
  for (int step = 1; step <= 10; ++step) {
    model.set_gradients(step);
    optimizer->step(lr_of(step), scale_of(step));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const Parameter& p = *model.parameters()[i];
      optim::AdamWConfig own = config;
      own.weight_decay *= decay.of(p.name);
      expected[i].adamw(values(p.grad()), lr_of(step) * lr.of(p.name), scale_of(step), step, own);
      CHECK_MESSAGE(relative_difference(values(p.local), expected[i].w) < rounding, p.name, " at step ", step);
    }
  }
  for (const char* wrong : {"matrix", "=1", "matrix=", "matrix=x", "matrix=-1", "matrix=inf", ","})
    CHECK_THROWS_WITH_AS(ParameterFactors("--lr-factor", wrong), doctest::Contains("is not of the form PATTERN=F"),
                         Error);
  for (const char* mesh_text : {"dp=1", "dp=2"})
    run_mesh(mesh_text, [&](const MeshPtr& mesh) {
      lr.require_matches(model.parameters(), "parameter", *mesh);
      CHECK_THROWS_WITH_AS(
          ParameterFactors("--lr-factor", "matrix=1,wte*=2").require_matches(model.parameters(), "parameter", *mesh),
          doctest::Contains("[--lr-factor] no parameter has a name like 'wte*'; expected names such as "
                            "matrix"),
          Error);
    });
}

TEST_CASE("moments in bf16 follow those in f32, also where a change is far below half a step of bf16") {
  Model model(DType::f32);
  const auto optimizer = optim::make_adamw(model.parameters(), {.beta1 = 0.9, .beta2 = 0.9999});
  optimizer->store_moments_in_bf16(5);
  CHECK(optimizer->stores_moments_in_bf16());
  for (const ParameterPtr& p : model.parameters()) copy(Tensor::full(p->local.shape(), 2), p->grad());
  constexpr int steps = 2000;
  for (int step = 1; step <= steps; ++step) optimizer->step(1e-3, 1.0);
  // v rises from 0 to 4 (1 - 0.9999^2000) = 0.725. From 0.1 on its steps are less than 2^-8 of it, and rounding to the
  // nearest bf16 would end there.
  double sum = 0, count = 0;
  for (const StateTensor& state : optimizer->state()) {
    CHECK(state.value.dtype() == DType::bf16);
    if (state.name != "v") continue;
    for (const double v : values(state.value)) {
      sum += v;
      ++count;
    }
  }
  const double expected = 4 * (1 - std::pow(0.9999, steps));
  CHECK(sum / count == doctest::Approx(expected).epsilon(0.02));
  optim::Optimizer& begun = *optimizer;
  CHECK_THROWS_WITH_AS(begun.store_moments_in_bf16(5), doctest::Contains("expected before"), Error);
}

TEST_CASE("the average of the weights follows the masters, and swapping twice changes no bit") {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const MemoryCategory memory : {MemoryCategory::optimizer, MemoryCategory::offloaded}) {
      Model model(dtype);
      auto expected = references(model);
      std::vector<std::vector<double>> averages;
      for (const Reference& r : expected) averages.push_back(r.w);
      const optim::AdamWConfig config{.memory = memory};
      const auto optimizer = optim::make_adamw(model.parameters(), config);
      CHECK_THROWS_WITH_AS(optimizer->swap_average(), doctest::Contains("no average of the weights"), Error);
      optimizer->average_weights(0.8);
      CHECK(!optimizer->takes_scale_on_device());
      for (int step = 1; step <= 10; ++step) {
        model.set_gradients(step);
        optimizer->step(lr_of(step), scale_of(step));
        std::vector<Tensor> before;
        for (const ParameterPtr& p : model.parameters()) before.push_back(clone(p->local.detach()));
        optimizer->swap_average();
        CHECK_THROWS_WITH_AS(optimizer->step(0.1, 1), doctest::Contains("the weights are the averages"), Error);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const Parameter& p = *model.parameters()[i];
          expected[i].adamw(values(p.grad()), lr_of(step), scale_of(step), step, config);
          for (std::size_t j = 0; j < averages[i].size(); ++j)
            averages[i][j] = 0.8 * averages[i][j] + 0.2 * expected[i].w[j];
          const double tolerance = rounding + (dtype == DType::bf16 ? 0x1p-8 : 0);
          CHECK_MESSAGE(relative_difference(values(p.local), averages[i]) < tolerance, p.name, " at step ", step);
          CHECK(relative_difference(values(state_of(*optimizer, "ema", p)), expected[i].w) < rounding);
        }
        optimizer->swap_average();
        for (std::size_t i = 0; i < expected.size(); ++i) {
          const Parameter& p = *model.parameters()[i];
          CHECK(same_bits(p.local.detach(), before[i]));
          CHECK(relative_difference(values(state_of(*optimizer, "ema", p)), averages[i]) < rounding);
        }
      }
    }
  }
}

TEST_CASE("offloaded state is counted apart and changes no bit") {
  const auto train = [](MemoryCategory memory) {
    const std::int64_t apart = MemoryPool::current()->use(MemoryCategory::offloaded).live,
                       beside = MemoryPool::current()->use(MemoryCategory::optimizer).live;
    Model model(DType::bf16);
    const auto optimizer = optim::make_adamw(model.parameters(), {.memory = memory});
    const std::int64_t state = 3 * 4 * (7 * 5 + 13);  // two moments and the master, f32
    CHECK(MemoryPool::current()->use(MemoryCategory::offloaded).live - apart ==
          (memory == MemoryCategory::offloaded ? state : 0));
    CHECK(MemoryPool::current()->use(MemoryCategory::optimizer).live - beside ==
          (memory == MemoryCategory::offloaded ? 0 : state));
    for (int step = 0; step < 3; ++step) {
      model.set_gradients(step);
      optimizer->step(1e-2, 0.5);
    }
    std::vector<Tensor> all;
    for (const ParameterPtr& p : model.parameters()) all.push_back(clone(p->local.detach()));
    for (const StateTensor& state_tensor : optimizer->state()) all.push_back(clone(state_tensor.value));
    return all;
  };
  const auto here = train(MemoryCategory::optimizer), there = train(MemoryCategory::offloaded);
  REQUIRE(here.size() == there.size());
  for (std::size_t i = 0; i < here.size(); ++i) CHECK(same_bits(here[i], there[i]));
}
