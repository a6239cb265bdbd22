#include "parallel/comm/rank_order.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "core/parallel_for.h"

namespace trireme::comm {
namespace {

constexpr std::int64_t block = 2048;                 // elements whose running sums stay in the first-level cache
constexpr std::int64_t parallel_grain = 256 * 1024;  // elements that are worth waking another thread for

// Integers add as unsigned ones: overflow wraps instead of being undefined.
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

template <class T>
void combine_block(ReduceOp op, std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
                   std::int64_t begin, std::int64_t n) {
  // max compares signed integers as what they are, so its running value has T's own type (or float).
  using Max = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
  const auto run = [&]<class A>(A, auto merge) {
    alignas(64) std::array<A, block> running;
    const T* first = reinterpret_cast<const T*>(sources[0]) + begin;
    for (std::int64_t i = 0; i < n; ++i) running[static_cast<std::size_t>(i)] = static_cast<A>(first[i]);
    for (std::size_t s = 1; s < sources.size(); ++s) {
      const T* next = reinterpret_cast<const T*>(sources[s]) + begin;
      for (std::int64_t i = 0; i < n; ++i) {
        A& value = running[static_cast<std::size_t>(i)];
        value = merge(value, static_cast<A>(next[i]));
      }
    }
    for (std::byte* destination : destinations) {
      T* out = reinterpret_cast<T*>(destination) + begin;
      for (std::int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(running[static_cast<std::size_t>(i)]);
    }
  };
  if (op == ReduceOp::sum) {
    run(sum_t<T>{}, [](auto a, auto b) { return static_cast<decltype(a)>(a + b); });
  } else {
    run(Max{}, [](auto a, auto b) { return b > a || b != b ? b : a; });
  }
}

}  // namespace

void combine(DType dtype, ReduceOp op, std::span<const std::byte* const> sources,
             std::span<std::byte* const> destinations, std::int64_t begin, std::int64_t end) {
  visit_any(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_for(end - begin, parallel_grain, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t i = from; i < to; i += block) {
        combine_block<T>(op, sources, destinations, begin + i, std::min(block, to - i));
      }
    });
  });
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace trireme::comm
