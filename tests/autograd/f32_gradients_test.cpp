// The gradient of a parameter is a sum over rows and is kept in f32. Every operation that makes one is tested with rows
// whose sum exceeds the range of f16.

#include "autograd/conv.h"
#include "autograd/group_norm.h"
#include "autograd/recurrent.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;

namespace {

constexpr std::int64_t rows = 96, width = 8;
constexpr double largest_f16 = 65504;

struct Case {
  std::string name;
  Shape parameter;
  std::function<Tensor(const Tensor& x, const Tensor& parameter)> f;  ///< x [rows, width]
  bool rounds = false;  ///< forward or the terms of the sum are rounded to 16 bits; the sum must be f32
};

/// A constant of x's dtype.
Tensor constant(const Tensor& x, const Shape& shape, std::uint64_t stream) {
  return cast(random(shape, stream, DType::f16), x.dtype());
}

const std::vector<std::int64_t> starts = {0, 40, 40, rows};  // of three groups, one without rows

Tensor square_weight(const Tensor& x) { return constant(x, {width, width}, 7); }

/// Products with a parameter as weight or bias.
std::vector<Case> product_cases() {
  const Tensor few = random_ids({rows}, 1, 0, 3);
  return {
      {"linear: weight", {width, width}, [](auto& x, auto& p) { return linear(x, p, {}); }},
      {"linear: bias", {width}, [](auto& x, auto& p) { return linear(x, square_weight(x), p); }},
      {"linear: a slice of a weight",
       {2 * width, width},
       [](auto& x, auto& p) { return linear(x, slice(p, 0, width, width), {}); }},
      {"linear: a slice of a bias",
       {2, width},
       [](auto& x, auto& p) { return linear(x, square_weight(x), select(p, 0, 1)); }},
      {"linear: the router's weight, in f32",
       {width, width},
       [](auto& x, auto& p) {
         const DType wide = accumulate_dtype(x.dtype());
         return cast_to(linear(cast_to(x, wide), cast_to(p, wide), {}), x.dtype());
       }},
      {"linear: a head tied to the embedding",
       {width, width},
       [=](auto& x, auto& p) { return linear(x, p, {}) + embedding(p, few); }},
      {"matmul: right", {width, width}, [](auto& x, auto& p) { return matmul(x, p); }},
      {"matmul: right, of several matrices",
       {width, width},
       [](auto& x, auto& p) {
         return matmul(reshape(x, {4, rows / 4, width}), p);
       }},
      {"matmul: left",
       {width, rows},
       [](auto& x, auto& p) {
         return reshape(matmul(p, x), {width, width});
       }},
  };
}

/// Convolutions and group norm, over samples and positions.
std::vector<Case> channel_cases() {
  return {
      {"conv2d: weight",
       {2, 2, 1, 1},
       [](auto& x, auto& p) {
         return conv2d(reshape(x, {12, 2, 4, 8}), p, {});
       }},
      {"conv2d: a slice of a weight",
       {3, 2, 1, 1},
       [](auto& x, auto& p) {
         return conv2d(reshape(x, {12, 2, 4, 8}), slice(p, 0, 1, 2), {});
       }},
      {"conv2d: bias",
       {2},
       [](auto& x, auto& p) {
         return conv2d(reshape(x, {12, 2, 4, 8}), constant(x, {2, 2, 1, 1}, 11), p);
       }},
      {"conv1d: weight",
       {2, 2, 1},
       [](auto& x, auto& p) {
         return conv1d(reshape(x, {12, 2, 32}), p, {});
       }},
      {"group_norm: gain",
       {width},
       [](auto& x, auto& p) {
         return group_norm(reshape(x, {rows, width, 1}), 1, p, constant(x, {width}, 12));
       }},
      {"group_norm: shift",
       {width},
       [](auto& x, auto& p) {
         return group_norm(reshape(x, {rows, width, 1}), 1, constant(x, {width}, 12), p);
       }},
  };
}

/// An mlp is one operation with four parameters.
std::vector<Case> mlp_cases() {
  return {
      {"mlp: the first weight",
       {width, width},
       [](auto& x, auto& p) {
         return mlp(x, {.in = p, .in_bias = {}, .out = square_weight(x), .out_bias = {}}, Unary::gelu);
       },
       true},
      {"mlp: the first bias",
       {width},
       [](auto& x, auto& p) {
         return mlp(x, {.in = square_weight(x), .in_bias = p, .out = square_weight(x), .out_bias = {}}, Unary::gelu);
       },
       true},
      {"mlp: the second weight",
       {width, width},
       [](auto& x, auto& p) {
         return mlp(x, {.in = square_weight(x), .in_bias = {}, .out = p, .out_bias = {}}, Unary::gelu);
       },
       true},
      {"mlp: the second bias",
       {width},
       [](auto& x, auto& p) {
         return mlp(x, {.in = square_weight(x), .in_bias = {}, .out = square_weight(x), .out_bias = p}, Unary::gelu);
       }},
  };
}

/// Products of a mixture of experts.
std::vector<Case> expert_cases() {
  return {
      {"grouped_linear: weight", {3, width, width}, [](auto& x, auto& p) { return grouped_linear(x, starts, p, {}); }},
      {"grouped_linear: bias",
       {3, width},
       [](auto& x, auto& p) {
         return grouped_linear(x, starts, constant(x, {3, width, width}, 8), p);
       }},
      {"grouped_linear: a bias that is scaled first",
       {3, width},
       [](auto& x, auto& p) {
         return grouped_linear(x, starts, constant(x, {3, width, width}, 8), p * 0.5);
       }},
      {"grouped_linear: a slice of a weight",
       {4, width, width},
       [](auto& x, auto& p) { return grouped_linear(x, starts, slice(p, 0, 1, 3), {}); }},
  };
}

/// Recurrent layers of one step: x is the first state.
std::vector<Case> recurrent_cases() {
  return {
      {"lstm_steps: weight",
       {4 * width, width},
       [](auto& x, auto& p) {
         const Tensor cells = Tensor::full({rows, width}, 0, x.dtype());
         return select(lstm_steps(constant(x, {1, rows, 4 * width}, 11), p, x, cells), 0, 0);
       },
       true},
      {"gru_steps: weight",
       {3 * width, width},
       [](auto& x, auto& p) {
         return gru_steps(constant(x, {1, rows, 3 * width}, 12), p, {}, x);
       },
       true},
      {"gru_steps: bias",
       {3 * width},
       [](auto& x, auto& p) {
         return gru_steps(constant(x, {1, rows, 3 * width}, 12), constant(x, {3 * width, width}, 13), p, x);
       },
       true},
  };
}

/// Elementwise operations that broadcast the parameter.
std::vector<Case> elementwise_cases() {
  return {
      {"add: a broadcast bias", {width}, [](auto& x, auto& p) { return x + p; }},
      {"add: a bias that is reshaped", {2, width / 2}, [](auto& x, auto& p) { return x + reshape(p, {width}); }},
      {"add: positions, two runs of them",
       {rows / 4 + 3, width},
       [](auto& x, auto& p) {
         const Tensor used = concat({slice(p, 0, 1, 8), slice(p, 0, 11, rows / 4 - 8)}, 0);
         return reshape(x, {4, rows / 4, width}) + used;
       }},
      {"add: a sum of two parts of a parameter",
       {2, width},
       [](auto& x, auto& p) { return x + (select(p, 0, 0) + select(p, 0, 1)); }},
      {"subtract", {width}, [](auto& x, auto& p) { return x - p; }},
      {"multiply: a gain", {width}, [](auto& x, auto& p) { return x * p; }},
      {"multiply: a gain times a constant",
       {width},
       [](auto& x, auto& p) { return x * (p * constant(x, {width}, 9)); },
       true},
      {"divide: below", {width}, [](auto& x, auto& p) { return x / (p * p + 1.0); }, true},
      {"divide: above", {width}, [](auto& x, auto& p) { return p / (x * x + 1.0); }, true},
      {"where: a row", {width}, [](auto& x, auto& p) { return where(x < 100.0, p, x); }},
      {"where: the other row, of a scaled parameter",
       {width},
       [](auto& x, auto& p) { return where(x > 100.0, x, p * 0.5); }},
      {"maximum", {width}, [](auto& x, auto& p) { return maximum(p + 8.0, x); }},
      {"clamp", {width}, [](auto& x, auto& p) { return x + clamp(p, -100, 100); }},
      {"pow", {width}, [](auto& x, auto& p) { return x + pow(p, 3); }, true},
      {"number / a parameter", {width}, [](auto& x, auto& p) { return x + 1.0 / (p * p + 1.0); }, true},
      {"unary: a gain that is an exponential", {width}, [](auto& x, auto& p) { return x * exp(p); }, true},
  };
}

/// Views and sums of the parameter, and recomputation.
std::vector<Case> view_cases() {
  return {
      {"expand",
       {1, width},
       [](auto& x, auto& p) {
         return x + expand(p, {rows, width});
       }},
      {"transpose", {width, 1}, [](auto& x, auto& p) { return x + transpose(p, 0, 1); }},
      {"permute and flip",
       {width, 1},
       [](auto& x, auto& p) {
         return x + flip(permute(p, {1, 0}), 1);
       }},
      {"unbind and stack",
       {2, width},
       [](auto& x, auto& p) {
         return x + sum(stack({unbind(p)[0], unbind(p)[1]}, 1), 1);
       }},
      {"cumsum", {width}, [](auto& x, auto& p) { return x + cumsum(p, 0); }},
      {"pad", {width - 2}, [](auto& x, auto& p) { return x + pad(p, 0, 1, 1); }},
      {"sum: of a parameter", {4, width}, [](auto& x, auto& p) { return x + sum(p, 0); }},
      {"recompute: of what a block captures",
       {width},
       [](auto& x, auto& p) { return recompute([p](const Tensor& input) { return input + p; }, x); }},
  };
}

/// Norms, and rows by index.
std::vector<Case> row_cases() {
  const Tensor few = random_ids({rows}, 1, 0, 3);
  const Tensor experts = random_ids({rows}, 2, 0, 3);
  return {
      {"layer_norm: gain", {width}, [](auto& x, auto& p) { return layer_norm(x, p, {}); }},
      {"layer_norm: shift", {width}, [](auto& x, auto& p) { return layer_norm(x, constant(x, {width}, 10), p); }},
      {"layer_norm: a slice of a gain",
       {2, width},
       [](auto& x, auto& p) { return layer_norm(x, select(p, 0, 1), {}); }},
      {"rms_norm: gain", {width}, [](auto& x, auto& p) { return rms_norm(x, p); }},
      {"embedding: rows", {3, width}, [=](auto& x, auto& p) { return x + embedding(p, few); }},
      {"embedding: rows of a slice",
       {5, width},
       [=](auto& x, auto& p) { return x + embedding(slice(p, 0, 1, 3), few); }},
      {"gather: of a parameter",
       {3, width},
       [=](auto& x, auto& p) {
         return x + gather(p, 0, contiguous(view::expand(view::reshape(few, {rows, 1}), {rows, width})));
       }},
      {"gather_rows: of a parameter", {3, width}, [=](auto& x, auto& p) { return x + gather_rows(p, experts); }},
  };
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& family : {product_cases(), channel_cases(), mlp_cases(), expert_cases(), recurrent_cases(),
                             elementwise_cases(), view_cases(), row_cases()})
    all.insert(all.end(), family.begin(), family.end());
  return all;
}

