// The elementwise functions of core/kernels.h and their derivatives, written once for the CPU and for CUDA.
//
// `m` is the arithmetic of a device: exp, log, sqrt, sin, cos, tanh, reciprocal and normal_distribution as its kernels
// compute them, and the derivatives of the two GELUs. x is f32 or f64. nvcc compiles constexpr functions for the GPU,
// too. core/cpu/elementwise.cpp has what a vector of them needs.
// Read next: Arithmetic in core/cpu/elementwise.cpp and in cuda/kernels/functions.h.
#pragma once

#include <cmath>
#include <numbers>
#include <type_traits>
#include <utility>

#include "core/error.h"
#include "core/kernels.h"

namespace trireme {

template <class M, class A>
constexpr A sigmoid(M m, A x) {
  return m.reciprocal(A{1} + m.exp(-x));
}

/// The approximation of GELU (Hendrycks and Gimpel 2016) is x (1 + tanh u) / 2 = x sigmoid(2 u): this is 2 u, with
/// u = sqrt(2 / pi) (x + 0.044715 x^3). The sigmoid costs less than tanh, and loses nothing where 1 + tanh cancels.
template <class A>
constexpr A gelu_tanh_argument(A x) {
  constexpr A scale = 2 * std::numbers::sqrt2_v<A> * std::numbers::inv_sqrtpi_v<A>;
  return scale * x * (A{1} + A(0.044715) * x * x);
}

template <Unary op>
struct Formula;

struct Cheap {
  static constexpr bool cheap = true;  // about one operation: a thread of the CPU takes more elements
};
struct Costly {
  static constexpr bool cheap = false;  // an exp, tanh or erf
};

template <>
struct Formula<Unary::negate> : Cheap {
  static constexpr auto value(auto, auto x) { return -x; }
  static constexpr auto derivative(auto, auto x) { return decltype(x){-1}; }
};

template <>
struct Formula<Unary::exp> : Costly {
  static constexpr auto value(auto m, auto x) { return m.exp(x); }
  static constexpr auto derivative(auto m, auto x) { return m.exp(x); }
};

template <>
struct Formula<Unary::log> : Costly {
  static constexpr auto value(auto m, auto x) { return m.log(x); }
  static constexpr auto derivative(auto, auto x) { return 1 / x; }
};

template <>
struct Formula<Unary::sqrt> : Cheap {
  static constexpr auto value(auto m, auto x) { return m.sqrt(x); }
  static constexpr auto derivative(auto m, auto x) { return decltype(x)(0.5) / m.sqrt(x); }
};

template <>
struct Formula<Unary::square> : Cheap {
  static constexpr auto value(auto, auto x) { return x * x; }
  static constexpr auto derivative(auto, auto x) { return 2 * x; }
};

template <>
struct Formula<Unary::tanh> : Costly {
  static constexpr auto value(auto m, auto x) { return m.tanh(x); }
  static constexpr auto derivative(auto m, auto x) {
    const auto t = m.tanh(x);
    return 1 - t * t;
  }
};

template <>
struct Formula<Unary::relu> : Cheap {
  static constexpr auto value(auto, auto x) { return x < 0 ? 0 : x; }
  static constexpr auto derivative(auto, auto x) { return x > 0 ? decltype(x){1} : decltype(x){0}; }
};

template <>
struct Formula<Unary::sigmoid> : Costly {
  static constexpr auto value(auto m, auto x) { return sigmoid(m, x); }
  static constexpr auto derivative(auto m, auto x) {
    const auto s = sigmoid(m, x);
    return s * (1 - s);
  }
};

template <>
struct Formula<Unary::silu> : Costly {  // x sigmoid(x)
  static constexpr auto value(auto m, auto x) { return x * sigmoid(m, x); }
  static constexpr auto derivative(auto m, auto x) {
    const auto s = sigmoid(m, x);
    return s * (1 + x * (1 - s));
  }
};

template <>
struct Formula<Unary::gelu> : Costly {  // x Phi(x), exact: as in nanoGPT
  static constexpr auto value(auto m, auto x) { return x * m.normal_distribution(x); }
  static constexpr auto derivative(auto m, auto x) { return m.gelu_derivative(x); }
};

template <>
struct Formula<Unary::gelu_tanh> : Costly {  // the tanh approximation, as in GPT-2
  static constexpr auto value(auto m, auto x) { return x * sigmoid(m, gelu_tanh_argument(x)); }
  static constexpr auto derivative(auto m, auto x) { return m.gelu_tanh_derivative(x); }
};

template <>
struct Formula<Unary::abs> : Cheap {
  static constexpr auto value(auto, auto x) { return x > 0 ? x : 0 - x; }  // 0 for -0
  static constexpr auto derivative(auto, auto x) {
    return x > 0 ? decltype(x){1} : x < 0 ? decltype(x){-1} : decltype(x){0};
  }
};

template <>
struct Formula<Unary::relu2> : Cheap {  // max(x, 0)^2 (So et al. 2021, "Primer")
  static constexpr auto value(auto, auto x) {
    const auto positive = x < 0 ? 0 : x;  // NaN for NaN
    return positive * positive;
  }
  static constexpr auto derivative(auto, auto x) { return x > 0 ? 2 * x : decltype(x){0}; }
};

template <>
struct Formula<Unary::sin> : Costly {
  static constexpr auto value(auto m, auto x) { return m.sin(x); }
  static constexpr auto derivative(auto m, auto x) { return m.cos(x); }
};

template <>
struct Formula<Unary::cos> : Costly {
  static constexpr auto value(auto m, auto x) { return m.cos(x); }
  static constexpr auto derivative(auto m, auto x) { return -m.sin(x); }
};

template <Binary op, class A>
constexpr A combine(A a, A b) {
  if constexpr (op == Binary::add) return a + b;
  if constexpr (op == Binary::subtract) return a - b;
  if constexpr (op == Binary::multiply) return a * b;
  if constexpr (op == Binary::divide) return a / b;
  if constexpr (op == Binary::equal) return a == b ? A{1} : A{0};
  if constexpr (op == Binary::not_equal) return a != b ? A{1} : A{0};
  if constexpr (op == Binary::less) return a < b ? A{1} : A{0};
  if constexpr (op == Binary::less_equal) return a <= b ? A{1} : A{0};
  // NOLINTBEGIN(misc-redundant-expression): a != a is true for NaN
  if constexpr (op == Binary::maximum) return a > b || a != a ? a : b;
  if constexpr (op == Binary::minimum) return a < b || a != a ? a : b;
  // NOLINTEND(misc-redundant-expression)
  if constexpr (op == Binary::power) return std::pow(a, b);
}

/// f(std::integral_constant<Unary, op>{}).
#define TRIREME_CASE(name) \
  case Op::name:           \
    return f(std::integral_constant<Op, Op::name>{});
template <class F>
decltype(auto) visit(Unary op, F&& f) {
  using Op = Unary;
  switch (op) { TRIREME_EVERY_UNARY(TRIREME_CASE) }
  fail(ExitCode::internal, "unary", "no function has the number {}", static_cast<int>(op));
}
template <class F>
decltype(auto) visit(Binary op, F&& f) {
  using Op = Binary;
  switch (op) { TRIREME_EVERY_BINARY(TRIREME_CASE) }
  fail(ExitCode::internal, "binary", "no function has the number {}", static_cast<int>(op));
}
#undef TRIREME_CASE

}  // namespace trireme
