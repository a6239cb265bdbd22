#include "autograd/pool.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"
#include "core/cpu/channel_kernels.h"

namespace trireme {
namespace {

/// y = the largest element of each window;  dx = the sum of the dy of the windows that chose the element
struct MaxPool2d : Op {
  static constexpr const char* name = "max_pool2d";
  ConvGeometry g;
  Tensor chosen;  // [N, C, OH, OW] i32
  Tensor forward(const Tensor& x) {
    Tensor y = Tensor::empty({g.batch, g.in_channels, g.out_height(), g.out_width()}, x.dtype());
    chosen = Tensor::empty(y.shape(), DType::i32);
    cpu::channel_kernels().max_pool(contiguous(x), g, y, chosen);
    return y;
  }
  Gradients backward(const Tensor& dy) const {
    Tensor dx = Tensor::empty({g.batch, g.in_channels, g.height, g.width}, dy.dtype());
    cpu::channel_kernels().max_pool_backward(contiguous(dy), chosen, g, dx);
    return {dx};
  }
};

/// y [N, C, OH, OW, R, S] = copies of the windows of x;  dx = the sum of dy over the windows that an element is in
struct Windows : Op {
  static constexpr const char* name = "windows";
  ConvGeometry g;
  double outside = 0;  // of the padding

