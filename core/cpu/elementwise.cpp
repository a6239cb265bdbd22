// Elementwise kernels: unary functions and their derivatives, broadcasting arithmetic, axpby.
// Bytes: every operand read once, the result written once. FLOPs: one, or one exp, tanh or erf, per element.
#include <cmath>
#include <numbers>
#include <type_traits>

#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"
#include "core/cpu/normal_distribution.h"
#include "core/cpu/strided.h"
#include "core/cpu/unary_rows.h"
#include "core/cpu/vector_math.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t arithmetic_grain = 32768;  // elements worth a thread: one operation each
constexpr std::int64_t function_grain = 8192;     // the same for exp, tanh, erf

template <class A>
A sigmoid(A x) {
  return A{1} / (A{1} + exp_approx(-x));
}

// The approximation of GELU (Hendrycks and Gimpel 2016) is x (1 + tanh u) / 2 = x sigmoid(2 u): this is 2 u, with
// u = sqrt(2 / pi) (x + 0.044715 x^3). The sigmoid costs less than tanh, and loses nothing where 1 + tanh cancels.
template <class A>
A gelu_tanh_argument(A x) {
  constexpr A scale = 2 * std::numbers::sqrt2_v<A> * std::numbers::inv_sqrtpi_v<A>;
  return scale * x * (A{1} + A(0.044715) * x * x);
}
template <class A>
A gelu_tanh_argument_derivative(A x) {
  constexpr A scale = 2 * std::numbers::sqrt2_v<A> * std::numbers::inv_sqrtpi_v<A>;
  return scale * (A{1} + A(3 * 0.044715) * x * x);
}

template <Unary op, class A>
A value(A x) {
  if constexpr (op == Unary::negate) return -x;
  if constexpr (op == Unary::exp) return exp_approx(x);
  if constexpr (op == Unary::log) return std::log(x);
  if constexpr (op == Unary::sqrt) return std::sqrt(x);
  if constexpr (op == Unary::square) return x * x;
  if constexpr (op == Unary::tanh) return tanh_approx(x);
  if constexpr (op == Unary::relu) return x < 0 ? A{0} : x;
  if constexpr (op == Unary::sigmoid) return sigmoid(x);
  if constexpr (op == Unary::silu) return x * sigmoid(x);
  if constexpr (op == Unary::gelu) return x * normal_point(x).distribution;
  if constexpr (op == Unary::gelu_tanh) return x * sigmoid(gelu_tanh_argument(x));
}

template <Unary op, class A>
A derivative(A x) {
  if constexpr (op == Unary::negate) return A{-1};
  if constexpr (op == Unary::exp) return exp_approx(x);
  if constexpr (op == Unary::log) return A{1} / x;
  if constexpr (op == Unary::sqrt) return A(0.5) / std::sqrt(x);
  if constexpr (op == Unary::square) return 2 * x;
  if constexpr (op == Unary::relu) return x > 0 ? A{1} : A{0};
  if constexpr (op == Unary::tanh) {
    const A t = tanh_approx(x);
    return A{1} - t * t;
  }
  if constexpr (op == Unary::sigmoid) {
    const A s = sigmoid(x);
    return s * (A{1} - s);
  }
  if constexpr (op == Unary::silu) {
    const A s = sigmoid(x);
    return s * (A{1} + x * (A{1} - s));
  }
  if constexpr (op == Unary::gelu) {
    const NormalPoint<A> point = normal_point(x);
    return point.distribution + x * point.density;
  }
  if constexpr (op == Unary::gelu_tanh) {
    const A s = sigmoid(gelu_tanh_argument(x));
    return s + x * s * (A{1} - s) * gelu_tanh_argument_derivative(x);
  }
}

template <class F>
decltype(auto) visit_unary(Unary op, F&& f) {
  switch (op) {
    case Unary::negate:
      return f(std::integral_constant<Unary, Unary::negate>{});
    case Unary::exp:
      return f(std::integral_constant<Unary, Unary::exp>{});
    case Unary::log:
      return f(std::integral_constant<Unary, Unary::log>{});
    case Unary::sqrt:
      return f(std::integral_constant<Unary, Unary::sqrt>{});
    case Unary::square:
      return f(std::integral_constant<Unary, Unary::square>{});
    case Unary::tanh:
      return f(std::integral_constant<Unary, Unary::tanh>{});
    case Unary::relu:
      return f(std::integral_constant<Unary, Unary::relu>{});
    case Unary::sigmoid:
      return f(std::integral_constant<Unary, Unary::sigmoid>{});
    case Unary::silu:
      return f(std::integral_constant<Unary, Unary::silu>{});
    case Unary::gelu:
      return f(std::integral_constant<Unary, Unary::gelu>{});
    case Unary::gelu_tanh:
      return f(std::integral_constant<Unary, Unary::gelu_tanh>{});
  }
  fail(ExitCode::internal, "unary", "no function has the number {}", static_cast<int>(op));
}

constexpr std::int64_t grain_of(Unary op) {
  const bool arithmetic = op == Unary::negate || op == Unary::square || op == Unary::relu || op == Unary::sqrt;
  return arithmetic ? arithmetic_grain : function_grain;
}

template <Binary op, class A>
A combine(A a, A b) {
  if constexpr (op == Binary::add) return a + b;
  if constexpr (op == Binary::subtract) return a - b;
  if constexpr (op == Binary::multiply) return a * b;
  if constexpr (op == Binary::divide) return a / b;
  if constexpr (op == Binary::equal) return a == b ? A{1} : A{0};
}

