// Softmax and log_softmax over the last dim, and their gradients. The maximum is subtracted first, so large inputs stay
// finite.
// Bytes: each operand read once, the result written once, a row at a time, the row's further passes in cache. FLOPs:
// one exp per element. The exponentials of 16-bit types are kept in f32 until their sum is known.
// Read next: core/cpu/vector_rows.h.
#include <cmath>
#include <vector>

#include "core/cpu/channel_kernels.h"
#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"
#include "core/cpu/partition.h"
#include "core/cpu/streaming.h"
#include "core/cpu/vector_rows.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t softmax_grain = 4096;  // elements worth a thread

/// y = exp(x - m) / sum. `room` [n] keeps the exponentials until the sum is known; it may be y, if y has their type.
template <class T>
void softmax_row(std::int64_t n, const T* x, T* y, accumulate_t<T>* room) {
  using A = accumulate_t<T>;
  const A scale = A{1} / sum_of_exponentials<true>(n, x, maximum(x, n), room);
  map_vectors(
      n, [scale](auto e) { return e * scale; }, y, room);
}

/// Calls row(n, offset) for all rows of x: their length, and where they begin.
template <class Row>
void for_rows(const Tensor& x, Row&& row) {
  const std::int64_t columns = x.size(-1), rows = x.count() / columns;
  parallel_for(rows, row_grain(columns, softmax_grain), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) row(columns, r * columns);
  });
}

/// The same for a kernel that does little arithmetic: row(n, offset, place) writes the row of y to `place`, and rows of
/// a large y go past the caches.
template <class T, class Row>
void write_rows(const Tensor& y, T* elements, Row&& row) {
  constexpr std::int64_t longest = 256 << 10;  // bytes of a row that stay in a second-level cache
  const std::int64_t columns = y.size(-1), rows = y.count() / columns, bytes = y.bytes() / rows;
  if (sizeof(T) < 4 || bytes > longest || !is_streamed(y.bytes()))
    return for_rows(y, [&](std::int64_t n, std::int64_t at) { row(n, at, elements + at); });
  parallel_for(rows, row_grain(columns, softmax_grain), [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> result(static_cast<std::size_t>(columns));
    for (std::int64_t r = begin; r < end; ++r) {
      row(columns, r * columns, result.data());
      stream(result.data(), elements + r * columns, bytes);
    }
    end_of_stream();
  });
}

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
      std::vector<A> exponentials(static_cast<std::size_t>(std::same_as<T, A> ? 0 : columns));
      for (std::int64_t r = begin; r < end; ++r) {
        T* const result = to + r * columns;
        if constexpr (std::same_as<T, A>)
          softmax_row(columns, from + r * columns, result, result);
        else
          softmax_row(columns, from + r * columns, result, exponentials.data());
      }
    });
  });
}

void softmax_backward(const Tensor& y, const Tensor& dy, Tensor& dx) {
  if (y.count() == 0) return;
  visit_floating(y.dtype(), "softmax_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const T *probability = y.data<T>(), *from = dy.data<T>();
    write_rows(dx, dx.data<T>(), [&](std::int64_t n, std::int64_t row, T* place) {
      const T *p = probability + row, *d = from + row;
      const A mean = sum_of<A>(
          n, [](auto u, auto v) { return u * v; }, p, d);
      map_vectors(
          n, [mean](auto u, auto v) { return u * (v - mean); }, place, p, d);
    });
  });
}

void log_softmax(const Tensor& x, const Tensor& y) {
  if (x.count() == 0) return;
  visit_floating(x.dtype(), "log_softmax", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    for_rows(x, [&](std::int64_t n, std::int64_t row) {
      const A top = maximum(from + row, n);
      const A log = std::log(sum_of_exponentials<false>(n, from + row, top, static_cast<A*>(nullptr)));
      map_vectors(
          n, [top, log](auto v) { return (v - top) - log; }, to + row, from + row);
    });
  });
}

void log_softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) {
  if (y.count() == 0) return;
  visit_floating(y.dtype(), "log_softmax_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const T *logarithm = y.data<T>(), *from = dy.data<T>();
    T* to = dx.data<T>();
    for_rows(y, [&](std::int64_t n, std::int64_t row) {
      const A total = sum_of<A>(
          n, [](auto v) { return v; }, from + row);
      map_vectors(
          n, [total](auto l, auto d) { return d - exp_approx(l) * total; }, to + row, logarithm + row, from + row);
    });
  });
}

}  // namespace trireme::cpu
