#include "core/cpu/max_pool.h"

#include <vector>

#include "core/cpu/loops.h"
#include "core/cpu/partition.h"

namespace trireme::cpu {
namespace {

constexpr std::int64_t pool_grain = 1 << 14;  // elements worth a thread

/// The outputs [begin, end) along one dim for which element k of the kernel is inside the input.
IndexRange inside(std::int64_t k, std::int64_t extent, std::int64_t outputs, std::int64_t stride, std::int64_t padding,
                  std::int64_t dilation) {
  const std::int64_t shift = padding - k * dilation;  // output i reads element i * stride - shift
  const std::int64_t begin = shift <= 0 ? 0 : divide_up(shift, stride);
  const std::int64_t end = extent + shift <= 0 ? 0 : divide_up(extent + shift, stride);
  return {std::min(begin, outputs), std::clamp<std::int64_t>(end, std::min(begin, outputs), outputs)};
}

/// best[i] = max(best[i], x[i * stride]) for i < n; chosen[i]: its place, first + i * stride.
template <class T, class A>
void keep_larger(const T* x, std::int64_t n, std::int64_t stride, std::int32_t first, A* best, std::int32_t* chosen) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    const A value = widen(x[i * stride]), old = best[i];
    const bool is_larger = (value > old) | ((value != value) & (old == old));  // NOLINT(misc-redundant-expression)
    best[i] = is_larger ? value : old;
    chosen[i] = is_larger ? first + static_cast<std::int32_t>(i * stride) : chosen[i];
  }
}

template <class T>
void pool_plane(const T* x, const ConvGeometry& g, std::vector<accumulate_t<T>>& best, T* y, std::int32_t* chosen) {
  using A = accumulate_t<T>;
  const std::int64_t width = g.out_width();
  for (std::int64_t row = 0; row < g.out_height(); ++row, y += width, chosen += width) {
    std::fill(best.begin(), best.end(), -std::numeric_limits<A>::infinity());
    const std::int64_t top = row * g.stride[0] - g.padding[0];
    // If no element is larger than -infinity, the window's first one is chosen.
    const std::int64_t first_row = top >= 0 ? top : top + divide_up(-top, g.dilation[0]) * g.dilation[0];
    for (std::int64_t i = 0; i < width; ++i) {
      const std::int64_t left = i * g.stride[1] - g.padding[1];
      const std::int64_t column = left >= 0 ? left : left + divide_up(-left, g.dilation[1]) * g.dilation[1];
      chosen[i] = static_cast<std::int32_t>(first_row * g.width + column);
    }
    for (std::int64_t r = 0; r < g.kernel_height; ++r) {
      const std::int64_t source = top + r * g.dilation[0];
      if (source < 0 || source >= g.height) continue;
      for (std::int64_t s = 0; s < g.kernel_width; ++s) {
        const IndexRange out = inside(s, g.width, width, g.stride[1], g.padding[1], g.dilation[1]);
        const std::int64_t from = source * g.width + out.begin * g.stride[1] - g.padding[1] + s * g.dilation[1];
        if (out.size() > 0)
          keep_larger(x + from, out.size(), g.stride[1], static_cast<std::int32_t>(from), best.data() + out.begin,
                      chosen + out.begin);
      }
    }
    for (std::int64_t i = 0; i < width; ++i) y[i] = static_cast<T>(best[static_cast<std::size_t>(i)]);
  }
}

/// body(plane) for all planes of x.
template <class Body>
void for_planes(const ConvGeometry& g, Body&& body) {
  parallel_for(g.batch * g.in_channels, row_grain(g.height * g.width, pool_grain), body);
}

}  // namespace

void max_pool(const Tensor& x, const ConvGeometry& g, Tensor& y, Tensor& chosen) {
  auto* const places = chosen.data<std::int32_t>();
  visit_floating(x.dtype(), "max_pool2d", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const from = x.data<T>();
    T* const to = y.data<T>();
    const std::int64_t in = g.height * g.width, out = g.out_positions();
    for_planes(g, [&](std::int64_t begin, std::int64_t end) {
      std::vector<accumulate_t<T>> best(static_cast<std::size_t>(g.out_width()));
      for (std::int64_t i = begin; i < end; ++i) pool_plane(from + i * in, g, best, to + i * out, places + i * out);
    });
  });
}

void max_pool_backward(const Tensor& dy, const Tensor& chosen, const ConvGeometry& g, Tensor& dx) {
  const auto* const places = chosen.data<std::int32_t>();
  visit_floating(dy.dtype(), "max_pool2d", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using A = accumulate_t<T>;
    const T* const from = dy.data<T>();
    T* const to = dx.data<T>();
    const std::int64_t in = g.height * g.width, out = g.out_positions();
    for_planes(g, [&](std::int64_t begin, std::int64_t end) {
      std::vector<A> sums(static_cast<std::size_t>(in));
      for (std::int64_t plane = begin; plane < end; ++plane) {
        std::fill(sums.begin(), sums.end(), A{0});
        for (std::int64_t i = plane * out; i < (plane + 1) * out; ++i)
          sums[static_cast<std::size_t>(places[i])] += widen(from[i]);
        for (std::int64_t i = 0; i < in; ++i) to[plane * in + i] = static_cast<T>(sums[static_cast<std::size_t>(i)]);
      }
    });
  });
}

}  // namespace trireme::cpu
