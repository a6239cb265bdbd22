// Fill and copy: what moves elements without arithmetic, between any dtypes and strides.
// Bytes: each element read once and written once; a dense copy is memcpy.
#include <cstring>

#include "core/cpu/kernels.h"
#include "core/cpu/lanes.h"
#include "core/cpu/strided.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t copy_grain = 32768;  // elements: a thread moves fewer than this faster than a second one wakes up

// The 16-bit formats convert through float; everything else converts as C++ does.
template <class To, class From>
To convert(From x) {
  return static_cast<To>(widen(x));
}
template <class To, std::integral From>
To convert(From x) {
  if constexpr (std::integral<To> || std::floating_point<To>) {
    return static_cast<To>(x);
  } else {
    return static_cast<To>(static_cast<float>(x));
  }
}
template <class To>
  requires(std::same_as<To, bf16> || std::same_as<To, f16>)
To convert(double x) {
  return static_cast<To>(static_cast<float>(x));
}

template <class To, class From>
void convert_run(const From* x, std::int64_t x_stride, To* y, std::int64_t y_stride, std::int64_t n) {
  if (x_stride == 1 && y_stride == 1) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i * y_stride] = convert<To>(x[i * x_stride]);
  }
}

// One type per element size is enough to move elements unchanged.
template <class Word>
void move_run(const Word* x, std::int64_t x_stride, Word* y, std::int64_t y_stride, std::int64_t n) {
  if (x_stride == 1 && y_stride == 1) {
    std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(Word));
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i * y_stride] = x[i * x_stride];
  }
}

template <class Run>
void copy_runs(const Tensor& x, const Tensor& y, Run&& run) {
  const auto layout = merge_dims<2>(y.shape(), {x.strides(), y.strides()});
  const std::int64_t x_stride = layout.inner_stride(0), y_stride = layout.inner_stride(1);
  parallel_elements(y.count(), copy_grain, [&](std::int64_t begin, std::int64_t end) {
    for_runs(layout, begin, end, [&](const std::array<std::int64_t, 2>& at, std::int64_t n) {
      run(at[0], x_stride, at[1], y_stride, n);
    });
  });
}

template <class Word>
void move(const Tensor& x, Tensor& y) {
  const Word* from = static_cast<const Word*>(x.raw());
  Word* to = static_cast<Word*>(y.raw());
  copy_runs(x, y, [=](std::int64_t x_at, std::int64_t x_stride, std::int64_t y_at, std::int64_t y_stride, std::int64_t n) {
    move_run(from + x_at, x_stride, to + y_at, y_stride, n);
  });
}

}  // namespace

void fill(Tensor& y, double value) {
  visit_any(y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T element = convert<T>(value);
    T* to = y.data<T>();
    const auto layout = merge_dims<1>(y.shape(), {y.strides()});
    const std::int64_t stride = layout.inner_stride(0);
    parallel_elements(y.count(), copy_grain, [&](std::int64_t begin, std::int64_t end) {
      for_runs(layout, begin, end, [&](const std::array<std::int64_t, 1>& at, std::int64_t n) {
        if (stride == 1) {
          std::fill_n(to + at[0], n, element);
        } else {
          for (std::int64_t i = 0; i < n; ++i) to[at[0] + i * stride] = element;
        }
      });
    });
  });
}

void copy(const Tensor& x, Tensor& y) {
  if (y.count() == 0) return;
  if (x.dtype() == y.dtype()) {
    switch (size_of(x.dtype())) {
      case 1: return move<std::uint8_t>(x, y);
      case 2: return move<std::uint16_t>(x, y);
      case 4: return move<std::uint32_t>(x, y);
      default: return move<std::uint64_t>(x, y);
    }
  }
  visit_any(x.dtype(), [&](auto x_tag) {
    visit_any(y.dtype(), [&](auto y_tag) {
      using From = typename decltype(x_tag)::type;
      using To = typename decltype(y_tag)::type;
      if constexpr (!std::same_as<From, To>) {
        const From* from = x.data<From>();
        To* to = y.data<To>();
        copy_runs(x, y, [=](std::int64_t x_at, std::int64_t x_stride, std::int64_t y_at, std::int64_t y_stride,
                            std::int64_t n) { convert_run(from + x_at, x_stride, to + y_at, y_stride, n); });
      }
    });
  });
}

}  // namespace trireme::cpu