double largest(const Tensor& x) {
  double result = 0;
  for (const double v : contiguous(cast(x, DType::f64)).span<double>()) keep_largest(result, std::abs(v));
  return result;
}

/// x whose columns differ, so that their sums do not cancel.
Tensor input(DType dtype) {
  Tensor x = random({rows, width}, 3, DType::f64, normal(0.125));
  for (std::int64_t i = 0; i < x.count(); ++i) x.data<double>()[i] += 0.25 * static_cast<double>(i % width);
  return cast(x, dtype);
}

/// Gradients of the output, all positive: each fits in f16, but the sum of a few rows does not.
Tensor output_gradient(const Shape& shape, DType dtype) {
  Tensor dy = random(shape, 4, DType::f64, normal(1000));
  for (double& v : dy.span<double>()) v = 9000 + std::min(std::abs(v), 4000.0);
  return cast(dy, dtype);
}

/// The gradient after two backwards of `f`: two micro-batches with the same rows.
template <class Prepare>
Tensor gradient(const Case& c, const Tensor& x, const Tensor& dy, DType dtype, const Prepare& prepare) {
  Tensor parameter = cast(random(c.parameter, 5, DType::f16), dtype);
  require_grad(parameter);
  prepare(parameter);
  for (int i = 0; i < 2; ++i) {
    const Tensor y = c.f(x, parameter);
    backward(y, view::reshape(view::slice(dy, 0, 0, y.count()), y.shape()));
  }
  return grad(parameter);
}

}  // namespace

TEST_CASE("a parameter's gradient is summed in f32 by every operation: sums over f16's range are finite and right") {
  const auto nothing = [](Tensor&) {};
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor x = input(dtype), dy = output_gradient({rows * width}, dtype);
    for (const Case& c : cases()) {
      CAPTURE(c.name);
      CAPTURE(name(dtype));
      const double tolerance = !c.rounds ? 1e-5 : dtype == DType::f16 ? 0x1p-10 : 0x1p-6;
      const Tensor expected = gradient(c, cast(x, DType::f64), cast(dy, DType::f64), DType::f64, nothing);
      REQUIRE(largest(expected) > largest_f16);
      // The gradient is a tensor of zeros beforehand, as in a training run, or the first backward makes it.
      const Tensor into = gradient(c, x, dy, dtype, [](Tensor& p) { leaf_of(p)->grad() = Tensor::zeros(p.shape()); });
      const Tensor made = gradient(c, x, dy, dtype, [](Tensor& p) { leaf_of(p)->set_parameter(); });
      for (const Tensor& got : {into, made}) {
        CHECK(got.dtype() == DType::f32);
        CHECK(relative_difference(got, expected) < tolerance);
      }
    }
  }
}
