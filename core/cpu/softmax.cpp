// Softmax over the last dim, and its gradient. The maximum is subtracted first, so large inputs stay finite.
// Bytes: a row is read once from memory, twice more from cache, and written once. FLOPs: one exp per element.
#include <vector>

#include "core/cpu/kernels.h"
#include "core/cpu/lanes.h"
#include "core/cpu/vector_math.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t softmax_grain = 4096;  // elements worth a thread

}  // namespace

void softmax(const Tensor& x, Tensor& y) {
  if (x.count() == 0) return;
  const std::int64_t columns = x.size(-1), rows = x.count() / columns;
  visit_floating(x.dtype(), "softmax", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    parallel_for(rows, row_grain(columns, softmax_grain), [&](std::int64_t begin, std::int64_t end) {
      std::vector<A> row(static_cast<std::size_t>(columns));  // exponentials before they are rounded to T
      for (std::int64_t r = begin; r < end; ++r) {
        const A top = maximum(from + r * columns, columns);
        map<A>(columns, [top](A v) { return exp_approx(v - top); }, row.data(), from + r * columns);
        const A scale = A{1} / sum(row.data(), columns);
        map<A>(columns, [scale](A v) { return v * scale; }, to + r * columns, row.data());
      }
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
        const A mean = sum_of<A>(columns, [](auto u, auto v) { return u * v; }, p, d);
        map<A>(columns, [mean](A u, A v) { return u * (v - mean); }, to + r * columns, p, d);
      }
    });
  });
}

}  // namespace trireme::cpu
