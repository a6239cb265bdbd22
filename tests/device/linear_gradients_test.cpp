// The gradient of a layer's bias on a GPU: out of the product of its weight's gradient where that is possible, in the
// same order and with the same hooks as any other gradient.
#include <cmath>

#include "autograd/deferred.h"
#include "core/device_work.h"
#include "cuda/runtime/emulated.h"
#include "cuda/selection.h"
#include "tests/models/recipe.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace linear_gradients_test {
namespace {

/// Selects the products by name, and "auto" again at the end.
struct Products {
  explicit Products(const char* name) { cuda::select_gemm(name); }
  ~Products() { cuda::select_gemm("auto"); }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
};

Tensor on_gpu(const Shape& shape, std::uint64_t stream, DType dtype = DType::bf16) {
  return random(shape, stream, dtype).to(Device::cuda);
}

enum class Kind : std::uint8_t { frozen, leaf, wide_leaf, parameter };

/// A tensor that needs a gradient of this kind. wide_leaf: in f32, but not deferred.
Tensor weight(const Shape& shape, std::uint64_t stream, Kind kind) {
  Tensor w = on_gpu(shape, stream);
  if (kind == Kind::frozen) return w;
  require_grad(w);
  if (kind == Kind::parameter) leaf_of(w)->set_parameter();
  if (kind != Kind::leaf) leaf_of(w)->set_grad(Tensor::zeros(shape, DType::f32, Device::cuda));
  return w;
}

/// A linear layer and an mlp: three weights and three biases.
struct Model {
  std::vector<Tensor> weights, biases;

  explicit Model(Kind of_weights = Kind::parameter, Kind of_biases = Kind::parameter)
      : weights({weight({16, 24}, 1, of_weights), weight({32, 16}, 2, of_weights), weight({16, 32}, 3, of_weights)}),
        biases({weight({16}, 4, of_biases), weight({32}, 5, of_biases), weight({16}, 6, of_biases)}) {}

  std::vector<Tensor> all() const {
    std::vector<Tensor> both = weights;
    both.insert(both.end(), biases.begin(), biases.end());
    return both;
  }
  void run(std::uint64_t micro_batch = 0) const {
    const Tensor x = on_gpu({3, 14, 24}, 10 + micro_batch), dy = on_gpu({3, 14, 16}, 20 + micro_batch);
    backward(mlp(linear(x, weights[0], biases[0]),
                 {.in = weights[1], .in_bias = biases[1], .out = weights[2], .out_bias = biases[2]}, Unary::gelu_tanh),
             dy);
  }
  std::uint64_t launches() const {
    const DeviceWork before = device_work();
    run();
    return (device_work() - before).launches;
  }
};

bool is_zero(const Tensor& x) { return same_bits(x, Tensor::zeros(x.shape(), x.dtype())); }

/// Whether the sums of the same rounded values are equal but for the order in f32.
bool near(const Tensor& a, const Tensor& b, double room = 1e-5) {
  const Tensor x = cast(a.to(Device::cpu), DType::f64), y = cast(b.to(Device::cpu), DType::f64);
  double worst = x.shape() == y.shape() ? 0 : 1e9;
  for (std::int64_t i = 0; i < x.count() && worst < 1; ++i)
    keep_largest(worst,
                 std::abs(x.data<double>()[i] - y.data<double>()[i]) / (room * (10 + std::abs(y.data<double>()[i]))));
  return worst < 1;
}

}  // namespace

TEST_CASE("device: a bias has one gradient, whether its weight needs one or not, and so has the weight") {
  const cuda::ScopedEmulatedDevice device;
  for (const char* const products : {"sm90", "sm80"}) {
    CAPTURE(products);
    const Products selected(products);
    const Model both, biases(Kind::frozen, Kind::parameter), weights(Kind::parameter, Kind::frozen);
    for (const Model* const model : {&both, &biases, &weights})
      for (const std::uint64_t micro_batch : {0, 1}) model->run(micro_batch);
    for (std::size_t i = 0; i < 3; ++i) {
      CAPTURE(i);
      CHECK_FALSE(is_zero(grad(both.biases[i])));
      CHECK(near(grad(both.biases[i]), grad(biases.biases[i])));
      CHECK(same_bits(grad(both.weights[i]), grad(weights.weights[i])));
    }
  }
}

