// Products for tests: operands, an epilogue with any of its steps, and the expected results, in f64 over the same
// rounded inputs.
// Read next: tests/cuda/gemm_test.cpp, tests/cuda/gemm_sm90_test.cpp.
#pragma once

#include <doctest/doctest.h>

#include <cmath>

#include "cuda/kernels/gemm_store.h"
#include "tests/cuda/support.h"

namespace gemm_test {

using namespace trireme;
using namespace trireme::cuda;
using namespace cuda_test;

/// Steps of an epilogue.
inline constexpr unsigned kBias = 1, kBefore = 2, kResidual = 4, kAccumulate = 8;
inline constexpr unsigned kAdds = kResidual | kAccumulate;

struct Case {
  Form form;
  int m, n, k;
  int extra = 0;   ///< elements between rows
  int offset = 0;  ///< elements before the first one
  bool full_epilogue = false;
  int batch = 1;
  float alpha = 1.0F;
  bool derivative = false;  ///< the epilogue of a backward pass
  unsigned without = 0;     ///< steps that a full epilogue does not have; with derivative, it has kBefore
  bool has(unsigned step) const { return full_epilogue && (without & step) == 0; }
};

inline double activated(Activation activation, double x) {
  if (activation == Activation::gelu) return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  if (activation == Activation::gelu_tanh)
    return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  return activation == Activation::silu ? x / (1 + std::exp(-x)) : x;
}

/// By central differences: their error at this step is below 1e-9.
inline double derivative(Activation activation, double x) {
  constexpr double h = 1e-5;
  return (activated(activation, x + h) - activated(activation, x - h)) / (2 * h);
}

template <class T, class Out>
struct Problem {
  Case c;
  std::int64_t a_pitch, b_pitch, c_pitch, a_rows, b_rows;
  Buffer<T> a, b, bias, residual, before;
  Buffer<Out> out, start;

  static std::size_t size(std::int64_t rows, std::int64_t pitch, int batch) {
    return static_cast<std::size_t>(rows * pitch * batch);
  }
  explicit Problem(const Case& c_)
      : c(c_),
        a_pitch((c.form == Form::tn ? c.m : c.k) + c.extra),
        b_pitch((c.form == Form::nt ? c.k : c.n) + c.extra),
        c_pitch(c.n + c.extra),
        a_rows(c.form == Form::tn ? c.k : c.m),
        b_rows(c.form == Form::nt ? c.n : c.k),
        a(size(a_rows, a_pitch, c.batch), static_cast<std::size_t>(c.offset)),
        b(size(b_rows, b_pitch, c.batch), static_cast<std::size_t>(c.offset)),
        bias(static_cast<std::size_t>(c.n)),
        residual(size(c.m, c_pitch, c.batch), static_cast<std::size_t>(c.offset)),
        before(residual.size()),
        out(residual.size(), static_cast<std::size_t>(c.offset)),
        start(residual.size()) {
    a.fill_random(1);
    b.fill_random(2);
    bias.fill_random(3);
    residual.fill_random(4);
    out.fill_random(5);
    start.fill_random(5);
    before.fill_random(6, 3.0F);
  }
  Gemm<T, Out> product(Activation activation) {
    Gemm<T, Out> p{c.form, c.m, c.n, c.k, a.data(), a_pitch, b.data(), b_pitch, out.data(), c_pitch};
    p.batch = c.batch;
    p.a_stride = a_rows * a_pitch;
    p.b_stride = b_rows * b_pitch;
    p.c_stride = c.m * c_pitch;
    p.epilogue.alpha = c.alpha;
    if (c.full_epilogue)
      p.epilogue = {c.alpha,
                    c.has(kBias) ? bias.data() : nullptr,
                    c.has(kBefore) ? before.data() : nullptr,
                    activation,
                    c.derivative,
                    c.has(kResidual) ? residual.data() : nullptr,
                    c.has(kAccumulate)};
    return p;
  }
  double sum(int batch, int i, int j) const {
    const auto at = [](std::int64_t base, std::int64_t row, std::int64_t pitch, std::int64_t column) {
      return static_cast<std::size_t>(base + row * pitch + column);
    };
    const std::int64_t a0 = batch * a_rows * a_pitch, b0 = batch * b_rows * b_pitch;
    double total = 0;
    for (int l = 0; l < c.k; ++l)
      total += a.at(c.form == Form::tn ? at(a0, l, a_pitch, i) : at(a0, i, a_pitch, l)) *
               b.at(c.form == Form::nt ? at(b0, j, b_pitch, l) : at(b0, l, b_pitch, j));
    return total;
  }
  /// The error in units of one rounding to V plus f32 noise.
  template <class V>
  static double error(const Buffer<V>& values, std::size_t at, double expected) {
    const double unit = std::is_same_v<V, float> ? 1e-6 : std::is_same_v<V, bf16> ? 1.0 / 256 : 1.0 / 2048;
    const double error = std::abs(values.at(at) - expected) / (unit * std::abs(expected) + 1e-5);
    return std::isnan(error) ? 1e9 : error;
  }
  /// The largest error in c and in what was stored before the activation.
  double worst(Activation activation) const {
    double largest = 0;
    for (int q = 0; q < c.batch; ++q)
      for (int i = 0; i < c.m; ++i)
        for (int j = 0; j < c_pitch; ++j) {
          const auto at = static_cast<std::size_t>((q * std::int64_t{c.m} + i) * c_pitch + j);
          double expected = start.at(at);  // between the rows nothing is written
          if (j < c.n) {
            expected = static_cast<double>(c.alpha) * sum(q, i, j);
            if (c.has(kBias)) expected += bias.at(static_cast<std::size_t>(j));
            if (c.has(kBefore) && !c.derivative) largest = std::max(largest, error(before, at, expected));
            expected = c.derivative ? expected * derivative(activation, before.at(at))
                                    : activated(activation, c.has(kBefore) ? before.at(at) : expected);
            if (c.has(kResidual)) expected += residual.at(at);
            if (c.has(kAccumulate)) expected += start.at(at);
          }
          largest = std::max(largest, error(out, at, expected));
        }
    return largest;
  }
};

inline constexpr Form kForms[] = {Form::nn, Form::nt, Form::tn};
inline constexpr Activation kActivations[] = {Activation::gelu_tanh, Activation::gelu, Activation::silu};

/// Every choice of steps; c with whole pieces of 16 bytes in each row, and without.
template <class Check>
void every_epilogue(const Check& check) {
  for (unsigned without = 0; without < 16; ++without)
    for (const bool derivative : {false, true}) {
      if (derivative && (without & kBefore) != 0) continue;
      CAPTURE(without);
      CAPTURE(derivative);
      const Activation activation = without % 2 == 0 && !derivative ? Activation::none : Activation::silu;
      for (const int n : {72, 77}) check({Form::nt, 40, n, 72, 0, 0, true, 1, 0.5F, derivative, without}, activation);
    }
}

}  // namespace gemm_test
