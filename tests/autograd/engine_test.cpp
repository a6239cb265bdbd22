// The tape and the engine: what is recorded, in which order backward runs, and when the hooks of leaves run.
#include <pthread.h>

#include "autograd/op.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

struct Miscounted : Op {
  static constexpr const char* name = "miscounted";
  std::size_t count = 0;
  Tensor forward(const Tensor& a, const Tensor& b) { return a + b; }
  Gradients backward(const Tensor& dy) const { return Gradients(count, dy); }
};

/// y = x + 1, and keeps a tensor that is on the tape, as a function given to recompute() may.
struct Keeper : Op {
  static constexpr const char* name = "keeper";
  Tensor kept;
  Tensor forward(const Tensor& x) { return x + 1.0; }
  Gradients backward(const Tensor& dy) const { return {dy}; }
};

/// Runs f on a thread with a stack of 64 KiB.
void on_small_stack(const std::function<void()>& f) {
  pthread_attr_t attributes;
  pthread_t thread{};
  ::pthread_attr_init(&attributes);
  REQUIRE(::pthread_attr_setstacksize(&attributes, 65536) == 0);
  const auto run = [](void* given) -> void* {
    (*static_cast<const std::function<void()>*>(given))();
    return nullptr;
  };
  REQUIRE(::pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&f)) == 0);
  ::pthread_join(thread, nullptr);
  ::pthread_attr_destroy(&attributes);
}

/// The sum of all elements, with a gradient of another shape than x.
struct Misshapen : Op {
  static constexpr const char* name = "misshapen";
  Tensor forward(const Tensor& x) { return sum(x); }
  Gradients backward(const Tensor& dy) const { return {dy}; }
};

/// y = 2 x, whose backward adds what x has received so far.
struct Taker : Op {
  static constexpr const char* name = "taker";
  int* taken = nullptr;
  Tensor forward(const Tensor& x) { return x + x; }
  Gradients backward(const Tensor& dy) const {
    const Tensor earlier = take_gradient_so_far(0, dy.dtype());
    *taken += earlier.defined() ? 1 : 0;
    return {earlier.defined() ? dy + dy + earlier : dy + dy};
  }
};

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

