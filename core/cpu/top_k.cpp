// The columns of the K largest of each row, for a router of experts.
// One pass over a row, which keeps the best so far in order: most values are compared with the last of them alone.
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

template <class T>
void choose_largest(const T* x, std::int64_t width, std::int32_t* chosen, std::int64_t k) {
  using A = accumulate_t<T>;
  std::int64_t count = 0;
  for (std::int64_t column = 0; column < width; ++column) {
    const A value = static_cast<A>(x[column]);
    std::int64_t place = count;
    while (place > 0 && larger(value, static_cast<A>(x[chosen[place - 1]]))) --place;
    if (place == k) continue;
    if (count < k) ++count;
    for (std::int64_t i = count - 1; i > place; --i) chosen[i] = chosen[i - 1];
    chosen[place] = static_cast<std::int32_t>(column);
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
