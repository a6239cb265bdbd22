// Elementwise kernels: unary functions and their derivatives (core/formulas.h), broadcasting arithmetic, where, axpby.
// Bytes: every operand read once, the result written once. FLOPs: one, or one exp, tanh or erf, per element; for many
// 16-bit elements a look-up in a table in their place (unary_rows.h). Large results of arithmetic are written past
// the caches (streaming.h).
#include <cmath>
#include <numbers>
#include <type_traits>
#include <vector>

#include "core/cpu/channel_kernels.h"
#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"
#include "core/cpu/normal_distribution.h"
#include "core/cpu/streaming.h"
#include "core/cpu/strided.h"
#include "core/cpu/unary_rows.h"
#include "core/cpu/vector_rows.h"
#include "core/formulas.h"

namespace trireme {

// The formula's A{1} would set only the first element of a vector.
template <>
constexpr cpu::Vector<float> gelu_tanh_argument(cpu::Vector<float> x) {
  constexpr float scale = 2 * std::numbers::sqrt2_v<float> * std::numbers::inv_sqrtpi_v<float>;
  return scale * x * (1 + 0.044715F * x * x);
}

namespace cpu {
namespace {

constexpr std::int64_t arithmetic_grain = 32768;  // elements worth a thread: one operation each
constexpr std::int64_t function_grain = 8192;     // the same for exp, tanh, erf

/// What core/formulas.h asks of a device; of the functions that take_vectors(), A may be a Vector.
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
  static A sin(A x) {
    return std::sin(x);
  }
  template <class A>
  static A cos(A x) {
    return std::cos(x);
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
    using C = std::conditional_t<std::is_same_v<A, double>, double, float>;
    constexpr C scale = 2 * std::numbers::sqrt2_v<C> * std::numbers::inv_sqrtpi_v<C>;
    const A s = sigmoid_approx(gelu_tanh_argument(x));
    return s + x * s * (1 - s) * (scale * (1 + C(3 * 0.044715) * x * x));
  }
};

/// As for gelu_tanh_argument(), the formula does not work for vectors.
Vector<float> sigmoid(Arithmetic /*m*/, Vector<float> x) { return sigmoid_approx(x); }

std::int64_t grain_of(Unary op) {
  return visit(op,
               [](auto chosen) { return Formula<decltype(chosen)::value>::cheap ? arithmetic_grain : function_grain; });
}

/// Functions whose formulas are computed with whole Vectors, if the type has_vectors. The others are bodies of loops,
/// which the compiler vectorises if it can.
constexpr bool takes_vectors(Unary op) {
  return op == Unary::exp || op == Unary::tanh || op == Unary::sigmoid || op == Unary::silu || op == Unary::gelu ||
         op == Unary::gelu_tanh;
}

/// y[i] = f(x[i]...), and all but y may be of another type than T.
template <Unary op, class T, class F, class... X>
void map_function(std::int64_t n, F&& f, T* y, const X*... x) {
  if constexpr (takes_vectors(op))
    map_vectors(n, f, y, x...);
  else
    map<accumulate_t<T>>(n, f, y, x...);
}
template <Unary op, class T, class Y>
void values_row(std::int64_t n, const T* x, Y* y) {
  map_function<op>(
      n, [](auto v) { return Formula<op>::value(Arithmetic(), v); }, y, x);
}
template <Unary op, class T, class Y>
void derivatives_row(std::int64_t n, const T* x, Y* y) {
  map_function<op>(
      n, [](auto v) { return Formula<op>::derivative(Arithmetic(), v); }, y, x);
}

constexpr std::int64_t table_from = 1 << 16;  // elements: as many as a table has

/// row(n, x, y) of all n numbers x of a 16-bit type, by their bits.
template <class Y, class T>
std::vector<Y> table_of(void (*row)(std::int64_t n, const T* x, Y* y)) {
  std::vector<T> x(1 << 16);
  for (std::size_t bits = 0; bits < x.size(); ++bits) x[bits].bits = static_cast<std::uint16_t>(bits);
  std::vector<Y> table(x.size());
  row(static_cast<std::int64_t>(x.size()), x.data(), table.data());
  return table;
}

// Made on first use; the same bits as unary_row() and unary_backward_row() compute.
template <Unary op, class T>
const T* values_of() {
  static const std::vector<T> table = table_of<T, T>(values_row<op, T, T>);
  return table.data();
}
template <Unary op, class T>
const accumulate_t<T>* derivatives_of() {
  static const std::vector<accumulate_t<T>> table =
      table_of<accumulate_t<T>, T>(derivatives_row<op, T, accumulate_t<T>>);
  return table.data();
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

// Element i of a run with this stride, as a function of i. A repeated element is read once.
template <class T, class Stride>
auto elements_of(const T* x, Stride stride) {
  if constexpr (std::same_as<Stride, std::integral_constant<std::int64_t, 0>>) {
    return [value = *x](std::int64_t) { return value; };
  } else {
    return [x, stride](std::int64_t i) { return x[i * stride]; };
  }
}

// Comparing and choosing whole words, the compiler vectorises loops over 16-bit types too.
template <class T>
bool is_set(T mask) {
  if constexpr (sizeof(T) == 2) {
    return (mask.bits & 0x7fff) != 0;
  } else {
    return mask != 0;
  }
}
template <class T>
T choose_word(bool condition, T a, T b) {
  if constexpr (sizeof(T) == 2) {
    T chosen;
    chosen.bits = condition ? a.bits : b.bits;
    return chosen;
  } else {
    return condition ? a : b;
  }
}

// One run of y = mask ? a : b. The compiler vectorises it if strides are constants.
template <class T, class A, class B>
void where_run(const T* mask, std::int64_t mask_stride, const T* a, A a_stride, const T* b, B b_stride, T* y,
               std::int64_t n) {
  const auto left = elements_of(a, a_stride);
  const auto right = elements_of(b, b_stride);
  const auto choose = [&](auto stride) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) y[i] = choose_word(is_set(mask[i * stride]), left(i), right(i));
  };
  if (mask_stride == 1) return choose(std::integral_constant<std::int64_t, 1>());
  choose(mask_stride);
}

}  // namespace

