// Products that keep a weight's packed panels give the same bits as without, also when the weight changes between
// scopes.
#include "core/packed_weights.h"

#include <doctest/doctest.h>

#include "core/kernels.h"
#include "tests/products/reference.h"
#include "tests/products/units.h"
#include "tests/support/sanitized.h"

namespace trireme {
namespace packed_weights_test {
namespace {

using testing::random;
using testing::values;

/// x [M, K] by the weight [N, K], forward, and dy [M, N] by it, backward.
struct Layer {
  Tensor weight, x, dy, bias;
  Layer(std::int64_t m, std::int64_t n, std::int64_t k, DType dtype, std::uint64_t stream = 1)
      : weight(random({n, k}, stream, dtype)),
        x(random({m, k}, stream + 1, dtype)),
        dy(random({m, n}, stream + 2, dtype)),
        bias(random({n}, stream + 3, dtype)) {}

  Tensor forward(bool is_weight) const {
    Tensor y = Tensor::empty({x.size(0), weight.size(0)}, x.dtype());
    kernels(Device::cpu).gemm(x, view::transpose(weight, 0, 1), y, {.bias = bias, .b_is_weight = is_weight});
    return y;
  }
  Tensor backward(bool is_weight) const {
    Tensor dx = Tensor::empty({dy.size(0), weight.size(1)}, dy.dtype());
    kernels(Device::cpu).gemm(dy, weight, dx, {.b_is_weight = is_weight});
    return dx;
  }
};

std::int64_t copies_in_use() { return MemoryPool::current()->use(MemoryCategory::workspace).live; }

}  // namespace

TEST_CASE("a product with kept panels has the bits of one without, in every dtype, for more rows or more columns") {
  testing::for_each_way({DType::f32, DType::f64, DType::bf16, DType::f16}, [](DType dtype) {
    for (const int team : {1, 2, 3}) {
      if (testing::sanitized && team == 2) continue;
      const testing::TeamOf scope(team);
      for (const std::int64_t m : {9, 40, 300}) {  // fewer and more rows than columns
        if (testing::sanitized && m == 300) continue;
        CAPTURE(name(dtype));
        CAPTURE(team);
        CAPTURE(m);
        const Layer layer(m, 101, 1100, dtype);  // several blocks of the depth, ragged panels
        const auto forward = values(layer.forward(false)), backward = values(layer.backward(false));
        const PackedWeights kept;
        for (int microbatch = 0; microbatch < 3; ++microbatch) {
          CHECK(values(layer.forward(true)) == forward);
          CHECK(values(layer.backward(true)) == backward);
        }
      }
    }
  });
}

TEST_CASE("one copy serves batches of every size, and each weight and each direction has its own") {
  const Layer first(20, 70, 50, DType::f32, 1), second(300, 70, 50, DType::f32, 11);
  Layer wide = first;
  wide.x = second.x;
  const auto expected = values(wide.forward(false)), other = values(second.forward(false));
  PackedWeights kept;
  static_cast<void>(first.forward(true));
  const std::int64_t one = kept.bytes();
  CHECK(one >= first.weight.bytes());
  CHECK(values(wide.forward(true)) == expected);
  CHECK(kept.bytes() == one);
  CHECK(values(second.forward(true)) == other);
  CHECK(kept.bytes() == 2 * one);
  static_cast<void>(first.backward(true));
  CHECK(kept.bytes() > 2 * one);
}

TEST_CASE("a new scope packs anew, and gives back what the one before has kept") {
  Layer layer(40, 70, 50, DType::f32);
  const std::int64_t before = copies_in_use();
  {
    const PackedWeights kept;
    static_cast<void>(layer.forward(true));
    CHECK(copies_in_use() > before);
  }
  CHECK(copies_in_use() == before);
  layer.weight.data<float>()[3] += 1;
  const auto expected = values(layer.forward(false));
  const PackedWeights kept;
  CHECK(values(layer.forward(true)) == expected);
}

TEST_CASE("a weight at the address of a freed one is not mistaken for it") {
  PackedWeights kept;
  for (std::uint64_t stream = 1; stream < 60; stream += 10) {  // each layer is gone before the next is made
    const Layer layer(40, 70, 50, DType::f32, stream);
    CHECK(values(layer.forward(true)) == values(layer.forward(false)));
  }
}

TEST_CASE("only weights are kept, and only inside a scope that is on") {
  const Layer layer(40, 70, 50, DType::f32);
  static_cast<void>(layer.forward(true));
  const PackedWeights off(false);
  CHECK(PackedWeights::current() == nullptr);
  PackedWeights kept;
  static_cast<void>(layer.forward(false));
  CHECK(kept.bytes() == 0);
  const Tensor batch = random({2, 40, 50}, 5, DType::f32), matrices = random({2, 50, 30}, 6, DType::f32);
  Tensor y = Tensor::empty({2, 40, 30}, DType::f32);
  kernels(Device::cpu).gemm(batch, matrices, y, {.b_is_weight = true});  // one matrix per batch entry
  CHECK(kept.bytes() == 0);
}

}  // namespace packed_weights_test
}  // namespace trireme