template <class F>
void visit_binary(Binary op, F&& f) {
  switch (op) {
    case Binary::add:
      return f(std::integral_constant<Binary, Binary::add>{});
    case Binary::subtract:
      return f(std::integral_constant<Binary, Binary::subtract>{});
    case Binary::multiply:
      return f(std::integral_constant<Binary, Binary::multiply>{});
    case Binary::divide:
      return f(std::integral_constant<Binary, Binary::divide>{});
    case Binary::equal:
      return f(std::integral_constant<Binary, Binary::equal>{});
  }
}

// One run of y = op(a, b). Strides of 1 and 0 (a repeated scalar) are the cases that matter.
template <Binary op, class T>
void binary_run(const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride, T* y, std::int64_t n) {
  using A = accumulate_t<T>;
  if (a_stride == 1 && b_stride == 1) {
    map<A>(
        n, [](A p, A q) { return combine<op>(p, q); }, y, a, b);
  } else if (a_stride == 1 && b_stride == 0) {
    const A q = widen(*b);
    map<A>(
        n, [q](A p) { return combine<op>(p, q); }, y, a);
  } else if (a_stride == 0 && b_stride == 1) {
    const A p = widen(*a);
    map<A>(
        n, [p](A q) { return combine<op>(p, q); }, y, b);
  } else {
    for (std::int64_t i = 0; i < n; ++i) {
      y[i] = static_cast<T>(combine<op>(widen(a[i * a_stride]), widen(b[i * b_stride])));
    }
  }
}

}  // namespace

template <class T>
UnaryRow<T> unary_row(Unary op) {
  using A = accumulate_t<T>;
  return visit_unary(op, [](auto chosen) -> UnaryRow<T> {
    return [](std::int64_t n, const T* x, T* y) {
      map<A>(
          n, [](A v) { return value<decltype(chosen)::value>(v); }, y, x);
    };
  });
}

template <class T>
UnaryBackwardRow<T> unary_backward_row(Unary op) {
  using A = accumulate_t<T>;
  return visit_unary(op, [](auto chosen) -> UnaryBackwardRow<T> {
    return [](std::int64_t n, const T* x, const T* dy, T* dx) {
      map<A>(
          n, [](A v, A d) { return derivative<decltype(chosen)::value>(v) * d; }, dx, x, dy);
    };
  });
}

#define INSTANTIATE(T)                      \
  template UnaryRow<T> unary_row<T>(Unary); \
  template UnaryBackwardRow<T> unary_backward_row<T>(Unary);
INSTANTIATE(float)
INSTANTIATE(double)
INSTANTIATE(bf16)
INSTANTIATE(f16)
#undef INSTANTIATE

void unary(Unary op, const Tensor& x, Tensor& y) {
  visit_floating(x.dtype(), "unary", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const UnaryRow<T> row = unary_row<T>(op);
    parallel_elements(x.count(), grain_of(op),
                      [&](std::int64_t begin, std::int64_t end) { row(end - begin, from + begin, to + begin); });
  });
}

void unary_backward(Unary op, const Tensor& x, const Tensor& dy, Tensor& dx) {
  visit_floating(x.dtype(), "unary_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *input = x.data<T>(), *from = dy.data<T>();
    T* to = dx.data<T>();
    const UnaryBackwardRow<T> row = unary_backward_row<T>(op);
    parallel_elements(x.count(), grain_of(op), [&](std::int64_t begin, std::int64_t end) {
      row(end - begin, input + begin, from + begin, to + begin);
    });
  });
}

void binary(Binary op, const Tensor& a, const Tensor& b, Tensor& y) {
  if (y.count() == 0) return;
  visit_floating(y.dtype(), "binary", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *left = a.data<T>(), *right = b.data<T>();
    T* to = y.data<T>();
    const auto layout = merge_dims<3>(y.shape(), {a.strides(), b.strides(), row_major_strides(y.shape())});
    const std::int64_t a_stride = layout.inner_stride(0), b_stride = layout.inner_stride(1);
    visit_binary(op, [&](auto chosen) {
      parallel_elements(y.count(), arithmetic_grain, [&](std::int64_t begin, std::int64_t end) {
        for_runs(layout, begin, end, [&](const std::array<std::int64_t, 3>& at, std::int64_t n) {
          binary_run<decltype(chosen)::value>(left + at[0], a_stride, right + at[1], b_stride, to + at[2], n);
        });
      });
    });
  });
}

void axpby(double a, const Tensor& x, double b, Tensor& y) {
  visit_floating(x.dtype(), "axpby", [&](auto x_tag) {
    visit_floating(y.dtype(), "axpby", [&](auto y_tag) {
      using X = typename decltype(x_tag)::type;
      using Y = typename decltype(y_tag)::type;
      using A = accumulate_t<Y>;
      const X* from = x.data<X>();
      Y* to = y.data<Y>();
      const A p = static_cast<A>(a), q = static_cast<A>(b);
      parallel_elements(y.count(), arithmetic_grain, [&](std::int64_t begin, std::int64_t end) {
        if (b == 0) {
          map<A>(
              end - begin, [p](A u) { return p * u; }, to + begin, from + begin);
        } else {
          map<A>(
              end - begin, [p, q](A u, A v) { return p * u + q * v; }, to + begin, from + begin, to + begin);
        }
      });
    });
  });
}

}  // namespace trireme::cpu
