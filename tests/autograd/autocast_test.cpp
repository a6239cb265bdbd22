// Autocast: which operations cast, that values and gradients have the bits of casts by hand, and PyTorch's autocast.
#include "autograd/autocast.h"

#include <set>

#include "autograd/conv.h"
#include "autograd/group_norm.h"
#include "autograd/masked_attention.h"
#include "autograd/op.h"
#include "autograd/recurrent.h"
#include "tests/support/errors.h"
#include "tests/support/golden.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace autocast_test {
namespace {

using Inputs = std::vector<Tensor>;
struct Case {
  const char* name;
  std::vector<Shape> shapes;
  Function f;
};

const std::vector<Case>& products() {
  static const std::vector<Case> cases = {
      {"matmul", {{2, 3, 5}, {5, 4}}, [](const Inputs& i) { return matmul(i[0], i[1]); }},
      {"matmul of views",
       {{5, 3}, {4, 5}},
       [](const Inputs& i) { return matmul(transpose(i[0], 0, 1), transpose(i[1], 0, 1)); }},
      {"linear", {{3, 5}, {4, 5}, {4}}, [](const Inputs& i) { return linear(i[0], i[1], i[2]); }},
      {"mlp",
       {{3, 5}, {7, 5}, {7}, {4, 7}, {4}},
       [](const Inputs& i) {
         return mlp(i[0], {i[1], i[2], i[3], i[4]}, Unary::gelu);
       }},
      {"grouped_linear",
       {{5, 3}, {2, 4, 3}, {2, 4}},
       [](const Inputs& i) {
         return grouped_linear(i[0], {0, 2, 5}, i[1], i[2]);
       }},
      {"einsum", {{2, 3, 5}, {4, 5}}, [](const Inputs& i) { return einsum("btd,ed->bet", i); }},
      {"einsum, elementwise", {{2, 5}, {2, 5}}, [](const Inputs& i) { return einsum("bd,bd->b", i); }},
      {"conv2d",
       {{2, 3, 5, 4}, {4, 3, 3, 3}, {4}},
       [](const Inputs& i) {
         return conv2d(i[0], i[1], i[2], {.padding = {1, 1}});
       }},
      {"conv1d", {{2, 3, 7}, {4, 3, 3}, {4}}, [](const Inputs& i) { return conv1d(i[0], i[1], i[2]); }},
      {"lstm_steps",
       {{3, 2, 12}, {12, 3}, {2, 3}, {2, 3}},
       [](const Inputs& i) { return lstm_steps(i[0], i[1], i[2], i[3]); }},
      {"gru_steps",
       {{3, 2, 9}, {9, 3}, {9}, {2, 3}},
       [](const Inputs& i) { return gru_steps(i[0], i[1], i[2], i[3]); }},
      {"attention",
       {{2, 3, 4, 8}, {2, 3, 2, 8}, {2, 3, 2, 8}},
       [](const Inputs& i) { return attention(i[0], i[1], i[2]); }},
      {"attention_packed", {{2, 3, 3, 2, 8}}, [](const Inputs& i) { return attention_packed(i[0]); }},
      {"masked_attention",
       {{2, 3, 4, 8}, {2, 3, 2, 8}, {2, 3, 2, 8}, {1, 4, 3, 3}},
       [](const Inputs& i) {
         return masked_attention(i[0], i[1], i[2], {.mask = i[3], .causal = true, .softcap = 3});
       }},
  };
  return cases;
}

const std::vector<Case>& in_f32_cases() {
  static const std::vector<Case> cases = {
      {"softmax", {{3, 5}}, [](const Inputs& i) { return softmax(i[0]); }},
      {"softmax 0", {{3, 5}}, [](const Inputs& i) { return softmax(i[0], 0); }},
      {"log_softmax", {{3, 5}}, [](const Inputs& i) { return log_softmax(i[0], 1); }},
      {"logsumexp", {{3, 5}}, [](const Inputs& i) { return logsumexp(i[0], 1); }},
      {"layer_norm", {{3, 5}, {5}, {5}}, [](const Inputs& i) { return layer_norm(i[0], i[1], i[2]); }},
      {"rms_norm", {{3, 5}, {5}}, [](const Inputs& i) { return rms_norm(i[0], i[1]); }},
      {"group_norm", {{2, 4, 3}, {4}, {4}}, [](const Inputs& i) { return group_norm(i[0], 2, i[1], i[2]); }},
      {"sum", {{3, 5}}, [](const Inputs& i) { return sum(i[0]); }},
      {"sum 1", {{3, 5}}, [](const Inputs& i) { return sum(i[0], 1); }},
      {"mean", {{3, 5}}, [](const Inputs& i) { return mean(i[0], 1); }},
      {"var", {{3, 5}}, [](const Inputs& i) { return var(i[0], 1); }},
      {"norm", {{3, 5}}, [](const Inputs& i) { return norm(i[0], 1); }},
      {"cumsum", {{3, 5}}, [](const Inputs& i) { return cumsum(i[0], 1); }},
      {"exp", {{3, 5}}, [](const Inputs& i) { return exp(i[0]); }},
      {"log", {{3, 5}}, [](const Inputs& i) { return log(i[0]); }},
      {"pow", {{3, 5}}, [](const Inputs& i) { return pow(i[0], 3); }},
      {"1 / x", {{3, 5}}, [](const Inputs& i) { return 1.0 / i[0]; }},
  };
  return cases;
}

const std::vector<Case>& in_common_dtype_cases() {
  static const std::vector<Case> cases = {
      {"add", {{3, 5}, {5}}, [](const Inputs& i) { return i[0] + i[1]; }},
      {"subtract", {{3, 5}, {5}}, [](const Inputs& i) { return i[0] - i[1]; }},
      {"multiply", {{3, 5}, {5}}, [](const Inputs& i) { return i[0] * i[1]; }},
      {"divide", {{3, 5}, {5}}, [](const Inputs& i) { return i[0] / i[1]; }},
      {"where", {{3, 5}, {5}}, [](const Inputs& i) { return where(i[0] > i[1], i[0], i[1]); }},
      {"maximum", {{3, 5}, {5}}, [](const Inputs& i) { return maximum(i[0], i[1]); }},
      {"concat",
       {{3, 5}, {2, 5}},
       [](const Inputs& i) {
         return concat({i[0], i[1]}, 0);
       }},
      {"stack",
       {{3, 5}, {3, 5}},
       [](const Inputs& i) {
         return stack({i[0], i[1]});
       }},
  };
  return cases;
}

Inputs positive_inputs(const Case& c, DType dtype) {
  Inputs inputs;
  for (std::size_t i = 0; i < c.shapes.size(); ++i)
    inputs.push_back(cast(abs(random(c.shapes[i], i + 1)) + 0.1, dtype));
  return inputs;
}

Inputs leaves(const Inputs& values) {
  Inputs result;
  for (const Tensor& x : values) {
    result.push_back(clone(x));
    require_grad(result.back());
  }
  return result;
}

Inputs cast_all(const Inputs& inputs, DType dtype) {
  Inputs result;
  for (const Tensor& x : inputs) result.push_back(cast_to(x, dtype));
  return result;
}

/// The value of f and its gradients.
Inputs results_of(const Function& f, const Inputs& inputs) {
  const Tensor y = f(inputs);
  backward(y, sum_weights(y.shape(), y.dtype()));
  Inputs results = {y.detach()};
  for (const Tensor& x : inputs) results.push_back(grad(x));
  return results;
}

/// f of `values` under Autocast, against `by_hand` of the same, bit by bit.
void check_same(const Case& c, const Inputs& values, DType products, DType result, const Function& by_hand) {
  CAPTURE(c.name);
  CAPTURE(name(products));
  const Inputs got = results_of(
      [&](const Inputs& i) {
        const Autocast autocast(products);
        return c.f(i);
      },
      leaves(values));
  CHECK(got[0].dtype() == result);
  CHECK(same_bits(got, results_of(by_hand, leaves(values))));
}

/// Nodes of this name below x.
std::size_t count_nodes(const Tensor& x, std::string_view name) {
  std::set<Node*> seen;
  std::vector<Node*> rest = {x.node().get()};
  std::size_t count = 0;
  while (!rest.empty()) {
    Node* node = rest.back();
    rest.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    count += node->name() == name ? 1 : 0;
    for (const auto& input : node->inputs()) rest.push_back(input.get());
  }
  return count;
}

constexpr std::array<DType, 2> narrow = {DType::bf16, DType::f16};

}  // namespace

