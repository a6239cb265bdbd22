// The gradient checker: backward against central differences, everything in f64.
//
// The output is reduced to a number with random weights, so that every element of the Jacobian counts. With h = 1e-6
// the difference quotient is off by about h^2 |f'''| + 1e-16 |f| / h ~ 1e-10 for values near 1.
// Read next: tests/support/tensors.h, which makes inputs; tests/autograd/ops_test.cpp.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "autograd/engine.h"
#include "autograd/node.h"
#include "autograd/ops.h"
#include "core/random.h"
#include "tests/support/elements.h"
#include "tests/support/tensors.h"

namespace trireme::testing {

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

/// Random numbers that need a gradient.
inline Tensor leaf(const Shape& shape, std::uint64_t stream, DType dtype = DType::f64) {
  Tensor x = random(shape, stream, dtype);
  require_grad(x);
  return x;
}

inline double weighted_sum(const Tensor& y) {
  const Tensor dense = contiguous(cast(y, DType::f64));
  double total = 0;
  for (std::int64_t i = 0; i < dense.count(); ++i)
    total += dense.data<double>()[i] * random_normal(5, 99, static_cast<std::uint64_t>(i));
  return total;
}

inline Tensor sum_weights(const Shape& shape, DType dtype) {
  Tensor w = Tensor::empty(shape, DType::f64);
  for (std::int64_t i = 0; i < w.count(); ++i)
    w.data<double>()[i] = random_normal(5, 99, static_cast<std::uint64_t>(i));
  return cast(w, dtype);
}

/// The gradients of sum(weights * f(inputs)) by backward.
inline std::vector<Tensor> analytic_gradients(const Function& f, std::vector<Tensor> inputs) {
  for (Tensor& x : inputs) require_grad(x);
  const Tensor y = f(inputs);
  backward(y, sum_weights(y.shape(), y.dtype()));
  std::vector<Tensor> gradients;
  for (const Tensor& x : inputs) gradients.push_back(grad(x));
  return gradients;
}

/// Checks that a second backward over a retained graph gives the bits of the first.
inline void check_retained(const std::string& what, const Function& f, std::vector<Tensor> inputs,
                           const std::vector<Tensor>& expected) {
  for (Tensor& x : inputs) {
    x = x.detach();
    require_grad(x);
  }
  const Tensor y = f(inputs), dy = sum_weights(y.shape(), y.dtype());
  for (const bool retain : {true, true, false}) {
    backward(y, dy, {.retain_graph = retain});
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Tensor gradient = grad(inputs[i]);
      if (gradient.defined()) CHECK_MESSAGE(same_bits(gradient, expected[i]), what, ": a retained backward, input ", i);
      leaf_of(inputs[i])->set_grad({});
    }
  }
}

/// Checks every input's gradient, element by element, and that a graph can be retained. Inputs are f64 and dense.
inline void check_gradients(const std::string& what, const Function& f, const std::vector<Tensor>& inputs,
                            double tolerance = 2e-7) {
  const std::vector<Tensor> analytic = analytic_gradients(f, inputs);
  check_retained(what, f, inputs, analytic);
  constexpr double h = 1e-6;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Tensor> moved = inputs;
    moved[i] = clone(inputs[i]);
    double* x = moved[i].data<double>();
    REQUIRE_MESSAGE(analytic[i].defined(), what, ": input ", i, " received no gradient");
    const Tensor dense = contiguous(analytic[i]);
    for (std::int64_t j = 0; j < inputs[i].count(); ++j) {
      const double value = x[j];
      x[j] = value + h;
      const double above = weighted_sum(f(moved));
      x[j] = value - h;
      const double below = weighted_sum(f(moved));
      x[j] = value;
      const double expected = (above - below) / (2 * h), got = dense.data<double>()[j];
      CHECK_MESSAGE(std::abs(got - expected) <= tolerance * std::max(1.0, std::abs(expected)), what, ": input ", i,
                    " element ", j, ": backward says ", got, ", differences say ", expected);
    }
  }
}

/// |a - b| / max(|b|, sqrt(count)): sums of numbers of order one may cancel, and rounding errors do not shrink with
/// them.
inline double rounding_difference(const Tensor& a, const Tensor& b) {
  const Tensor wide = contiguous(cast(b, DType::f64));
  double norm = 0;
  for (const double v : wide.span<double>()) norm += v * v;
  return relative_difference(a, b) * (norm > 0 ? std::sqrt(norm) : 1.0) /
         std::sqrt(std::max(norm, static_cast<double>(b.count())));
}

/// Compares the function in a narrower dtype, forward and backward, with f64.
inline void check_dtype(const std::string& what, const Function& f, const std::vector<Tensor>& inputs, DType dtype,
                        double tolerance) {
  std::vector<Tensor> narrow, wide;
  for (const Tensor& x : inputs) {
    narrow.push_back(cast(x, dtype));
    wide.push_back(cast(narrow.back(), DType::f64));  // the same numbers
  }
  CHECK_MESSAGE(rounding_difference(f(narrow), f(wide)) <= tolerance, what, " forward in ", name(dtype));
  const std::vector<Tensor> got = analytic_gradients(f, narrow), expected = analytic_gradients(f, wide);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CHECK_MESSAGE(rounding_difference(got[i], expected[i]) <= tolerance, what, " gradient of input ", i, " in ",
                  name(dtype));
  }
}

/// Checks gradients in f64, then f32, bf16 and f16 against f64. The tolerance is 32 roundings of 2^-24 (f32), and 16 of
/// 2^-9 (bf16) and 2^-11 (f16).
inline void check_op(const std::string& what, const Function& f, const std::vector<Tensor>& inputs) {
  check_gradients(what, f, inputs);
  check_dtype(what, f, inputs, DType::f32, 32 * 0x1p-24);
  check_dtype(what, f, inputs, DType::bf16, 16 * 0x1p-9);
  check_dtype(what, f, inputs, DType::f16, 16 * 0x1p-11);
}

}  // namespace trireme::testing
