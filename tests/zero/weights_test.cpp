// Sharded weights are whole only while their unit is used, and never stale.
#include "parallel/zero/weights.h"

#include <cmath>

#include "nn/build.h"
#include "optim/optimizer.h"
#include "tests/support/elements.h"
#include "tests/zero/support.h"

using namespace trireme;
using namespace trireme::testing;

namespace weights_test {
namespace {

HandMade make_model(DType dtype = DType::f32) {
  HandMade model;
  for (int i = 0; i < 3; ++i) {
    model.begin_unit(fmt::format("unit {}", i));
    model.add(fmt::format("a{}", i), {7}, {}, dtype);
    model.add(fmt::format("b{}", i), {13, 5}, {}, dtype);
  }
  model.uses.emplace_back(model.units,
                          model.units->add_use(model.units->all().front().get()));  // the first again: tied
  return model;
}

/// x + the sum of the squares of all values, over all uses, each inside its unit. Calls `look` for each parameter
/// there.
Tensor forward(HandMade& model, const std::function<void(const Parameter&)>& look) {
  Tensor x = Tensor::zeros({});
  require_grad(x);
  for (std::size_t use = 0; use < model.uses.size(); ++use) {
    const Unit& unit = *model.units->uses()[use];
    x = model.uses[use](x, [&](const Tensor& in) {
      Tensor y = in;
      for (const ParameterPtr& p : unit.parameters) {
        look(*p);
        y = y + sum(square(cast_to(p->value(), DType::f32)));  // backward needs the value
      }
      return y;
    });
  }
  return x;
}

}  // namespace

TEST_CASE("trap 18: weights are gathered again after a step, and padding of uneven shards is inert") {
  // d/dw of the sum of squares is 2 w for each of 2 micro-batches on each of n ranks, twice that for the unit used
  // twice.
  constexpr double lr = 0.01;
  for (const char* text : {"dp=2", "dp=3", "dp=5"}) {
    run_mesh(text, [&](const MeshPtr& mesh) {
      for (const int stage : {1, 2, 3}) {
        for (const int prefetch : {0, 1, 3}) {
          HandMade model = make_model();
          std::map<std::string, std::vector<double>> expected;
          for (const ParameterPtr& p : model.parameters) expected[p->name] = testing::values(p->local);
          Zero zero(model.parameters, *model.units, *mesh,
                    {.stage = stage, .prefetch = prefetch, .resident_bytes = 0, .gathering_bytes = 1});
          const auto optimizer = optim::make_sgd(zero.shards(), {});
          optimizer->attach(zero);
          const auto look = [&](const Parameter& p) {
            const std::vector<double> values = testing::values(p.value());
            for (std::size_t i = 0; i < values.size(); ++i)
              CHECK(values[i] == doctest::Approx(expected[p.name][i]).epsilon(1e-5));
          };
          for (int step = 0; step < 3; ++step) {
            zero.zero_grad();
            for (int m = 0; m < 2; ++m) {
              if (m == 1) zero.last_microbatch();
              backward(forward(model, look));
            }
            zero.finish();
            optimizer->step(lr, 1.0);
            for (auto& [name, values] : expected) {
              const double gradient = 2 * 2 * mesh->size(Axis::dp) * (name.ends_with("0") ? 2 : 1);
              for (double& w : values) w -= lr * gradient * w;
            }
          }
          const NoGrad guard;
          forward(model, look);
        }
      }
    });
  }
}

TEST_CASE("a parameter that is gathered on use has memory only inside its unit; outside, touching it is an error") {
  run_mesh("dp=2", [](const MeshPtr& mesh) {
    const auto live = [] { return MemoryPool::current()->use(MemoryCategory::parameters).live; };
    const MemoryScope scope(MemoryCategory::parameters);
    const std::int64_t before = live();
    HandMade model = make_model();
    Zero zero(model.parameters, *model.units, *mesh, {.stage = 3, .prefetch = 0, .resident_bytes = 0});
    std::int64_t pieces = 0, unit = 4 * (7 + 13 * 5);
    for (const ZeroBucket& bucket : zero.buckets()) pieces += 4 * bucket.piece;
    CHECK(live() - before == pieces);
    const Parameter& p = *model.parameters[0];
    CHECK_THROWS_WITH_AS(p.local.data<float>(), doctest::Contains("have been released"), Error);
    const NoGrad guard;
    forward(model, [&](const Parameter&) { CHECK(live() - before >= pieces + unit); });
    zero.finish_gathers();
    CHECK(live() - before == pieces);
    CHECK_THROWS_AS(p.local.data<float>(), Error);
  });
}

TEST_CASE("a model that is drawn on use needs memory for shards and one parameter at a time, and has the same values") {
  run_mesh("dp=4", [](const MeshPtr& mesh) {
    constexpr std::int64_t layers = 8, width = 64, layer = 4 * width * width;
    const auto made = [&](const nn::Build& b, std::size_t i) {
      return (b / fmt::format("layer{}", i)).unit().parameter("weight", {width, width}, {}, nn::Init::normal(1));
    };
    const nn::Build build(mesh, DType::f32, 5), on_use = nn::Build(mesh, DType::f32, 5).drawn_on_use();
    for (std::size_t i = 0; i < layers; ++i) {
      made(build, i);
      CHECK_FALSE(made(on_use, i)->local.has_elements());
    }
    const std::int64_t before = MemoryPool::current()->use(MemoryCategory::parameters).live;
    MemoryPool::current()->reset_peaks();
    Zero zero(on_use.parameters(), on_use.units(), *mesh, {.stage = 3, .prefetch = 0, .resident_bytes = 0});
    CHECK(MemoryPool::current()->use(MemoryCategory::parameters).peak - before <= layers * layer / 4 + layer);
    for (std::size_t i = 0; i < layers; ++i) {
      const Shard& shard = *zero.shards()[i];
      CHECK(values(shard.weights) == values(clone(shard.part(build.parameters()[i]->local.detach()))));
    }
  });
}

TEST_CASE("parameters below the threshold, and those of no unit, stay") {
  run_mesh("dp=2", [](const MeshPtr& mesh) {
    HandMade model = make_model();
    model.unit = nullptr;
    const ParameterPtr loose = model.add("loose", {100, 100});
    Zero zero(model.parameters, *model.units, *mesh, {.stage = 3, .resident_bytes = 100});
    for (const ParameterPtr& p : model.parameters)
      CHECK(p->local.has_elements() == (p->local.bytes() < 100 || p == loose));
  });
}

TEST_CASE(
    "a use that a model forgets is an error that names the parameter, under every stage, before and after a step") {
  for (const char* text : {"dp=1", "dp=2"}) {
    run_mesh(text, [&](const MeshPtr& mesh) {
      for (const int stage : {1, 2, 3}) {
        HandMade model = make_model();
        Zero zero(model.parameters, *model.units, *mesh, {.stage = stage, .resident_bytes = 0});
        const auto optimizer = optim::make_sgd(zero.shards(), {});
        optimizer->attach(zero);
        const auto refused = [&] {
          CHECK_THROWS_WITH_AS(model.parameters[0]->value(), doctest::Contains("a0 is read outside a use of its unit"),
                               Error);
        };
        for (int step = 0; step < 2; ++step) {
          refused();
          zero.zero_grad();
          zero.last_microbatch();
          const Tensor y = forward(model, [](const Parameter&) {});
          refused();
          backward(y);
          zero.finish();
          refused();
          optimizer->step(0.01, 1.0);
        }
        refused();
        zero.finish_gathers();
        refused();
      }
    });
  }
}

TEST_CASE("parameters of no unit have the values of the last update at any time") {
  run_mesh("dp=2", [](const MeshPtr& mesh) {
    for (const int stage : {1, 2, 3}) {
      HandMade model = make_model();
      model.unit = nullptr;
      const ParameterPtr loose = model.add("loose", {100, 3});
      std::vector<double> expected = testing::values(loose->value());
      Zero zero(model.parameters, *model.units, *mesh, {.stage = stage, .resident_bytes = 0});
      const auto optimizer = optim::make_sgd(zero.shards(), {});
      optimizer->attach(zero);
      for (int step = 0; step < 2; ++step) {
        zero.zero_grad();
        zero.last_microbatch();
        backward(weighted_sum(*loose, Tensor::full({100, 3}, 1)));
        zero.finish();
        optimizer->step(0.25, 1.0);
        for (double& w : expected) w -= 0.25 * 2;
        const std::vector<double> values = testing::values(loose->value());
        for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == doctest::Approx(expected[i]).epsilon(1e-5));
      }
    }
  });
}

