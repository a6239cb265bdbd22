// The weights of a unit can be read only inside its uses. A use that a model forgets is an error in its first forward.
#include "parallel/parameters/unit.h"

#include "autograd/engine.h"
#include "nn/linear.h"
#include "nn/module.h"
#include "tests/support/errors.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;

namespace unit_test {
namespace {

constexpr std::int64_t width = 3;

/// x * gain, optionally recomputed in backward.
struct Gain : nn::Module {
  ParameterPtr gain;  // [D]
  bool again = false;
  explicit Gain(const nn::Build& b) : Module(b), gain(b.parameter("gain", {width}, {}, nn::Init::ones())) {}
  Tensor forward(const Tensor& x) override {
    const auto product = [this](const Tensor& in) { return in * gain->value(); };
    return again ? recompute(product, x) : product(x);
  }
};

/// inner(x) * gain.
struct Outer : nn::Module {
  ParameterPtr gain;  // [D]
  Gain inner;
  explicit Outer(const nn::Build& b, bool unit_inside)
      : Module(b),
        gain(b.parameter("gain", {width}, {}, nn::Init::ones())),
        inner(unit_inside ? (b / "inner").unit() : b / "inner") {}
  Tensor forward(const Tensor& x) override { return inner(x) * gain->value(); }
};

nn::Build build() { return {std::make_shared<const DeviceMesh>(self_group(), MeshShape{}), DType::f64, 7}; }

}  // namespace

TEST_CASE("a parameter of a unit is read inside its uses only, and the error names both") {
  const Tensor x = Tensor::full({2, width}, 2, DType::f64);
  for (const bool recorded : {true, false}) {
    const nn::Build b = build();
    Gain first((b / "first").unit()), second((b / "second").unit());
    std::optional<NoGrad> guard;
    if (!recorded) guard.emplace();
    const auto is_refused = [&] {
      const std::string said = error_of([&] { first.gain->value(); }, ExitCode::internal);
      INFO(said);
      CHECK(said.find("first.gain is read outside a use of its unit 'first'") != std::string::npos);
    };
    is_refused();                                             // before any use
    CHECK(sum(first(x)).item() == 12);                        // the use itself
    is_refused();                                             // after it
    error_of([&] { first.forward(x); }, ExitCode::internal);  // only first(x) begins a use
    const UnitUse use = (b / "third").unit().use_unit();
    use(x, [&](const Tensor& in) {
      is_refused();  // inside the use of another unit
      return in;
    });
  }
}

TEST_CASE("a parameter of no unit can be read at any time") {
  const nn::Build b = build();
  Gain plain(b / "plain");
  CHECK(plain.gain->value().count() == width);
  CHECK(sum(plain.forward(Tensor::full({1, width}, 2, DType::f64))).item() == 6);
}

TEST_CASE("a backward reads again what its forward was allowed to read") {
  for (const bool outside : {true, false}) {  // recomputed around the unit's use, or inside it
    const nn::Build b = build();
    Gain layer((b / "layer").unit());
    layer.again = !outside;
    Tensor x = Tensor::full({2, width}, 2, DType::f64);
    require_grad(x);
    const Tensor y = outside ? recompute([&](const Tensor& in) { return layer(in); }, x) : layer(x);
    backward(sum(y));
    CHECK(sum(grad(x)).item() == 6);
    CHECK(sum(layer.gain->grad()).item() == 12);
    error_of([&] { layer.gain->value(); }, ExitCode::internal);
  }
}

TEST_CASE("units do not nest, and an error inside a use ends it") {
  const nn::Build b = build();
  const Tensor x = Tensor::full({2, width}, 2, DType::f64);
  Outer nested((b / "nested").unit(), true);
  const std::string said = error_of([&] { nested(x); }, ExitCode::internal);
  INFO(said);
  CHECK(said.find("a use of unit 'nested.inner' begins inside one of 'nested'") != std::string::npos);
  Outer flat((b / "flat").unit(), false);
  CHECK(sum(flat(x)).item() == 12);
  CHECK(sum(flat.forward_add(x, x)).item() == 24);
}

TEST_CASE("a second parameter or buffer of one name is refused where it is made, with both places") {
  run_mesh("dp=1", [](const MeshPtr& mesh) {
    const nn::Build b(mesh, DType::f32, 1);
    const nn::Linear first(b.unit() / "fc", 3, {4}, nn::Split::none, {.bias = false});
    CHECK_THROWS_WITH_AS(nn::Linear((b / "fc").unit(), 3, {5}, nn::Split::none, {.bias = false}),
                         doctest::Contains("'fc.weight' is registered twice: first as a parameter [4, 3] in the unit "
                                           "'model', now with the shape [5, 3] in the unit 'fc'"),
                         Error);
    static_cast<void>(b.buffer("bias", {2}, {}));
    CHECK_THROWS_WITH_AS(static_cast<void>(b.parameter("bias", {2}, {}, nn::Init::zeros())),
                         doctest::Contains("first as a buffer [2]"), Error);
  });
}

}  // namespace unit_test
