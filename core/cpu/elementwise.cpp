// Elementwise kernels: unary functions and their derivatives (core/formulas.h), broadcasting arithmetic, axpby.
// Bytes: every operand read once, the result written once. FLOPs: one, or one exp, tanh or erf, per element.
#include <cmath>
#include <numbers>

#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"
#include "core/cpu/normal_distribution.h"
#include "core/cpu/strided.h"
#include "core/cpu/unary_rows.h"
#include "core/cpu/vector_math.h"
#include "core/formulas.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t arithmetic_grain = 32768;  // elements worth a thread: one operation each
constexpr std::int64_t function_grain = 8192;     // the same for exp, tanh, erf

/// What core/formulas.h asks of a device. The f32 functions are loops' bodies that the compiler vectorises.
struct Arithmetic {
  template <class A>
  static A exp(A x) {
    return exp_approx(x);
  }
  template <class A>
  static A log(A x) {
    return std::log(x);
  }
  template <class A>
  static A sqrt(A x) {
    return std::sqrt(x);
  }
  template <class A>
  static A reciprocal(A x) {
    return 1 / x;
  }
  template <class A>
  static A tanh(A x) {
    return tanh_approx(x);
  }
  template <class A>
  static A normal_distribution(A x) {
    return normal_point(x).cdf;
  }
  template <class A>
  static A gelu_derivative(A x) {
    const NormalPoint<A> point = normal_point(x);
    return point.cdf + x * point.pdf;
  }
  template <class A>
  static A gelu_tanh_derivative(A x) {
    constexpr A scale = 2 * std::numbers::sqrt2_v<A> * std::numbers::inv_sqrtpi_v<A>;
    const A s = trireme::sigmoid(Arithmetic(), gelu_tanh_argument(x));
    return s + x * s * (A{1} - s) * (scale * (A{1} + A(3 * 0.044715) * x * x));
  }
};

std::int64_t grain_of(Unary op) {
  return visit(op,
               [](auto chosen) { return Formula<decltype(chosen)::value>::cheap ? arithmetic_grain : function_grain; });
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
  return visit(op, [](auto chosen) -> UnaryRow<T> {
    return [](std::int64_t n, const T* x, T* y) {
      map<A>(
          n, [](A v) { return Formula<decltype(chosen)::value>::value(Arithmetic(), v); }, y, x);
    };
  });
}

template <class T>
UnaryBackwardRow<T> unary_backward_row(Unary op) {
  using A = accumulate_t<T>;
  return visit(op, [](auto chosen) -> UnaryBackwardRow<T> {
    return [](std::int64_t n, const T* x, const T* dy, T* dx) {
      map<A>(
          n, [](A v, A d) { return Formula<decltype(chosen)::value>::derivative(Arithmetic(), v) * d; }, dx, x, dy);
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
    visit(op, [&](auto chosen) {
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

void multiply_by(const Tensor& factor, Tensor& x) {
  visit_floating(x.dtype(), "multiply_by", [&](auto tag) {
    using A = accumulate_t<typename decltype(tag)::type>;
    const A value = *factor.data<A>();
    if (value != 1) axpby(static_cast<double>(value), x, 0, x);
  });
}

}  // namespace trireme::cpu
