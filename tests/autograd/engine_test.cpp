// The tape and the engine: what is recorded, in which order backward runs, and when the hooks of leaves run.
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

Tensor leaf(const Shape& shape, std::uint64_t stream) {
  Tensor x = random(shape, stream);
  require_grad(x);
  return x;
}

}  // namespace

TEST_CASE("a leaf's hook runs once, after its last contribution") {
  Tensor w = leaf({3, 3}, 1);
  int calls = 0;
  Tensor seen;
  leaf_of(w)->on_grad_ready([&] {
    ++calls;
    seen = clone(grad(w));
  });
  backward(sum(matmul(matmul(w, w), w) + w));
  CHECK(calls == 1);
  CHECK(relative_difference(seen, grad(w)) == 0);
}

TEST_CASE("leaves of later operations are ready before earlier operations run backward") {
  Tensor first = leaf({4}, 1), second = leaf({4}, 2);
  std::vector<int> order;
  leaf_of(first)->on_grad_ready([&] { order.push_back(1); });
  leaf_of(second)->on_grad_ready([&] { order.push_back(2); });
  backward(sum(tanh(tanh(random({4}, 3) * first)) * second));
  CHECK(order == std::vector<int>{2, 1});
}

TEST_CASE("gradients add up over backward calls") {
  Tensor x = leaf({5}, 1);
  backward(sum(x * 2.0));
  backward(sum(x * 3.0));
  for (const double g : grad(x).span<double>()) CHECK(g == 5.0);
}

TEST_CASE("a diamond sums both paths, without touching tensors others can see") {
  check_gradients("diamond",
                  [](const std::vector<Tensor>& x) {
                    const Tensor a = tanh(x[0]);
                    return a * a + exp(a) + a;
                  },
                  {random({4}, 1)});
  Tensor x = leaf({3}, 1);
  const Tensor y = x + x, upstream = Tensor::full({3}, 1.0, DType::f64);
  backward(y, upstream);
  for (const double g : upstream.span<double>()) CHECK(g == 1.0);
  for (const double g : grad(x).span<double>()) CHECK(g == 2.0);
}

TEST_CASE("nothing is recorded without need") {
  const Tensor x = leaf({3}, 1);
  {
    const NoGrad guard;
    CHECK_FALSE((x * 2.0).requires_grad());
    const EnableGrad inner;
    CHECK((x * 2.0).requires_grad());
  }
  CHECK((x * 2.0).requires_grad());
  CHECK_FALSE((random({3}, 1) * 2.0).requires_grad());
  CHECK_FALSE((x * 2.0).detach().requires_grad());
}

TEST_CASE("misuse is named") {
  const Tensor x = leaf({3}, 1);
  CHECK_THROWS_WITH_AS(backward(random({}, 1)), doctest::Contains("no gradient flows"), Error);
  CHECK_THROWS_WITH_AS(backward(x * 2.0), doctest::Contains("needs a gradient of that shape"), Error);
  CHECK_THROWS_WITH_AS(backward(x * 2.0, random({4}, 1)),
                       doctest::Contains("expected a gradient of shape [3], got [4]"), Error);
  CHECK_THROWS_WITH_AS(grad(x * 2.0), doctest::Contains("not a leaf"), Error);
  const Tensor y = sum(square(x));
  backward(y);
  CHECK_THROWS_WITH_AS(backward(y), doctest::Contains("run forward again"), Error);
}

TEST_CASE("backward frees what forward saved") {
  const auto pool = MemoryPool::current();
  Tensor x = leaf({1000}, 1);
  const std::int64_t before = pool->total().live;
  {
    const Tensor y = sum(tanh(exp(tanh(x))));
    CHECK(pool->total().live >= before + 2 * 8000);  // the inputs of exp and of the second tanh
    backward(y);
    CHECK(pool->total().live <= before + 8000 + 64);  // the leaf's gradient, and y
  }
}

TEST_CASE("recompute gives the same bits, and keeps only its input") {
  const Tensor w1 = random({8, 8}, 1), w2 = random({8, 8}, 2), x0 = random({4, 8}, 3);
  const auto run = [&](bool again) {
    Tensor a = w1.detach(), b = w2.detach(), x = x0.detach();
    require_grad(a);
    require_grad(b);
    require_grad(x);
    const auto f = [&](const Tensor& t) { return gelu(matmul(gelu(matmul(t, a)), b)); };
    const Tensor y = again ? recompute(f, x) : f(x);
    backward(sum(square(y)));
    return std::vector<Tensor>{grad(a), grad(b), grad(x)};
  };
  const auto plain = run(false), again = run(true);
  for (std::size_t i = 0; i < plain.size(); ++i) CHECK(same_bits(plain[i], again[i]));
}