TEST_CASE("autocast: products have the bits of casts by hand, and gradients of f32") {
  for (const Case& c : products())
    for (const DType dtype : narrow)
      check_same(c, positive_inputs(c, DType::f32), dtype, dtype,
                 [&](const Inputs& i) { return c.f(cast_all(i, dtype)); });
}

TEST_CASE("autocast: softmax, norms and sums of 16 bits are computed in f32") {
  for (const Case& c : in_f32_cases())
    for (const DType dtype : narrow)
      check_same(c, positive_inputs(c, dtype), dtype, DType::f32,
                 [&](const Inputs& i) { return c.f(cast_all(i, DType::f32)); });
}

TEST_CASE("autocast: two dtypes meet in f32, and equal ones stay") {
  for (const Case& c : in_common_dtype_cases()) {
    for (const DType dtype : narrow) {
      const Inputs values = positive_inputs(c, DType::f32), mixed = {values[0], cast(values[1], dtype)};
      check_same(c, mixed, dtype, DType::f32, [&](const Inputs& i) { return c.f(cast_all(i, DType::f32)); });
      check_same(c, cast_all(values, dtype), dtype, dtype, c.f);
      CHECK_THROWS_AS(c.f(mixed), Error);  // not without Autocast
    }
  }
}

TEST_CASE("autocast: other operations, f64, ids and undefined tensors are left alone") {
  const Autocast autocast(DType::bf16);
  CHECK(gelu(random({3}, 1, DType::bf16)).dtype() == DType::bf16);
  CHECK(relu(random({3}, 1, DType::f32)).dtype() == DType::f32);
  for (const Case& c : products()) CHECK(c.f(positive_inputs(c, DType::f64)).dtype() == DType::f64);
  CHECK(embedding(random({5, 3}, 1, DType::f32), random_ids({4}, 2, 0, 5), 0).dtype() == DType::f32);
  CHECK(linear(random({2, 3}, 1, DType::f32), random({4, 3}, 2, DType::f32), {}).dtype() == DType::bf16);
}

