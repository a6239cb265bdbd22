// Rotary positions (Su et al. 2021): every pair of a head's features is rotated by an angle that depends on the token's
// position. Bytes: x read, y written. FLOPs: 6 per pair; one sine and cosine per token and pair, for all
// heads.
#include <cmath>

#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t rope_grain = 16384;  // elements worth a thread

// cos in [0, T), sin in [T, 2 T): [2, T, Dh/2] in A. Angles in f64: at position 100000 an f32 angle is off by 0.004.
template <class A>
Tensor rotations(const Tensor& positions, std::int64_t half, const RopeOptions& options, bool inverse) {
  const std::int64_t tokens = positions.count();
  const Tensor table = workspace({2, tokens, half}, std::is_same_v<A, double> ? DType::f64 : DType::f32);
  const std::int32_t* position = positions.data<std::int32_t>();
  A *cosines = table.data<A>(), *sines = cosines + tokens * half;
  const double* given = options.frequencies.defined() ? options.frequencies.data<double>() : nullptr;
  parallel_for(tokens, row_grain(half, rope_grain / 16), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double frequency =
          given != nullptr ? given[i] : std::pow(options.base, -static_cast<double>(i) / static_cast<double>(half));
      for (std::int64_t t = begin; t < end; ++t) {
        const double angle = static_cast<double>(position[t]) * frequency;
        cosines[t * half + i] = static_cast<A>(std::cos(angle));
        sines[t * half + i] = static_cast<A>(inverse ? -std::sin(angle) : std::sin(angle));
      }
    }
  });
  return table;
}

// One head of one token. y may be x: both halves of a pair are read before either is written.
template <class T, class A = accumulate_t<T>>
void rotate(const T* x, const A* cosine, const A* sine, std::int64_t half, T* y) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < half; ++i) {
    const A a = widen(x[i]), b = widen(x[i + half]);
    y[i] = static_cast<T>(a * cosine[i] - b * sine[i]);
    y[i + half] = static_cast<T>(b * cosine[i] + a * sine[i]);
  }
}

// The same with pairs of neighbours.
template <class T, class A = accumulate_t<T>>
void rotate_neighbours(const T* x, const A* cosine, const A* sine, std::int64_t half, T* y) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < half; ++i) {
    const A a = widen(x[2 * i]), b = widen(x[2 * i + 1]);
    y[2 * i] = static_cast<T>(a * cosine[i] - b * sine[i]);
    y[2 * i + 1] = static_cast<T>(b * cosine[i] + a * sine[i]);
  }
}

}  // namespace

void rope(const Tensor& x, const Tensor& positions, const RopeOptions& options, bool inverse, Tensor& y) {
  if (x.count() == 0) return;
  const std::int64_t batch = x.size(0), tokens = x.size(1), heads = x.size(2), half = x.size(3) / 2;
  const std::int64_t given = positions.count();  // T or B T
  visit_floating(x.dtype(), "rope", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const Tensor table = rotations<A>(positions, half, options, inverse);
    const A *cosines = table.data<A>(), *sines = cosines + given * half;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    parallel_for(batch * tokens, row_grain(heads * 2 * half, rope_grain), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const A *cosine = cosines + row % given * half, *sine = sines + row % given * half;
        for (std::int64_t head = row * heads * 2 * half; head < (row + 1) * heads * 2 * half; head += 2 * half) {
          if (options.interleaved)
            rotate_neighbours(from + head, cosine, sine, half, to + head);
          else
            rotate(from + head, cosine, sine, half, to + head);
        }
      }
    });
  });
}

}  // namespace trireme::cpu
