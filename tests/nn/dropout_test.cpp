// Dropout masks are a function of (seed, name, sample, t, d): the same on every tp rank and for every way of cutting
// the batch, and different for every sample and every layer.
#include "nn/module.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace dropout_test {
namespace {

constexpr std::int64_t length = 40, width = 50;
constexpr double p = 0.3;

/// The mask of samples first .. first + count - 1, as the layer scales it.
Tensor mask(const MeshPtr& mesh, const std::string& name, std::int64_t first, std::int64_t count,
            std::uint64_t seed = 1) {
  const nn::Build build(mesh, DType::f32, seed);
  nn::Dropout layer(build / name, p);
  build.run_state()->first_sample = first;
  return layer(Tensor::full({count, length, width}, 1.0));  // [B, T, D]
}

}  // namespace

TEST_CASE("every rank of every axis draws one mask") {
  Collected masks;
  for (const std::string& text : Meshes{"tp=1", "tp=2", "dp=2,tp=2,pp=2"}) {
    run_mesh(text, [&](const MeshPtr& mesh) { masks.add("mask", mask(mesh, "drop", 6, 3)); });
  }
  const std::vector<Tensor>& all = masks.all().at("mask");
  CHECK(all.size() == 11);
  for (const Tensor& one : all) CHECK(same_bits(one, all.front()));
}

TEST_CASE("a sample keeps its mask however the batch is cut; samples, layers and seeds have their own") {
  run_mesh("tp=1", [](const MeshPtr& mesh) {
    const Tensor batch = mask(mesh, "drop", 4, 4);
    for (std::int64_t i = 0; i < 4; ++i) CHECK(same_bits(mask(mesh, "drop", 4 + i, 1), view::slice(batch, 0, i, 1)));
    CHECK(same_bits(mask(mesh, "drop", 6, 2), view::slice(batch, 0, 2, 2)));
    const std::vector<Tensor> others = {mask(mesh, "drop", 5, 1), mask(mesh, "drop", 1000004, 1),
                                        mask(mesh, "drip", 4, 1), mask(mesh, "drop", 4, 1, 2)};
    for (const Tensor& other : others) {
      const Tensor one = clone(view::slice(batch, 0, 0, 1));
      std::int64_t equal = 0;
      for (std::int64_t i = 0; i < one.count(); ++i) equal += one.data<float>()[i] == other.data<float>()[i] ? 1 : 0;
      const auto n = static_cast<double>(one.count()), agree = p * p + (1 - p) * (1 - p);  // of two independent masks
      CHECK(std::abs(static_cast<double>(equal) - n * agree) < 5 * std::sqrt(n * agree * (1 - agree)));
    }
  });
}

TEST_CASE("what is kept is scaled up, what is dropped has no gradient") {
  run_mesh("tp=1", [](const MeshPtr& mesh) {
    const nn::Build build(mesh, DType::f32, 1);
    build.run_state()->first_sample = 0;
    nn::Dropout layer(build / "drop", p);
    Tensor x = Tensor::full({4, length, width}, 2.0);
    require_grad(x);
    const Tensor y = layer(x), dy = random(x.shape(), 1, DType::f32);
    backward(y, dy);
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < x.count(); ++i) {
      const float value = y.data<float>()[i], gradient = grad(x).data<float>()[i];
      kept += value != 0 ? 1 : 0;
      if (value == 0) CHECK(gradient == 0);
      if (value != 0) CHECK(value == doctest::Approx(2.0 / (1 - p)).epsilon(1e-6));
      if (value != 0) CHECK(gradient == doctest::Approx(dy.data<float>()[i] / (1 - p)).epsilon(1e-6));
    }
    const auto n = static_cast<double>(x.count());
    CHECK(std::abs(static_cast<double>(kept) - n * (1 - p)) < 5 * std::sqrt(n * p * (1 - p)));
  });
}

TEST_CASE("samples of other dims than a sequence have a mask of their own too") {
  for (const Shape& sample : {Shape{width}, Shape{}, Shape{3, 5, 7}}) {
    std::vector<std::int64_t> extents = {6};
    extents.insert(extents.end(), sample.begin(), sample.end());
    const Tensor x = Tensor::full(Shape(std::span<const std::int64_t>(extents)), 1.0);  // [B, ..]
    for (const std::string& text : Meshes{"tp=1", "dp=2,tp=2"}) {
      run_mesh(text, [&](const MeshPtr& mesh) {
        const nn::Build build(mesh, DType::f32, 1);
        nn::Dropout layer(build / "drop", p);
        const auto masked = [&](std::int64_t first, std::int64_t count) {
          build.run_state()->first_sample = first;
          return layer(view::slice(x, 0, 0, count));
        };
        const Tensor all = masked(10, 6);
        CHECK(same_bits(masked(12, 3), view::slice(all, 0, 2, 3)));
        CHECK(same_bits(masked(11, 1), view::slice(all, 0, 1, 1)));
        if (sample.dims() > 0) CHECK(!same_bits(view::slice(all, 0, 0, 1), view::slice(all, 0, 1, 1)));
      });
    }
  }
}

TEST_CASE("samples of other dims than a sequence must be whole on each rank") {
  const auto drop = [] {
    run_mesh("cp=2", [](const MeshPtr& mesh) {
      const nn::Build build(mesh, DType::f32, 1);
      build.run_state()->first_sample = 0;
      nn::Dropout(build / "drop", p)(Tensor::full({4, width}, 1.0));
    });
  };
  CHECK_THROWS_WITH_AS(drop(), doctest::Contains("dropout"), Error);
}

TEST_CASE("nothing is dropped when not training, or with p = 0") {
  run_mesh("tp=1", [](const MeshPtr& mesh) {
    const nn::Build build(mesh, DType::f32, 1);
    nn::Dropout layer(build / "drop", p), none(build / "none", 0);
    Tensor x = random({2, 3, 4}, 1, DType::f32);
    require_grad(x);
    CHECK(none(x).node() == x.node());
    build.run_state()->training = false;
    CHECK(layer(x).node() == x.node());
    CHECK(layer(x).shares_storage_with(x));
  });
}

}  // namespace dropout_test
