// Running sums along a dim, from its beginning or from its end.
// Bytes: x read once, y written once. FLOPs: one addition per element, each after the one before it.
#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t cumsum_grain = 16384;  // elements worth a thread
constexpr std::int64_t column_block = 256;    // columns summed together: their sums stay in L1
constexpr std::int64_t row_block = 8;         // rows summed together: an addition waits for the one before it

// f32 is summed in f64: in f32, the rounding errors of many additions would add up.
template <class T>
using Sum = std::conditional_t<sizeof(T) >= sizeof(float), double, float>;

/// `rows` rows of x [.., length], each summed along itself, a stretch at a time, so that conversions are vector code.
template <std::int64_t rows, class T>
void sum_rows(const T* x, std::int64_t length, bool reverse, T* y) {
  using A = accumulate_t<T>;
  constexpr std::int64_t stretch = 128;
  Sum<T> sums[rows] = {};
  A wide[rows][stretch];
  for (std::int64_t done = 0; done < length; done += stretch) {
    const std::int64_t n = std::min(stretch, length - done), first = reverse ? length - done - n : done;
    for (std::int64_t r = 0; r < rows; ++r)
      map<A>(
          n, [](A v) { return v; }, wide[r], x + r * length + first);
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t at = reverse ? n - 1 - i : i;
      for (std::int64_t r = 0; r < rows; ++r) wide[r][at] = static_cast<A>(sums[r] += static_cast<Sum<T>>(wide[r][at]));
    }
    for (std::int64_t r = 0; r < rows; ++r)
      map<A>(
          n, [](A v) { return v; }, y + r * length + first, wide[r]);
  }
}

/// Columns [first, first + columns) of one matrix x [length, width].
template <class T>
void sum_columns(const T* x, std::int64_t length, std::int64_t width, bool reverse, std::int64_t columns, T* y) {
  using S = Sum<T>;
  S sums[column_block] = {};
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t row = (reverse ? length - 1 - i : i) * width;
    map<S>(
        columns, [](auto sum, auto v) { return sum + v; }, sums, sums, x + row);
    map<S>(
        columns, [](auto sum) { return sum; }, y + row, sums);
  }
}

}  // namespace

void cumsum(const Tensor& x, bool reverse, Tensor& y) {
  if (x.count() == 0) return;
  const std::int64_t length = x.size(1), width = x.size(2), blocks = (width + column_block - 1) / column_block;
  visit_floating(x.dtype(), "cumsum", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const std::int64_t grain = row_grain(length * std::min(width, column_block), cumsum_grain);
    parallel_for(x.size(0) * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
      if (width == 1) {
        std::int64_t row = begin;
        for (; row + row_block <= end; row += row_block)
          sum_rows<row_block>(from + row * length, length, reverse, to + row * length);
        for (; row < end; ++row) sum_rows<1>(from + row * length, length, reverse, to + row * length);
        return;
      }
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t first = i % blocks * column_block, at = i / blocks * length * width + first;
        sum_columns(from + at, length, width, reverse, std::min(column_block, width - first), to + at);
      }
    });
  });
}

}  // namespace trireme::cpu