TEST_CASE("gathered bf16 weights are the rounded masters of their owners, the same on every rank") {
  for (const int stage : {1, 2, 3}) {
    Collected seen;
    run_mesh("dp=3", [&](const MeshPtr& mesh) {
      HandMade model = make_model(DType::bf16);
      Zero zero(model.parameters, *model.units, *mesh, {.stage = stage, .resident_bytes = 0});
      const auto optimizer = optim::make_adamw(zero.shards(), {});
      optimizer->attach(zero);
      for (int step = 0; step < 3; ++step) {
        zero.zero_grad();
        zero.last_microbatch();
        backward(forward(model, [](const Parameter&) {}));
        zero.finish();
        optimizer->step(1e-2, 1.0);
      }
      std::map<const Parameter*, StateTensor> masters;
      for (const StateTensor& s : optimizer->state()) {
        if (s.name == "master") masters.insert({s.parameter, s});
      }
      const NoGrad guard;
      forward(model, [&](const Parameter& p) {
        const StateTensor& master = masters.at(&p);
        CHECK(same_bits(master.shard->part(p.value().detach()), cast(master.value, DType::bf16)));
        seen.add(p.name, clone(p.value().detach()));
      });
    });
    for (const auto& [name, values] : seen.all()) {
      for (const Tensor& value : values) CHECK_MESSAGE(same_bits(value, values.front()), name);
    }
  }
}

