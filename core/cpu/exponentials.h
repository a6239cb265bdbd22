// The maximum of a row and the sum of exp(x - maximum), in one pass over memory: what the cross-entropy normalises by.
// Online normalisation (Milakov and Gimelshein 2018), a block at a time: a block is still in L1 when it is read again.
// Read next: core/cpu/cross_entropy.cpp.
#pragma once

#include <cmath>
#include <limits>

#include "core/cpu/loops.h"
#include "core/cpu/vector_rows.h"

namespace trireme::cpu {

template <class A>
struct ExpStats {
  A maximum = -std::numeric_limits<A>::infinity();
  A sum_exp = 0;  ///< 0 when there are no elements, or all are -infinity
  A sum = 0;      ///< of the elements themselves
};

inline constexpr std::int64_t exp_block = 1024;

template <class T>
ExpStats<accumulate_t<T>> exp_stats(const T* x, std::int64_t n) {
  using A = accumulate_t<T>;
  ExpStats<A> stats;
  for (std::int64_t i = 0; i < n; i += exp_block) {
    const std::int64_t length = std::min(exp_block, n - i);
    const A top = larger(maximum(x + i, length), stats.maximum);
    stats.sum += sum(x + i, length);
    if (top == -std::numeric_limits<A>::infinity()) continue;
    if (top != stats.maximum) stats.sum_exp *= std::exp(stats.maximum - top);
    stats.maximum = top;
    stats.sum_exp += sum_of_exponentials<false>(length, x + i, top, static_cast<A*>(nullptr));
  }
  return stats;
}

}  // namespace trireme::cpu
