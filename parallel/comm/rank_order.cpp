#include "parallel/comm/rank_order.h"

#include <algorithm>
#include <type_traits>

#include "core/parallel_for.h"

namespace trireme::comm {
namespace {

constexpr std::int64_t block = 2048;                 // elements whose running sums stay in the first-level cache
constexpr std::int64_t parallel_grain = 256 * 1024;  // elements that are worth waking another thread for

// Signed integers are added as unsigned: overflow then wraps instead of being undefined.
template <class T>
struct Sum {
  using type = T;
};
template <>
struct Sum<bf16> {
  using type = float;
};
template <>
struct Sum<f16> {
  using type = float;
};
template <>
struct Sum<std::int64_t> {
  using type = std::uint64_t;
};
template <>
struct Sum<std::int32_t> {
  using type = std::uint32_t;
};
template <class T>
using sum_t = typename Sum<T>::type;

// Loops over pointers that do not alias, so that they vectorise.
template <class To, class From>
void convert(To* __restrict to, const From* __restrict from, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(from[i]);
}

template <class A, class T>
void add(A* __restrict running, const T* __restrict next, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) running[i] = static_cast<A>(running[i] + static_cast<A>(next[i]));
}

template <class A, class T>
void keep_larger(A* __restrict running, const T* __restrict next, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const A a = running[i], b = static_cast<A>(next[i]);
    running[i] = b > a || b != b ? b : a;  // NOLINT(misc-redundant-expression): b != b finds NaN
  }
}

template <class A, class T, class Merge>
void combine_block(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
                   std::int64_t begin, std::int64_t n, const Merge& merge) {
  alignas(64) A running[block];
  convert(running, reinterpret_cast<const T*>(sources[0]) + begin, n);
  for (const std::byte* source : sources.subspan(1)) merge(running, reinterpret_cast<const T*>(source) + begin, n);
  for (std::byte* destination : destinations) convert(reinterpret_cast<T*>(destination) + begin, running, n);
}

}  // namespace

void combine(DType dtype, ReduceOp op, std::span<const std::byte* const> sources,
             std::span<std::byte* const> destinations, std::int64_t begin, std::int64_t end) {
  visit_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_for(end - begin, parallel_grain, [&](std::int64_t from, std::int64_t to) {
      // max must compare signed integers as signed, so its running value has T's own type (or float).
      using Max = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
      for (std::int64_t i = from; i < to; i += block) {
        const std::int64_t n = std::min(block, to - i);
        if (op == ReduceOp::sum) {
          combine_block<sum_t<T>, T>(sources, destinations, begin + i, n, add<sum_t<T>, T>);
        } else {
          combine_block<Max, T>(sources, destinations, begin + i, n, keep_larger<Max, T>);
        }
      }
    });
  });
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace trireme::comm
