// Softmax over the last dim, and its gradient. The maximum is subtracted first, so large inputs stay finite.
// Bytes: forward reads x and writes y, a row at a time, the row's further passes in cache. FLOPs: one exp per element,
// two for the 16-bit types, whose exponentials must be summed before they are rounded.
#include "core/cpu/exponentials.h"
#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"
#include "core/cpu/vector_math.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t softmax_grain = 4096;  // elements worth a thread

template <class T>
void softmax_row(const T* x, std::int64_t n, T* y) {
  using A = accumulate_t<T>;
  if constexpr (std::same_as<T, A>) {  // y itself holds the exponentials until their sum is known
    const A top = maximum(x, n);
    map<A>(
        n, [top](A v) { return exp_approx(v - top); }, y, x);
    const A scale = A{1} / sum(y, n);
    map<A>(
        n, [scale](A v) { return v * scale; }, y, y);
  } else {
    const ExpStats<A> stats = exp_stats(x, n);
    const A top = stats.maximum, scale = A{1} / stats.sum_exp;
    map<A>(
        n, [top, scale](A v) { return exp_approx(v - top) * scale; }, y, x);
  }
}

}  // namespace

void softmax(const Tensor& x, Tensor& y) {
  if (x.count() == 0) return;
  const std::int64_t columns = x.size(-1), rows = x.count() / columns;
  visit_floating(x.dtype(), "softmax", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    parallel_for(rows, row_grain(columns, softmax_grain), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) softmax_row(from + r * columns, columns, to + r * columns);
    });
  });
}

void softmax_backward(const Tensor& y, const Tensor& dy, Tensor& dx) {
  if (y.count() == 0) return;
  const std::int64_t columns = y.size(-1), rows = y.count() / columns;
  visit_floating(y.dtype(), "softmax_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const T *probability = y.data<T>(), *from = dy.data<T>();
    T* to = dx.data<T>();
    parallel_for(rows, row_grain(columns, softmax_grain), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) {
        const T *p = probability + r * columns, *d = from + r * columns;
        const A mean = sum_of<A>(
            columns, [](auto u, auto v) { return u * v; }, p, d);
        map<A>(
            columns, [mean](A u, A v) { return u * (v - mean); }, to + r * columns, p, d);
      }
    });
  });
}

}  // namespace trireme::cpu