TEST_CASE("device: the product of a weight's gradient gives the bias's on Hopper, and no launch of its own does") {
  const cuda::ScopedEmulatedDevice device;
  const auto of_biases = [](const char* products, Kind kind) {
    const Products selected(products);
    return Model(kind, kind).launches() - Model(kind, Kind::frozen).launches();
  };
  CHECK(of_biases("sm90", Kind::parameter) == 3);  // each is added to its sum
  CHECK(of_biases("sm80", Kind::parameter) == 6);
}

TEST_CASE("device: gradients that are kept in 16 bits stay so") {
  const cuda::ScopedEmulatedDevice device;
  const Products selected("sm90");
  const Model narrow(Kind::leaf, Kind::leaf), wide;
  narrow.run();
  wide.run();
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(grad(narrow.biases[i]).dtype() == DType::bf16);
    CHECK(near(grad(narrow.biases[i]), grad(wide.biases[i]), 1.0 / 128));
  }
}

TEST_CASE("device: in any order of the two parts of backward, bits and the order of hooks are those of a whole one") {
  const cuda::ScopedEmulatedDevice device;
  for (const char* const products : {"sm90", "sm80"}) {
    CAPTURE(products);
    const Products selected(products);
    const Model whole, split;
    struct Ready {
      std::size_t index;
      Tensor gradient;
    };
    std::vector<Ready> of_whole, of_split;
    const auto record = [](const Model& model, std::vector<Ready>& ready) {
      for (std::size_t i = 0; i < model.all().size(); ++i)
        leaf_of(model.all()[i])->on_grad_ready([leaf = leaf_of(model.all()[i]), i, &ready] {
          ready.push_back({i, clone(leaf->grad())});
        });
    };
    record(whole, of_whole);
    record(split, of_split);
    for (const std::uint64_t micro_batch : {0, 1}) whole.run(micro_batch);
    std::vector<DeferredGradients> later(2);
    for (const std::uint64_t micro_batch : {0, 1}) {
      const DeferWeightGradients scope(later[micro_batch]);
      split.run(micro_batch);
    }
    CHECK(of_split.empty());
    for (const Tensor& w : split.all()) CHECK(is_zero(grad(w)));
    for (DeferredGradients& part : later) part.run();
    REQUIRE(of_split.size() == of_whole.size());
    for (std::size_t i = 0; i < of_whole.size(); ++i) {
      CAPTURE(i);
      CHECK(of_split[i].index == of_whole[i].index);
      CHECK(same_bits(of_split[i].gradient, of_whole[i].gradient));
    }
  }
}

TEST_CASE("device: a bias that is not deferred has its gradient after the first part, although its weight is") {
  const cuda::ScopedEmulatedDevice device;
  const Products selected("sm90");
  const Model model(Kind::parameter, Kind::wide_leaf), whole;
  DeferredGradients later;
  {
    const DeferWeightGradients scope(later);
    model.run();
  }
  whole.run();
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(near(grad(model.biases[i]), grad(whole.biases[i])));
    CHECK(is_zero(grad(model.weights[i])));
  }
  later.run();
  for (std::size_t i = 0; i < 3; ++i) CHECK(same_bits(grad(model.weights[i]), grad(whole.weights[i])));
}

TEST_CASE("device: training with the products of Hopper: schedules and ZeRO give the same losses") {
  const cuda::ScopedEmulatedDevice device;
  const auto losses = [](const char* mesh, const char* products, const char* pipeline = "1f1b", int zero = 0) {
    const Products selected(products);
    const Recipe recipe{.config = {.layers = 2, .heads = 4, .width = 32, .context = 16, .vocab = 72, .dropout = 0},
                        .dtype = DType::bf16,
                        .global_batch = 8,
                        .pipeline = pipeline,
                        .device = Device::cuda};
    std::vector<double> all;
    run_mesh(mesh, [&](const MeshPtr& ranks) {
      GptOptions o = options_of(recipe, ranks->shape());
      o.mesh.zero = zero;
      const std::vector<double> mine = GptRun(o, ranks).steps(2);
      if (ranks->rank() == 0) all = mine;
    });
    return all;
  };
  const std::vector<double> alone = losses("dp=1", "sm90");
  CHECK(largest_relative(alone, losses("dp=1", "sm80")) < 5e-3);
  CHECK(losses("pp=2", "sm90", "zero-bubble") == losses("pp=2", "sm90"));
  for (const int zero : {1, 3}) {
    CAPTURE(zero);
    CHECK(largest_relative(losses("dp=2", "sm90", "1f1b", zero), alone) < 5e-3);
  }
}

}  // namespace linear_gradients_test
