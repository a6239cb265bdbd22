// Layers split over tp against one rank: output, input gradient and every parameter gradient, in f64. All biases are
// random, so that one that is added on every rank, or not at all, shows.
#include "nn/attention.h"
#include "nn/mlp.h"
#include "tests/support/mesh.h"

using namespace trireme;
using namespace trireme::testing;
using placement::I, placement::S;

namespace layers_test {
namespace {

constexpr double rounding = 1e-13;  // f64 sums of some 50 terms, in another order

struct Layer {
  std::function<std::unique_ptr<nn::Module>(const nn::Build&)> make;
  Shape in, out;  // whole input and output; a sharded one is sharded on its last dim
  bool in_sharded = false, out_sharded = false;
};

Placement placement_of(bool sharded, const Shape& shape) { return sharded ? S(shape.dims() - 1) : I; }

/// Collects "y", "dx" and the gradients by parameter name, as whole tensors, once per rank.
void run_layer(const Layer& layer, const std::string& mesh_text, Collected& results) {
  run_mesh(mesh_text, [&](const MeshPtr& mesh) {
    const nn::Build build(mesh, DType::f64, 3);
    const auto module = layer.make(build);
    randomise(build.parameters(), 0.5);
    const Placement in = placement_of(layer.in_sharded, layer.in), out = placement_of(layer.out_sharded, layer.out);
    Tensor x = tp_part(random(layer.in, 1), in, *mesh);
    require_grad(x);
    const Tensor y = (*module)(x);
    const Tensor dy = tp_part(random(layer.out, 2), out, *mesh);
    backward(y, view::reshape(dy, y.shape()));
    results.add("y", tp_whole(view::reshape(y.detach(), dy.shape()), out, *mesh));
    results.add("dx", tp_whole(grad(x), in, *mesh));
    for (const ParameterPtr& p : build.parameters()) results.add(p->name, whole(p->grad(), *p, *mesh));
  });
}

void check_against(const std::map<std::string, Tensor>& reference, const Layer& layer, const std::string& mesh_text) {
  Collected results;
  run_layer(layer, mesh_text, results);
  CHECK(results.all().size() == reference.size());
  for (const auto& [name, tensors] : results.all()) {
    REQUIRE_MESSAGE(reference.contains(name), name);
    for (const Tensor& tensor : tensors) {
      CHECK_MESSAGE(relative_difference(tensor, reference.at(name)) < rounding, mesh_text, ": ", name);
      CHECK_MESSAGE(same_bits(tensor, tensors.front()), mesh_text, ": ", name, " differs between ranks");
    }
  }
}

std::map<std::string, Tensor> one_rank(const Layer& layer) {
  Collected results;
  run_layer(layer, "tp=1", results);
  std::map<std::string, Tensor> reference;
  for (const auto& [name, tensors] : results.all()) reference[name] = tensors.front();
  return reference;
}

/// y = x W^T + b and its gradients by plain loops. x and dy have `rows` rows.
std::map<std::string, Tensor> linear_by_loops(std::int64_t rows, std::int64_t in, std::int64_t out, const Tensor& x,
                                              const Tensor& dy, const Tensor& w, const Tensor& b) {
  const auto zeros = [](const Shape& shape) { return Tensor::zeros(shape, DType::f64); };
  std::map<std::string, Tensor> r = {
      {"y", zeros({rows, out})}, {"dx", zeros({rows, in})}, {"weight", zeros({out, in})}, {"bias", zeros({out})}};
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t o = 0; o < out; ++o) {
      const double g = dy.data<double>()[n * out + o];
      double sum = b.defined() ? b.data<double>()[o] : 0;
      for (std::int64_t i = 0; i < in; ++i) {
        sum += x.data<double>()[n * in + i] * w.data<double>()[o * in + i];
        r["dx"].data<double>()[n * in + i] += g * w.data<double>()[o * in + i];
        r["weight"].data<double>()[o * in + i] += g * x.data<double>()[n * in + i];
      }
      r["y"].data<double>()[n * out + o] = sum;
      r["bias"].data<double>()[o] += g;
    }
  }
  return r;
}

Layer linear_layer(const Shape& features, nn::Split split, bool bias) {
  const nn::LinearOptions options{.bias = bias};
  return {.make = [=](const nn::Build& b) { return std::make_unique<nn::Linear>(b, 16, features, split, options); },
          .in = {3, 5, 16},
          .out = features.dims() == 1 ? Shape{3, 5, features[0]} : Shape{3, 5, features[0], features[1]},
          .in_sharded = split == nn::Split::in,
          .out_sharded = split == nn::Split::out};
}