TEST_CASE("autocast: a residual of linear and mlp stays in f32") {
  const Tensor x = random({3, 5}, 1, DType::f32), w = random({5, 5}, 2, DType::f32), b = random({5}, 3, DType::f32);
  const Autocast autocast(DType::bf16);
  CHECK(same_bits(linear(x, w, b, x), x + linear(x, w, b)));
  CHECK(linear(x, w, b, x).dtype() == DType::f32);
  const MlpWeights both = {w, b, w, b};
  CHECK(same_bits(mlp(x, both, Unary::relu, x), x + mlp(x, both, Unary::relu)));
  const Tensor low = cast(x, DType::bf16);
  CHECK(linear(low, w, b, low).dtype() == DType::bf16);
}

TEST_CASE("autocast: a weight is cast once, and again after a write") {
  Tensor w = random({4, 4}, 1, DType::f32);
  require_grad(w);
  const Tensor x = random({2, 4}, 2, DType::f32);
  const Autocast autocast(DType::bf16);
  const Tensor twice = linear(linear(x, w, {}), w, {});
  CHECK(count_nodes(twice, "cast") == 1);
  {
    const Autocast inner(DType::bf16);
    CHECK(count_nodes(linear(twice, w, {}), "cast") == 1);
    const Autocast other(DType::f16);
    CHECK(linear(x, w, {}).dtype() == DType::f16);
  }
  {
    const NoGrad guard;
    w *= 2.0;
    CHECK(same_bits(linear(x, w, {}), linear(cast(x, DType::bf16), cast(w, DType::bf16), {})));
  }
  CHECK(same_bits(linear(x, w, {}).detach(), linear(cast(x, DType::bf16), cast(w.detach(), DType::bf16), {})));
}

TEST_CASE("autocast: losses that share only a weight have backwards of their own, in any order") {
  const Tensor start = random({4, 4}, 1, DType::f32);
  const auto gradient = [&](bool on, bool interleaved) {
    Tensor w = clone(start);
    require_grad(w);
    const Autocast autocast(on ? std::optional(DType::bf16) : std::nullopt);
    const auto loss = [&](std::uint64_t stream) {
      return sum(square(linear(random({2, 4}, stream, DType::f32), w, {})));
    };
    const Tensor a = loss(2);
    if (!interleaved) backward(a);
    const Tensor b = loss(3);
    backward(b);
    if (interleaved) backward(a);
    return grad(w);
  };
  CHECK(relative_difference(gradient(true, false), gradient(false, false)) < 16 * 0x1p-9);
  CHECK(relative_difference(gradient(true, true), gradient(true, false)) < 1e-6);
}

