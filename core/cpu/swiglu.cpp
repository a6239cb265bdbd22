// SwiGLU (Shazeer 2020): silu(gate) up, and its gradient, on rows that hold the gate and then the other half.
// Bytes: x read and y written; backward reads x and dy and writes dx. FLOPs: one exp per output.
#include "core/cpu/kernels.h"
#include "core/cpu/loops.h"
#include "core/cpu/vector_math.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t swiglu_grain = 8192;  // outputs worth a thread

}  // namespace

void swiglu(const Tensor& x, Tensor& y) {
  if (y.count() == 0) return;
  const std::int64_t width = y.size(-1), rows = y.count() / width;
  visit_floating(x.dtype(), "swiglu", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    parallel_for(rows, row_grain(width, swiglu_grain), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T *gate = from + row * 2 * width, *up = gate + width;
        map<A>(
            width, [](A g, A u) { return g * sigmoid_approx(g) * u; }, to + row * width, gate, up);
      }
    });
  });
}

void swiglu_backward(const Tensor& x, const Tensor& dy, Tensor& dx) {
  if (dy.count() == 0) return;
  const std::int64_t width = dy.size(-1), rows = dy.count() / width;
  visit_floating(x.dtype(), "swiglu_backward", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const T *from = x.data<T>(), *gradient = dy.data<T>();
    T* to = dx.data<T>();
    parallel_for(rows, row_grain(width, swiglu_grain), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const T *gate = from + row * 2 * width, *up = gate + width, *d = gradient + row * width;
        T *dgate = to + row * 2 * width, *dup = dgate + width;
#pragma GCC ivdep
        for (std::int64_t i = 0; i < width; ++i) {
          const A g = widen(gate[i]), u = widen(up[i]), s = sigmoid_approx(g), out = widen(d[i]);
          dgate[i] = static_cast<T>(out * u * s * (A{1} + g * (A{1} - s)));
          dup[i] = static_cast<T>(out * g * s);
        }
      }
    });
  });
}

}  // namespace trireme::cpu
