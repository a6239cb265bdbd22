// Backward in two parts: first the gradients of inputs, later those of weights. What is deferred and what is not, that
// sums are bit-identical to those of a whole backward, when hooks run, and how much memory is kept.
#include "autograd/deferred.h"

#include <map>

#include "core/kernels.h"
#include "core/memory.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// A parameter as in a model. With `with_gradient` its gradient is already an f32 tensor of zeros; without, the first
/// backward makes it.
Tensor weight(const Shape& shape, std::uint64_t stream, bool with_gradient = true) {
  Tensor x = random(shape, stream, DType::f32);
  require_grad(x);
  leaf_of(x)->set_parameter();
  if (with_gradient) leaf_of(x)->grad() = Tensor::zeros(shape);
  return x;
}

bool is_zero(const Tensor& x) { return same_bits(x, Tensor::zeros(x.shape())); }

/// An embedding, a norm, three kinds of products and the embedding again as the head: every operation that can be
/// deferred, with cheap ones in between.
struct Model {
  Tensor table, gain, shift, up, bias, down, experts;

  explicit Model(bool with_gradients = true)
      : table(weight({11, 6}, 1, with_gradients)),
        gain(weight({6}, 2, with_gradients)),
        shift(weight({6}, 3, with_gradients)),
        up(weight({8, 6}, 4, with_gradients)),
        bias(weight({8}, 5, with_gradients)),
        down(weight({8, 6}, 6, with_gradients)),
        experts(weight({3, 6, 6}, 7, with_gradients)) {}

  std::vector<Tensor> all() const { return {table, gain, shift, up, bias, down, experts}; }
  Tensor loss(int microbatch) const {
    const Tensor x = embedding(table, random_ids({7}, static_cast<std::uint64_t>(microbatch), 0, 11));  // [N, D]
    const Tensor hidden = gelu(linear(layer_norm(x, gain, shift), up, bias));                           // [N, F]
    const Tensor routed = grouped_linear(x, {0, 2, 2, 7}, experts, {});                                 // [N, D]
    return sum(square(linear(routed + matmul(hidden, down), table, {})));                               // []
  }
};

}  // namespace

TEST_CASE("in the first part no gradient of a parameter changes; the second part adds all of them") {
  const Model model;
  DeferredGradients later;
  {
    const DeferWeightGradients scope(later);
    backward(model.loss(0));
  }
  for (const Tensor& w : model.all()) CHECK(is_zero(grad(w)));
  later.run();
  CHECK(later.empty());
  for (const Tensor& w : model.all()) CHECK_FALSE(is_zero(grad(w)));
}

TEST_CASE("in any order of the two parts the sums have the bits of whole backwards, also for a weight used twice") {
  for (const bool with_gradients : {true, false}) {
    const Model whole(with_gradients), split(with_gradients);
    for (int m = 0; m < 4; ++m) backward(whole.loss(m));
    std::vector<DeferredGradients> later(4);
    const auto input_part = [&](std::size_t m) {
      const DeferWeightGradients scope(later[m]);
      backward(split.loss(static_cast<int>(m)));
    };
    // A possible schedule: B0 B1 W0 B2 W1 W2 B3 W3.
    input_part(0);
    input_part(1);
    later[0].run();
    input_part(2);
    later[1].run();
    later[2].run();
    input_part(3);
    later[3].run();
    for (std::size_t i = 0; i < whole.all().size(); ++i) {
      CAPTURE(i);
      CHECK(same_bits(grad(whole.all()[i]), grad(split.all()[i])));
    }
  }
}

TEST_CASE("a hook runs once per backward, in its second part, when the gradient is complete") {
  const Model model;
  std::map<const Leaf*, int> calls;
  std::map<const Leaf*, Tensor> seen;
  for (const Tensor& w : model.all()) {
    Leaf* leaf = leaf_of(w);
    leaf->on_grad_ready([&calls, &seen, leaf] {
      ++calls[leaf];
      seen[leaf] = clone(leaf->grad());
    });
  }
  DeferredGradients later;
  {
    const DeferWeightGradients scope(later);
    backward(model.loss(0));
  }
  CHECK(calls.empty());
  later.run();
  CHECK(calls.size() == 7);
  for (const Tensor& w : model.all()) {
    CHECK(calls[leaf_of(w)] == 1);
    CHECK(same_bits(seen[leaf_of(w)], grad(w)));
  }
}

TEST_CASE("a leaf that is not a parameter gets its gradient at once: a stage's input, the input of recompute") {
  const Model model;
  Tensor x = random({7, 6}, 9, DType::f32);
  require_grad(x);
  DeferredGradients later;
  {
    const DeferWeightGradients scope(later);
    const auto block = [&](const Tensor& t) { return gelu(linear(t, model.up, model.bias)); };
    backward(sum(square(matmul(random({3, 7}, 10, DType::f32), x))) + sum(recompute(block, x)));
  }
  CHECK(grad(x).defined());
  CHECK(is_zero(grad(model.up)));  // deferred, although it was computed while the block was recomputed
  CHECK(is_zero(grad(model.bias)));
  later.run();

  const Model again;
  Tensor y = x.detach();
  require_grad(y);
  backward(sum(square(matmul(random({3, 7}, 10, DType::f32), y))) + sum(gelu(linear(y, again.up, again.bias))));
  CHECK(same_bits(grad(x), grad(y)));
  CHECK(same_bits(grad(model.up), grad(again.up)));
}

TEST_CASE("between the parts only what the products need is kept, and nothing afterwards") {
  const auto pool = MemoryPool::current();
  constexpr std::int64_t rows = 512, width = 16, buffer = rows * width * 4;
  const Tensor w = weight({width, width}, 1);
  const Tensor x = random({rows, width}, 2, DType::f32);
  const std::int64_t before = pool->total().live;
  DeferredGradients later;
  {
    const Tensor y = sum(exp(tanh(exp(tanh(linear(x, w, {}))))));
    CHECK(pool->total().live >= before + 4 * buffer);
    const DeferWeightGradients scope(later);
    backward(y);
  }
  CHECK(pool->total().live <= before + buffer + 4096);  // dy; x belongs to this test
  CHECK(pool->total().live >= before + buffer);
  later.run();
  CHECK(pool->total().live <= before + 4096);
}

TEST_CASE("a second part that never runs is dropped, and later backwards are not deferred") {
  const Model model, fresh;
  {
    DeferredGradients never;
    const DeferWeightGradients scope(never);
    backward(model.loss(0));
  }
  for (const Tensor& w : model.all()) { CHECK(is_zero(grad(w))); }
  backward(model.loss(1));
  backward(fresh.loss(1));
  for (std::size_t i = 0; i < model.all().size(); ++i) CHECK(same_bits(grad(model.all()[i]), grad(fresh.all()[i])));
}

TEST_CASE("hooks of a weight that two stages of a rank use run after the second") {
  const Tensor w = weight({3, 3}, 1);
  leaf_of(w)->run_hooks_after(2);
  int calls = 0;
  leaf_of(w)->on_grad_ready([&] { ++calls; });
  const std::vector<int> expected = {0, 1, 1, 2};
  for (const int count : expected) {
    backward(sum(square(w)));
    CHECK(calls == count);
  }
}