TEST_CASE("a gradient that nobody else has becomes the leaf's, without a copy; any other is copied") {
  const Tensor dy = random({64, 64}, 2), before = clone(dy);
  Tensor x = leaf({64, 64}, 1), y = leaf({64, 64}, 3);
  const MemoryPool& pool = *MemoryPool::current();
  const auto gradients = [&] { return pool.use(MemoryCategory::gradients).live; };
  const std::int64_t none = gradients(), activations = pool.use(MemoryCategory::activations).live;
  backward(exp(x), dy);
  CHECK(gradients() - none == dy.bytes());
  CHECK(pool.use(MemoryCategory::activations).live == activations);
  backward(x + y, dy);  // the gradient of both is dy itself
  CHECK_FALSE(grad(x).shares_storage_with(dy));
  CHECK_FALSE(grad(y).shares_storage_with(dy));
  CHECK(same_bits(grad(y), dy));
  grad(y).data<double>()[0] += 1;
  CHECK(same_bits(dy, before));
  Tensor part = leaf({2, 64}, 4);
  backward(concat({part, random({62, 64}, 5)}, 0), random({64, 64}, 6));  // a view of the gradient of all
  CHECK(grad(part).fills_storage());
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

TEST_CASE("an operation may add what its input has received so far") {
  int taken = 0;
  const auto twice = [&taken](const Tensor& x) {
    Taker op;
    op.taken = &taken;
    return apply(std::move(op), x);
  };
  const auto check = [&](const Tensor& x, double expected, int times) {
    taken = 0;
    const Tensor y = twice(x);
    backward(sum(x * 3.0 + y));  // the product is the newer one
    CHECK(values(grad(x)) == std::vector<double>(2, expected));
    CHECK(taken == times);
  };
  Tensor x = Tensor::full({2}, 5);
  require_grad(x);
  {
    const Tensor middle = x * 1.0;  // a node, not a leaf
    const Tensor y = twice(middle);
    backward(sum(middle * 3.0 + y));
    CHECK(values(grad(x)) == std::vector<double>(2, 5));
  }
  CHECK(taken == 1);
  check(x, 10, 1);  // with what an earlier backward has added
  {
    const Tensor seen = grad(x);
    check(x, 15, 0);  // others see it: it is added to in place
    CHECK(values(seen) == values(grad(x)));
  }
  leaf_of(x)->set_grad(Tensor::full({2}, 1));
  check(x, 6, 0);
  leaf_of(x)->set_grad({});
  CHECK_THROWS_WITH(take_gradient_so_far(0, DType::f32), doctest::Contains("no operation runs its backward"));
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

TEST_CASE("an operation that returns too few or too many gradients is named") {
  for (const std::size_t count : {std::size_t{1}, std::size_t{3}}) {
    Miscounted op;
    op.count = count;
    const Tensor y = sum(apply(std::move(op), leaf({3}, 1), leaf({3}, 2)));
    const std::string said = fmt::format("[miscounted] backward returned {} gradients for 2 inputs", count);
    CHECK_THROWS_WITH_AS(backward(y), doctest::Contains(said.c_str()), Error);
  }
}

TEST_CASE("gradients of two shapes for one tensor are refused") {
  const Tensor x = leaf({3}, 1) * 2.0;
  const Tensor right = sum(x), wrong = apply(Misshapen{}, x);  // the newest runs first
  CHECK_THROWS_WITH_AS(backward(right + wrong),
                       doctest::Contains("[misshapen] backward returned a gradient [] of input 0, which is [3]"),
                       Error);
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

TEST_CASE("a long graph is freed without backward, and shared parts stay") {
  const Tensor x = leaf({1}, 1);
  Tensor kept;
  {
    Tensor y = x;
    for (int i = 0; i < 500000; ++i) {
      y = i % 2 == 0 ? y * 1.0 : y + y;  // one path, and two
      if (i == 10) kept = sum(y);
    }
  }
  backward(kept);
  CHECK(grad(x).item() == 32);
}

TEST_CASE("a long graph is freed on a small stack, whichever way its nodes hold one another") {
  constexpr int steps = 100000;
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor& y, const Tensor& x)>>> links = {
      {"inputs", [](const Tensor& y, const Tensor& x) { return y + x; }},
      {"lists",
       [](const Tensor& y, const Tensor& x) {
         return slice(concat({y, x}, 0), 0, 0, 1);
       }},
      {"kept",
       [](const Tensor& y, const Tensor& x) {
         Keeper op;
         op.kept = y;
         return apply(std::move(op), x);
       }},
      {"captured",
       [](const Tensor& y, const Tensor& x) { return recompute([y](const Tensor& t) { return t + y; }, x); }}};
  for (const auto& [name, link] : links) {
    CAPTURE(name);
    on_small_stack([&f = link, backward_too = std::string_view(name) != "captured"] {
      const Tensor x = leaf({1}, 1);
      Tensor y = x;
      for (int i = 0; i < steps; ++i) y = f(y, x);
      if (backward_too) backward(sum(y));
    });
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

TEST_CASE("recompute gives the same bits where 16-bit contributions to a parameter's view are added in f32") {
  const Tensor w0 = random({1, 64}, 1, DType::bf16), x = random({4, 64}, 2, DType::bf16);
  const Tensor gain = random({64}, 3, DType::bf16);
  const auto run = [&](bool again) {
    Tensor w = w0.detach();
    require_grad(w);
    leaf_of(w)->set_parameter();
    const auto f = [&](const Tensor& t) { return t + gelu(t * gain); };
    const Tensor moved = x + w;  // its gradient is kept in f32, as x needs none
    const Tensor y = again ? recompute(f, moved) : f(moved);
    backward(sum(y * x));
    return grad(w);
  };
  CHECK(same_bits(run(false), run(true)));
}