TEST_CASE("autocast: a parameter's gradient is not rounded to 16 bits") {
  Tensor w = random({1, 2}, 1, DType::f32);
  require_grad(w);
  leaf_of(w)->set_parameter();
  const Tensor x = Tensor::from({{1.0, 2.0}, {0x1p-9, 0x1p-9}}), ones = Tensor::ones({2, 1}, DType::bf16);
  Tensor y;
  {
    const Autocast autocast(DType::bf16);
    y = linear(x, w, {});
  }
  backward(y, ones);
  CHECK(grad(w).span<float>()[0] == 1 + 0x1p-9F);  // bf16 has 8 bits
}

TEST_CASE("autocast: a recomputation outside of it casts as its forward did") {
  const auto run = [](bool again) {
    Tensor x = random({3, 4}, 1, DType::f32), w = random({4, 4}, 2, DType::f32);
    require_grad(x);
    require_grad(w);
    const auto f = [&](const Tensor& t) { return softmax(linear(gelu(linear(t, w, {})), w, {})); };
    Tensor y;
    {
      const Autocast autocast(DType::bf16);
      y = again ? recompute(f, x) : f(x);
    }
    CHECK(y.dtype() == DType::f32);
    backward(y, sum_weights(y.shape(), y.dtype()));
    return Inputs{y.detach(), grad(x), grad(w)};
  };
  const Inputs plain = run(false), again = run(true);
  CHECK(same_bits(plain[0], again[0]));
  CHECK(same_bits(plain[1], again[1]));
  CHECK(relative_difference(plain[2], again[2]) < 1e-6);
}

TEST_CASE("autocast: it ends, can be switched off inside, and takes 16 bits only") {
  const Tensor x = random({2, 2}, 1, DType::f32);
  {
    const Autocast autocast(DType::bf16);
    CHECK(Autocast::current() == DType::bf16);
    {
      const Autocast off(std::nullopt);
      CHECK_FALSE(Autocast::current().has_value());
      CHECK(matmul(x, x).dtype() == DType::f32);
    }
    CHECK(matmul(x, x).dtype() == DType::bf16);
  }
  CHECK(matmul(x, x).dtype() == DType::f32);
  CHECK(says(error_of([] { const Autocast f64(DType::f64); }, ExitCode::usage), "expected bf16 or f16"));
}

TEST_CASE("autocast: a block and a convolution, close to torch.autocast on the CPU") {
  const GoldenFile golden("autocast");
  std::map<std::string, Tensor> p;
  for (const char* name : {"x", "gain", "shift", "q", "k", "v", "o", "o_bias", "up", "up_bias", "down", "head", "image",
                           "kernel", "kernel_bias"}) {
    p[name] = golden.read(name, DType::f32);
    require_grad(p[name]);
  }
  Tensor loss;
  {
    const Autocast autocast(DType::bf16);
    const Tensor& x = p["x"];
    const std::int64_t batch = x.size(0), length = x.size(1), width = x.size(2);
    const Tensor n = layer_norm(x, p["gain"], p["shift"]);
    const auto heads = [&](const char* name) { return reshape(linear(n, p[name], {}), {batch, length, 2, width / 2}); };
    const Tensor mixed = reshape(attention(heads("q"), heads("k"), heads("v")), x.shape());
    const Tensor y = x + linear(mixed, p["o"], p["o_bias"]);
    const Tensor z = y + linear(gelu(linear(y, p["up"], p["up_bias"])), p["down"], {});
    const Tensor log_p = log_softmax(linear(z, p["head"], {}));
    const Tensor image = conv2d(p["image"], p["kernel"], p["kernel_bias"], {.padding = {1, 1}});
    const Tensor chosen = one_hot(golden.read("targets"), log_p.size(2));
    loss = sum(log_p * chosen) * (-1.0 / static_cast<double>(batch * length)) + sum(square(image)) * 0.01;
  }
  CHECK(loss.dtype() == DType::f32);
  backward(loss);
  constexpr double rounding = 16 * 0x1p-9;  // as check_dtype() has it
  CHECK(std::abs(loss.item() - golden.number("bf16.loss")) < rounding * golden.number("f64.loss"));
  for (const auto& [name, leaf] : p) {
    CAPTURE(name);
    CHECK(grad(leaf).dtype() == DType::f32);
    CHECK(relative_difference(grad(leaf), golden.read("bf16." + name)) < rounding);
    // Not much further from f64 than PyTorch is.
    const Tensor exact = golden.read("f64." + name);
    CHECK(relative_difference(grad(leaf), exact) <
          2 * relative_difference(golden.read("bf16." + name), exact) + 0x1p-9);
  }
}

}  // namespace autocast_test
