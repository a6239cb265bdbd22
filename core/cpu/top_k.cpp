// The columns of the K largest of each row, for a router of experts and for argmax.
// One pass over a row, which keeps the best so far in order. Most values are compared with the last of them alone, a
// block of columns at once: a block with no larger value is passed over.
// Bytes: x once, and K i32 a row.
#include <cmath>

#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t top_k_grain = 4096;  // elements worth a thread

/// Whether a comes before b, if b has the lower column. A NaN is above any number.
template <class A>
bool larger(A a, A b) {
  return a > b || (std::isnan(a) && !std::isnan(b));
}

constexpr std::int64_t block_columns = 64;  // compared at once

/// Whether one of block_columns elements comes before `last`.
template <class T>
bool any_larger(const T* x, accumulate_t<T> last) {
  using A = accumulate_t<T>;
  int found = 0;  // without a branch: a vector of comparisons at once
  for (std::int64_t i = 0; i < block_columns; ++i) {
    const A value = widen(x[i]);
    found |= static_cast<int>(value > last) | static_cast<int>(value != value);  // NOLINT(misc-redundant-expression)
  }
  return found != 0 && !std::isnan(last);
}

/// Whether `count` columns are chosen, and none of the next block can take the place of one.
template <class T>
bool passes_over(const T* x, std::int64_t column, std::int64_t width, const std::int32_t* chosen, std::int64_t count,
                 std::int64_t k) {
  return count == k && column + block_columns <= width && !any_larger(x + column, widen(x[chosen[k - 1]]));
}

template <class T>
void choose_largest(const T* x, std::int64_t width, std::int32_t* chosen, std::int64_t k) {
  using A = accumulate_t<T>;
  std::int64_t count = 0;
  for (std::int64_t begin = 0; begin < width; begin += block_columns) {
    if (passes_over(x, begin, width, chosen, count, k)) continue;
    for (std::int64_t column = begin; column < std::min(width, begin + block_columns); ++column) {
      const A value = widen(x[column]);
      if (count == k && !larger(value, widen(x[chosen[k - 1]]))) continue;
      std::int64_t place = count < k ? count++ : k - 1;  // the last place is free, or its column leaves
      for (; place > 0 && larger(value, widen(x[chosen[place - 1]])); --place) chosen[place] = chosen[place - 1];
      chosen[place] = static_cast<std::int32_t>(column);
    }
  }
}

}  // namespace

void top_k(const Tensor& x, Tensor& chosen) {
  const std::int64_t rows = x.size(0), width = x.size(1), k = chosen.size(1);
  auto* to = chosen.data<std::int32_t>();
  visit_floating(x.dtype(), "top_k", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = x.data<T>();
    parallel_for(rows, row_grain(width, top_k_grain), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t r = begin; r < end; ++r) choose_largest(from + r * width, width, to + r * k, k);
    });
  });
}

}  // namespace trireme::cpu