template <class T>
UnaryRow<T> unary_row(Unary op) {
  return visit(op, [](auto chosen) -> UnaryRow<T> { return values_row<decltype(chosen)::value, T, T>; });
}

template <class T>
UnaryBackwardRow<T> unary_backward_row(Unary op) {
  return visit(op, [](auto chosen) -> UnaryBackwardRow<T> {
    return [](std::int64_t n, const T* x, const T* dy, T* dx) {
      map_function<decltype(chosen)::value>(
          n, [](auto v, auto d) { return Formula<decltype(chosen)::value>::derivative(Arithmetic(), v) * d; }, dx, x,
          dy);
    };
  });
}

template <class T>
UnaryRow<T> unary_row(Unary op, std::int64_t elements) {
  if constexpr (sizeof(T) == 2) {
    if (elements >= table_from)
      return visit(op, [](auto chosen) -> UnaryRow<T> {
        if constexpr (Formula<decltype(chosen)::value>::cheap) {
          return unary_row<T>(decltype(chosen)::value);
        } else {
          values_of<decltype(chosen)::value, T>();  // before threads ask for it
          return [](std::int64_t n, const T* x, T* y) {
            const T* const table = values_of<decltype(chosen)::value, T>();
            for (std::int64_t i = 0; i < n; ++i) y[i] = table[x[i].bits];
          };
        }
      });
  }
  return unary_row<T>(op);
}

template <class T>
UnaryBackwardRow<T> unary_backward_row(Unary op, std::int64_t elements) {
  if constexpr (sizeof(T) == 2) {
    if (elements >= table_from)
      return visit(op, [](auto chosen) -> UnaryBackwardRow<T> {
        if constexpr (Formula<decltype(chosen)::value>::cheap) {
          return unary_backward_row<T>(decltype(chosen)::value);
        } else {
          derivatives_of<decltype(chosen)::value, T>();
          return [](std::int64_t n, const T* x, const T* dy, T* dx) {
            const float* const table = derivatives_of<decltype(chosen)::value, T>();
            constexpr std::int64_t width = 64;  // derivatives are looked up, and then multiplied as vectors
            float derivative[width];
            for (std::int64_t i = 0; i < n; i += width) {
              const std::int64_t length = std::min(width, n - i);
              for (std::int64_t k = 0; k < length; ++k) derivative[k] = table[x[i + k].bits];
              map_vectors(
                  length, [](auto f, auto d) { return f * d; }, dx + i, derivative, dy + i);
            }
          };
        }
      });
  }
  return unary_backward_row<T>(op);
}