  Shape padded_shape() const {
    return {g.batch, g.in_channels, g.height + 2 * g.padding[0], g.width + 2 * g.padding[1]};
  }
  Tensor without_padding(const Tensor& x) const {
    return view::slice(view::slice(x, 2, g.padding[0], g.height), 3, g.padding[1], g.width);
  }
  /// The windows as a view of a padded tensor; `r`, `s`: those elements of all windows only.
  Tensor seen(const Tensor& x) const {
    const Shape& n = x.strides();
    return x.as_strided(
        {g.batch, g.in_channels, g.out_height(), g.out_width(), g.kernel_height, g.kernel_width},
        {n[0], n[1], n[2] * g.stride[0], n[3] * g.stride[1], n[2] * g.dilation[0], n[3] * g.dilation[1]}, 0);
  }
  Tensor forward(const Tensor& x) const {
    const Tensor padded = Tensor::full(padded_shape(), outside, x.dtype(), x.device());
    Tensor inside = without_padding(padded);
    copy(x, inside);
    return contiguous(seen(padded));
  }
  Gradients backward(const Tensor& dy) const {
    const KernelTable& k = kernels(dy.device());
    const DType sums = accumulate_dtype(dy);
    const Tensor padded = Tensor::zeros(padded_shape(), sums, dy.device()), places = seen(padded);
    for (std::int64_t r = 0; r < g.kernel_height; ++r) {
      for (std::int64_t s = 0; s < g.kernel_width; ++s) {
        const auto at = [&](const Tensor& windows) { return view::select(view::select(windows, 5, s), 4, r); };
        Tensor place = at(places), sum = Tensor::empty(place.shape(), sums, dy.device());
        k.binary(Binary::add, place, cast(at(dy), sums), sum);
        copy(sum, place);
      }
    }
    return {contiguous(cast(without_padding(padded), dy.dtype()))};
  }
};

/// The sizes of a pooling of x; `stride` 0 is the kernel's extent.
ConvGeometry pooled(const char* where, const Tensor& x, Size2d kernel, Size2d stride, Size2d padding, Size2d dilation) {
  require_floating(where, x);
  require(x.dims() == 4, where, "an input {}; expected 4 dims, [N, C, H, W]; reshape it", x.shape());
  for (std::size_t i = 0; i < 2; ++i) {
    if (stride[i] == 0) stride[i] = kernel[i];
    require_extents(where, {kernel[i], stride[i], padding[i], dilation[i]});
    require(kernel[i] >= 1 && stride[i] >= 1 && dilation[i] >= 1 && padding[i] >= 0 && 2 * padding[i] <= kernel[i],
            where,
            "kernel {}, stride {}, padding {}, dilation {}; expected at least 1 each, and a padding from 0 to half of "
            "the kernel, so that each window has an element",
            kernel[i], stride[i], padding[i], dilation[i]);
  }
  ConvGeometry g{.batch = x.size(0),
                 .in_channels = x.size(1),
                 .height = x.size(2),
                 .width = x.size(3),
                 .out_channels = x.size(1),
                 .kernel_height = kernel[0],
                 .kernel_width = kernel[1],
                 .groups = 1,
                 .stride = stride,
                 .padding = padding,
                 .dilation = dilation};
  require(
      g.out_height() > 0 && g.out_width() > 0 && g.height * g.width <= INT32_MAX, where,
      "a window of {} x {} with dilation {} x {} does not fit into an input of {} x {} with padding {} x {}; expected "
      "one that is not larger than the padded input",
      kernel[0], kernel[1], dilation[0], dilation[1], g.height, g.width, padding[0], padding[1]);
  return g;
}

ConvGeometry max_pooled(const Tensor& x, const MaxPool2dOptions& o) {
  return pooled(MaxPool2d::name, x, o.kernel, o.stride, o.padding, o.dilation);
}

/// Elements [begin, end) of one dim.
struct Window {
  std::int64_t begin, end;
};
using WindowOf = std::function<Window(std::int64_t output)>;

/// x in the dtype of sums: a sum of 16-bit elements may exceed their range.
Tensor in_sums_dtype(const Tensor& x) { return cast_to(x, accumulate_dtype(x)); }

/// Sums over windows along one dim as a matrix [outputs, extent] of ones and zeros.
Tensor window_matrix(const Tensor& like, std::int64_t outputs, std::int64_t extent, const WindowOf& window) {
  const Tensor matrix = Tensor::zeros({outputs, extent}, DType::f32);
  for (std::int64_t i = 0; i < outputs; ++i)
    for (std::int64_t j = window(i).begin; j < window(i).end; ++j) matrix.data<float>()[i * extent + j] = 1;
  return cast(matrix, like.dtype()).to(like.device());
}

/// The sum over each window: windows are rectangles, so it is rows @ x @ columns^T.
Tensor window_sums(const Tensor& x, std::int64_t height, const WindowOf& rows, std::int64_t width,
                   const WindowOf& columns) {
  const Tensor by_column = matmul(x, transpose(window_matrix(x, width, x.size(3), columns), 0, 1));  // [N, C, H, OW]
  return matmul(window_matrix(x, height, x.size(2), rows), by_column);                               // [N, C, OH, OW]
}

/// [OH, OW]: the number of elements in each window.
Tensor window_counts(const Tensor& like, std::int64_t height, const WindowOf& rows, std::int64_t width,
                     const WindowOf& columns) {
  const Tensor counts = Tensor::empty({height, width}, DType::f64);
  for (std::int64_t i = 0; i < height; ++i)
    for (std::int64_t j = 0; j < width; ++j)
      counts.data<double>()[i * width + j] =
          static_cast<double>((rows(i).end - rows(i).begin) * (columns(j).end - columns(j).begin));
  return cast(counts, like.dtype()).to(like.device());
}

}  // namespace

Tensor max_pool2d(const Tensor& x, const MaxPool2dOptions& options) {
  MaxPool2d op;
  op.g = max_pooled(x, options);
  if (x.device() != Device::cpu) return max_pool2d_by_windows(x, options);
  return apply(std::move(op), x);
}

Tensor max_pool2d_by_windows(const Tensor& x, const MaxPool2dOptions& options) {
  Windows op;
  op.g = max_pooled(x, options);
  op.outside = -std::numeric_limits<double>::infinity();
  const ConvGeometry g = op.g;
  const std::int64_t rows = g.batch * g.in_channels * g.out_positions();
  const Tensor windows = reshape(apply(std::move(op), x), {rows, g.kernel_positions()});
  Tensor chosen = Tensor::empty({rows, 1}, DType::i32, x.device());
  kernels(x.device()).top_k(windows.detach(), chosen);
  return reshape(pick(windows, chosen), {g.batch, g.in_channels, g.out_height(), g.out_width()});
}

Tensor avg_pool2d(const Tensor& x, const AvgPool2dOptions& o) {
  const ConvGeometry g = pooled("avg_pool2d", x, o.kernel, o.stride, o.padding, {1, 1});
  const auto window = [&g](std::size_t dim, std::int64_t extent, std::int64_t kernel) -> WindowOf {
    return [stride = g.stride[dim], padding = g.padding[dim], extent, kernel](std::int64_t i) {
      const std::int64_t begin = i * stride - padding;
      return Window{std::max<std::int64_t>(begin, 0), std::min(begin + kernel, extent)};
    };
  };
  const WindowOf rows = window(0, g.height, g.kernel_height), columns = window(1, g.width, g.kernel_width);
  const Tensor sums = window_sums(in_sums_dtype(x), g.out_height(), rows, g.out_width(), columns);
  const Tensor means = o.count_include_pad ? scale(sums, 1.0 / static_cast<double>(g.kernel_positions()))
                                           : sums / window_counts(sums, g.out_height(), rows, g.out_width(), columns);
  return cast_to(means, x.dtype());
}

Tensor adaptive_avg_pool2d(const Tensor& x, Size2d size) {
  constexpr const char* where = "adaptive_avg_pool2d";
  require_floating(where, x);
  require(x.dims() == 4 && x.size(2) > 0 && x.size(3) > 0, where,
          "an input {}; expected 4 dims, [N, C, H, W], with elements in H and W; reshape it", x.shape());
  require(size[0] >= 1 && size[1] >= 1, where, "an output of {} x {}; expected at least 1 x 1", size[0], size[1]);
  if (size[0] == 1 && size[1] == 1)
    return reshape(mean(reshape(x, {x.size(0), x.size(1), x.size(2) * x.size(3)}), 2), {x.size(0), x.size(1), 1, 1});
  const auto window = [](std::int64_t extent, std::int64_t outputs) -> WindowOf {
    return [=](std::int64_t i) { return Window{i * extent / outputs, ((i + 1) * extent + outputs - 1) / outputs}; };
  };
  const WindowOf rows = window(x.size(2), size[0]), columns = window(x.size(3), size[1]);
  const Tensor sums = window_sums(in_sums_dtype(x), size[0], rows, size[1], columns);
  return cast_to(sums / window_counts(sums, size[0], rows, size[1], columns), x.dtype());
}

}  // namespace trireme