/// The expected results of the layer, by loops, with the same parameters as in run_layer().
std::map<std::string, Tensor> linear_reference(const Layer& layer, const Shape& features) {
  Tensor w, b;
  run_mesh("tp=1", [&](const MeshPtr& mesh) {
    const nn::Build build(mesh, DType::f64, 3);
    const auto module = layer.make(build);
    randomise(build.parameters(), 0.5);
    w = build.parameters()[0]->local.detach();
    if (build.parameters().size() == 2) b = build.parameters()[1]->local.detach();
  });
  auto reference = linear_by_loops(15, 16, features.count(), random(layer.in, 1), random(layer.out, 2), w, b);
  if (!b.defined()) reference.erase("bias");
  for (auto& [name, tensor] : reference) {
    tensor = view::reshape(tensor, name == "y"        ? layer.out
                                   : name == "dx"     ? layer.in
                                   : name == "weight" ? w.shape()
                                                      : features);
  }
  return reference;
}

}  // namespace

TEST_CASE("a linear layer, whole or split by outputs or inputs, is x W^T + b") {
  using nn::Split;
  for (const Split split : {Split::none, Split::out, Split::in}) {
    for (const Shape& features : {Shape{12}, Shape{3, 8}}) {
      for (const bool bias : {true, false}) {
        const Layer layer = linear_layer(features, split, bias);
        const auto reference = linear_reference(layer, features);
        CAPTURE(static_cast<int>(split));
        for (const std::string& mesh : Meshes{"tp=1", "tp=2", "tp=4"}) check_against(reference, layer, mesh);
      }
    }
  }
}

TEST_CASE("attention split by heads equals one rank") {
  for (const bool bias : {true, false}) {
    const Layer layer = {.make =
                             [&](const nn::Build& b) {
                               return std::make_unique<nn::Attention>(
                                   b, nn::AttentionOptions{.width = 24, .heads = 4, .bias = bias});
                             },
                         .in = {2, 7, 24},
                         .out = {2, 7, 24}};
    const auto reference = one_rank(layer);
    for (const std::string& mesh : Meshes{"tp=2", "tp=4"}) check_against(reference, layer, mesh);
  }
}

TEST_CASE("attention refuses heads that do not divide") {
  const auto make = [](const char* text, std::int64_t width) {
    run_mesh(text, [&](const MeshPtr& mesh) {
      const nn::Attention attention(nn::Build(mesh, DType::f32, 1), {.width = width, .heads = 4});
    });
  };
  CHECK_THROWS_WITH_AS(make("tp=3", 24), doctest::Contains("--heads 4 does not divide over tp=3"), Error);
  CHECK_THROWS_WITH_AS(make("tp=1", 26), doctest::Contains("--width 26 is not a multiple of --heads 4"), Error);
}

TEST_CASE("an mlp split by its hidden features equals one rank, with either gelu") {
  for (const Unary activation : {Unary::gelu, Unary::gelu_tanh}) {
    for (const bool bias : {true, false}) {
      const Layer layer = {.make =
                               [&](const nn::Build& b) {
                                 return std::make_unique<nn::Mlp>(
                                     b,
                                     nn::MlpOptions{.width = 12, .hidden = 40, .activation = activation, .bias = bias});
                               },
                           .in = {2, 7, 12},
                           .out = {2, 7, 12}};
      const auto reference = one_rank(layer);
      for (const std::string& mesh : Meshes{"tp=2", "tp=4"}) check_against(reference, layer, mesh);
    }
  }
}

TEST_CASE("norm layers normalise, then apply their gain and shift") {
  run_mesh("tp=1", [](const MeshPtr& mesh) {
    const nn::Build build(mesh, DType::f64, 3);
    nn::LayerNorm with_bias(build / "a", 6), without(build / "b", 6, false);
    nn::RmsNorm rms(build / "c", 6);
    randomise(build.parameters(), 0.5);
    CHECK(build.parameters().size() == 4);
    const Tensor x = random({2, 3, 6}, 1);
    const auto check = [&](nn::Module& norm, bool centred, const Tensor& gain, const Tensor& shift) {
      const Tensor y = norm(x).detach();
      for (std::int64_t row = 0; row < 6; ++row) {
        const double* in = x.data<double>() + row * 6;
        double mean = 0, squares = 0;
        for (int i = 0; i < 6 && centred; ++i) mean += in[i] / 6;
        for (int i = 0; i < 6; ++i) squares += (in[i] - mean) * (in[i] - mean) / 6;
        for (int i = 0; i < 6; ++i) {
          const double expected = (in[i] - mean) / std::sqrt(squares + 1e-5) * gain.data<double>()[i] +
                                  (shift.defined() ? shift.data<double>()[i] : 0);
          CHECK(y.data<double>()[row * 6 + i] == doctest::Approx(expected).epsilon(1e-12));
        }
      }
    };
    const auto value = [&](std::size_t i) { return build.parameters()[i]->local; };
    check(with_bias, true, value(0), value(1));
    check(without, true, value(2), {});
    check(rms, false, value(3), {});
  });
}

}  // namespace layers_test