TEST_CASE("trap 21: without a gradient AdamW decays matrices only, also when they share a bucket with vectors") {
  run_mesh("dp=3", [](const MeshPtr& mesh) {
    for (const int stage : {1, 2, 3}) {
      HandMade model = make_model();
      for (const ParameterPtr& p : model.parameters) p->decay = p->local.dims() == 2;
      std::map<std::string, std::vector<double>> expected;
      for (const ParameterPtr& p : model.parameters) {
        expected[p->name] = testing::values(p->local);
        for (double& w : expected[p->name]) w *= p->decay ? std::pow(1 - 0.5 * 0.1, 4) : 1;
      }
      Zero zero(model.parameters, *model.units, *mesh, {.stage = stage, .resident_bytes = 0});
      const auto optimizer = optim::make_adamw(zero.shards(), {.weight_decay = 0.1});
      optimizer->attach(zero);
      for (int step = 0; step < 4; ++step) {
        zero.zero_grad();
        zero.finish();
        optimizer->step(0.5, 1.0);
      }
      const NoGrad guard;
      forward(model, [&](const Parameter& p) {
        const std::vector<double> values = testing::values(p.value());
        for (std::size_t i = 0; i < values.size(); ++i)
          CHECK(values[i] == doctest::Approx(expected[p.name][i]).epsilon(1e-6));
      });
    }
  });
}

TEST_CASE("an optimizer of shards that nothing sums the gradients of refuses to step") {
  run_mesh("dp=2", [](const MeshPtr& mesh) {
    HandMade model = make_model();
    Zero zero(model.parameters, *model.units, *mesh, {.stage = 1});
    const auto optimizer = optim::make_sgd(zero.shards(), {});
    CHECK_THROWS_WITH_AS(optimizer->step(1.0, 1.0), doctest::Contains("expected attach() before step()"), Error);
  });
}

}  // namespace weights_test