#define INSTANTIATE(T)                                       \
  template UnaryRow<T> unary_row<T>(Unary);                  \
  template UnaryRow<T> unary_row<T>(Unary, std::int64_t);    \
  template UnaryBackwardRow<T> unary_backward_row<T>(Unary); \
  template UnaryBackwardRow<T> unary_backward_row<T>(Unary, std::int64_t);
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
    const UnaryRow<T> row = unary_row<T>(op, x.count());
    parallel_elements(x.count(), grain_of(op),
                      [&](std::int64_t begin, std::int64_t end) { row(end - begin, from + begin, to + begin); });
  });
}

void unary_backward(Unary op, const Tensor& x, const Tensor& dy, Tensor& dx) {
  visit_floating(x.dtype(), "unary_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *input = x.data<T>(), *from = dy.data<T>();
    T* to = dx.data<T>();
    const UnaryBackwardRow<T> row = unary_backward_row<T>(op, x.count());
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
      write_elements(y, arithmetic_grain, to, [&](std::int64_t begin, std::int64_t end, T* place) {
        for_runs(layout, begin, end, [&](const std::array<std::int64_t, 3>& at, std::int64_t n) {
          binary_run<decltype(chosen)::value>(left + at[0], a_stride, right + at[1], b_stride, place + at[2] - begin,
                                              n);
        });
      });
    });
  });
}

void where(const Tensor& mask, const Tensor& a, const Tensor& b, Tensor& y) {
  if (y.count() == 0) return;
  visit_floating(y.dtype(), "where", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T *condition = mask.data<T>(), *left = a.data<T>(), *right = b.data<T>();
    T* to = y.data<T>();
    const auto layout =
        merge_dims<4>(y.shape(), {mask.strides(), a.strides(), b.strides(), row_major_strides(y.shape())});
    const std::int64_t m = layout.inner_stride(0), p = layout.inner_stride(1), q = layout.inner_stride(2);
    const auto with_strides = [&](auto a_stride, auto b_stride) {
      write_elements(y, arithmetic_grain, to, [&](std::int64_t begin, std::int64_t end, T* place) {
        for_runs(layout, begin, end, [&](const std::array<std::int64_t, 4>& at, std::int64_t n) {
          where_run(condition + at[0], m, left + at[1], a_stride, right + at[2], b_stride, place + at[3] - begin, n);
        });
      });
    };
    constexpr std::integral_constant<std::int64_t, 0> zero;
    constexpr std::integral_constant<std::int64_t, 1> one;
    if (p == 1 && q == 1) return with_strides(one, one);
    if (p == 1 && q == 0) return with_strides(one, zero);
    if (p == 0 && q == 1) return with_strides(zero, one);
    with_strides(p, q);
  });
}

void clamp(double low, double high, const Tensor& x, const Tensor& y) {
  visit_floating(x.dtype(), "clamp", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const A least = widen(static_cast<T>(static_cast<A>(low))), most = widen(static_cast<T>(static_cast<A>(high)));
    const T* from = x.data<T>();
    T* to = y.data<T>();
    write_elements(y, arithmetic_grain, to, [&](std::int64_t begin, std::int64_t end, T* place) {
      map<A>(
          end - begin,
          [least, most](A v) {  // as the kernels of maximum and minimum choose between equal numbers; NaN stays
            const A w = v <= least ? least : v;
            return w >= most ? most : w;
          },
          place, from + begin);
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
      if (b == 0)
        return write_elements(y, arithmetic_grain, to, [&](std::int64_t begin, std::int64_t end, Y* place) {
          map<A>(
              end - begin, [p](A u) { return p * u; }, place, from + begin);
        });
      parallel_elements(y.count(), arithmetic_grain, [&](std::int64_t begin, std::int64_t end) {
        map<A>(
            end - begin, [p, q](A u, A v) { return p * u + q * v; }, to + begin, from + begin, to + begin);
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

}  // namespace cpu
}  // namespace trireme
