// Several backwards over one graph: gradients add up, writes are still seen, and memory is freed by the last.
// check_gradients (tests/support/gradcheck.h) tests every operation with a retained graph.
#include "autograd/deferred.h"
#include "core/kernels.h"
#include "tests/support/errors.h"
#include "tests/support/golden.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace retain_graph_test {
namespace {

constexpr BackwardOptions retain{.retain_graph = true};

}  // namespace

TEST_CASE("retain_graph: two losses with a common layer, three backwards, as in PyTorch") {
  const GoldenFile golden("retain_graph");
  for (const DType dtype : {DType::f64, DType::f32}) {
    std::vector<Tensor> leaves;
    const std::vector<const char*> names = {"x", "up", "head", "down"};
    for (const char* name : names) {
      leaves.push_back(golden.read(name, dtype));
      require_grad(leaves.back());
    }
    const Tensor hidden = gelu(linear(leaves[0], leaves[1], {}));     // [5, 7]
    const Tensor log_p = log_softmax(linear(hidden, leaves[2], {}));  // [5, 4]
    const Tensor loss_a = -sum(log_p * one_hot(golden.read("targets"), 4, dtype));
    const Tensor loss_b = sum(square(linear(hidden, leaves[3], {}) - golden.read("aim", dtype)));
    const auto check = [&](const std::string& pass) {
      for (std::size_t i = 0; i < leaves.size(); ++i) {
        const std::string name = pass + "." + names[i];
        REQUIRE(golden.has(name) == grad(leaves[i]).defined());
        if (golden.has(name)) check_golden(golden, name, grad(leaves[i]));
      }
    };
    backward(loss_a, retain);
    check("first");
    backward(loss_a, {.retain_graph = true});
    check("second");
    backward(loss_b);
    const int line = __LINE__ - 1;
    check("third");
    const std::string message = error_of([&] { backward(loss_a); }, ExitCode::internal);
    CHECK(says(message, fmt::format("autograd/retain_graph_test.cpp:{}, freed what forward had saved", line)));
    CHECK(says(message, "{.retain_graph = true}"));
  }
}

TEST_CASE("retain_graph: another gradient of the result gives its own product") {
  Tensor x = leaf({3}, 1);
  const Tensor y = x * x, a = random({3}, 2), b = random({3}, 3);
  backward(y, a, {.retain_graph = true});
  backward(y, b);
  CHECK(relative_difference(grad(x), 2.0 * x.detach() * (a + b)) < 1e-15);
}

TEST_CASE("retain_graph: a write to what forward saved is refused by a later backward too") {
  Tensor x = leaf({2, 3}, 1);
  const Tensor y = sum(x * x);
  backward(y, retain);
  backward(y, retain);
  {
    const NoGrad guard;
    x -= 0.1 * grad(x);
  }
  CHECK(says(error_of([&] { backward(y); }, ExitCode::internal), "[multiply] input 0 [2, 3] was written to"));
}

TEST_CASE("retain_graph: memory stays, and is freed by a backward without it or with the graph") {
  const auto pool = MemoryPool::current();
  Tensor x = leaf({1000}, 1);
  leaf_of(x)->set_grad(Tensor::zeros({1000}, DType::f64));
  const std::int64_t before = pool->total().live;
  {
    const Tensor y = sum(tanh(exp(tanh(x))));
    const std::int64_t recorded = pool->total().live;
    for (int i = 0; i < 3; ++i) {
      backward(y, retain);
      CHECK(pool->total().live == recorded);
    }
    backward(y);
    CHECK(pool->total().live <= before + 64);
  }
  {
    const Tensor y = sum(tanh(exp(tanh(x))));
    backward(y, retain);
    CHECK(pool->total().live >= before + 2 * 8000);
  }
  CHECK(pool->total().live == before);
}

TEST_CASE("retain_graph: parts, recomputation, repeated inputs and deferred weight gradients run again") {
  Tensor x = leaf({4, 6}, 1), w = leaf({6, 6}, 2);
  leaf_of(w)->set_parameter();
  const RepeatCheapInputs repeat;
  const std::vector<Tensor> parts = unbind(linear(gelu(x), w, {}));
  const Tensor first = sum(parts[0] * parts[1]),
               second = sum(recompute([&](const Tensor&t) { return tanh(linear(t, w, {})); }, parts[2]));
  const auto gradients = [&](const Tensor& y, const BackwardOptions& options) {
    leaf_of(x)->set_grad({});
    leaf_of(w)->set_grad({});
    DeferredGradients later;
    {
      const DeferWeightGradients scope(later);
      backward(y, options);
    }
    later.run();
    return std::vector<Tensor>{clone(grad(x)), clone(grad(w))};
  };
  const auto a = gradients(first, retain), b = gradients(second, retain), a_again = gradients(first, retain),
             b_again = gradients(second, {});
  for (std::size_t i = 0; i < 2; ++i) {
    CHECK(same_bits(a[i], a_again[i]));
    CHECK(same_bits(b[i], b_again[i]));
    CHECK_FALSE(same_bits(a[i], b[i]));
  }
}

TEST_CASE("an input that would be repeated from a graph that was freed is refused") {
  Tensor x = leaf({4, 6}, 1), w = leaf({6, 6}, 2);
  const RepeatCheapInputs repeat;
  const Tensor y = gelu(x), product = linear(y, w, {});
  backward(sum(y));
  CHECK(says(error_of([&] { backward(sum(product)); }, ExitCode::internal), "a second backward over the same graph"));
}

TEST_CASE("a long graph that no backward frees is destroyed without recursion") {
  Tensor x = leaf({1}, 1, DType::f32);
  Tensor y = x;
  for (int i = 0; i < 300'000; ++i) y = y + 1.0;
  backward(y, retain);
  y = {};
  CHECK(grad(x).item() == 1);
}

}  // namespace retain_graph_test
