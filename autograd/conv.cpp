#include "autograd/conv.h"

#include "autograd/conv_by_positions.h"
#include "autograd/deferred.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"
#include "core/cpu/channel_kernels.h"

namespace trireme {
namespace {

Tensor conv_outputs(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvGeometry& g) {
  if (x.device() == Device::cpu) {
    Tensor y = Tensor::empty({g.batch, g.out_channels, g.out_height(), g.out_width()}, x.dtype());
    cpu::channel_kernels().conv2d(x, weight, bias.defined() ? contiguous(bias) : bias, g, y);
    return y;
  }
  Tensor y = conv2d_by_positions(x, weight, g);
  if (bias.defined())
    kernels(x.device())
        .binary(Binary::add, y, view::expand(view::reshape(contiguous(bias), {1, g.out_channels, 1, 1}), y.shape()), y);
  return y;
}

Tensor conv_input_gradient(const Tensor& dy, const Tensor& weight, const ConvGeometry& g) {
  if (dy.device() != Device::cpu) return conv2d_input_gradient_by_positions(dy, weight, g);
  Tensor dx = Tensor::empty({g.batch, g.in_channels, g.height, g.width}, dy.dtype());
  cpu::channel_kernels().conv2d_input_gradient(dy, weight, g, dx);
  return dx;
}

Tensor conv_weight_gradient(const Tensor& x, const Tensor& dy, const ConvGeometry& g, DType dtype) {
  if (dy.device() != Device::cpu) return conv2d_weight_gradient_by_positions(x, dy, g, dtype);
  Tensor dw = Tensor::empty({g.out_channels, g.in_group(), g.kernel_height, g.kernel_width}, dtype);
  cpu::channel_kernels().conv2d_weight_gradient(x, dy, g, dw);
  return dw;
}

/// y = x * W + bias;  dx = dy * W with strides and kernel reversed, dW = dy * x over samples and positions, dbias = sum
/// of dy over them
struct Conv2d : Op {
  static constexpr const char* name = "conv2d";
  ConvGeometry g;
  SavedInput input;  // [N, C, H, W]
  Tensor weight;     // [O, C / groups, R, S]
  Shape bias_shape;

  Tensor forward(const Tensor& x, const Tensor& w, const Tensor& bias) {
    input = SavedInput(*this, 0, x);
    weight = contiguous(w);
    return conv_outputs(contiguous(x), weight, bias, g);
  }
  Gradients backward(const Tensor& gradient) const {
    const Tensor dy = contiguous(gradient);
    Gradients gradients(3);
    if (needs(0)) gradients[0] = conv_input_gradient(dy, weight, g);
    if (needs(1)) {
      const DType dtype = gradient_dtype(1, weight.dtype());
      const auto dw = [x = contiguous(input.get()), dy, sizes = g, dtype] {
        return conv_weight_gradient(x, dy, sizes, dtype);
      };
      if (Leaf* leaf = leaves[1]) {
        add_weight_gradient(*leaf, [leaf, dw] { leaf->accumulate(dw()); });
      } else {
        gradients[1] = dw();
      }
    }
    if (needs(2)) {
      Tensor sum = Tensor::empty({1, g.out_channels, 1, 1}, gradient_dtype(2, dy.dtype()), dy.device());
      kernels(dy.device()).reduce(Reduction::sum, dy, sum);
      gradients[2] = view::reshape(sum, bias_shape);
    }
    return gradients;
  }
};

void check_conv(const char* where, const Tensor& x, const Tensor& weight, const Tensor& bias, int dims,
                std::int64_t groups) {
  require_floating(where, x);
  require_floating(where, weight);
  require(x.dims() == dims && weight.dims() == dims, where,
          "an input {} and a weight {}; expected {} dims each: samples, channels, then space; reshape them", x.shape(),
          weight.shape(), dims);
  require(groups >= 1 && x.size(1) % groups == 0 && weight.size(0) % groups == 0 &&
              x.size(1) / groups == weight.size(1) && weight.size(0) > 0,
          where,
          "an input {} and a weight {} with {} groups; expected groups that divide input and output channels, and a "
          "weight with the input channels of one group, [O, C / groups, ..]",
          x.shape(), weight.shape(), groups);
  require(x.dtype() == weight.dtype(), where, "dtypes differ: input {}, weight {}; expected one dtype; cast_to it",
          name(x.dtype()), name(weight.dtype()));
  check_bias_dtype(where, bias, x);
  require(!bias.defined() || bias.shape() == Shape{weight.size(0)}, where,
          "a bias {} for a weight {}; expected [{}], one element per output channel",
          bias.defined() ? bias.shape() : Shape{}, weight.shape(), weight.size(0));
  require_one_device(where, {&x, &weight, &bias});
}

void check_conv_extents(const char* where, const ConvGeometry& g) {
  require_extents(where, {g.kernel_height, g.kernel_width});
  for (std::size_t i = 0; i < 2; ++i) {
    require_extents(where, {g.stride[i], g.padding[i], g.dilation[i]});
    require(g.stride[i] >= 1 && g.dilation[i] >= 1 && g.padding[i] >= 0, where,
            "stride {}, padding {}, dilation {}; expected a stride and a dilation of at least 1 and a padding of at "
            "least 0",
            g.stride[i], g.padding[i], g.dilation[i]);
  }
  require(g.kernel_positions() > 0 && g.out_height() > 0 && g.out_width() > 0, where,
          "a kernel of {} x {} with dilation {} x {} does not fit into an input of {} x {} with padding {} x {}; "
          "expected a kernel that is not larger than the padded input; use more padding or a smaller kernel",
          g.kernel_height, g.kernel_width, g.dilation[0], g.dilation[1], g.height, g.width, g.padding[0], g.padding[1]);
}

/// Checked but for its extents; `where`: what the user called.
Tensor convolve(const char* where, const Tensor& x, const Tensor& weight, const Tensor& bias,
                const Conv2dOptions& options) {
  Conv2d op;
  op.g = {.batch = x.size(0),
          .in_channels = x.size(1),
          .height = x.size(2),
          .width = x.size(3),
          .out_channels = weight.size(0),
          .kernel_height = weight.size(2),
          .kernel_width = weight.size(3),
          .groups = options.groups,
          .stride = options.stride,
          .padding = options.padding,
          .dilation = options.dilation};
  check_conv_extents(where, op.g);
  // Any longer stride gives one output, too. Kernels cut their work into strides, so they get the shortest of these.
  op.g.stride[0] = std::min(op.g.stride[0], op.g.height + 2 * op.g.padding[0]);
  op.g.stride[1] = std::min(op.g.stride[1], op.g.width + 2 * op.g.padding[1]);
  op.bias_shape = bias.shape();
  return apply(std::move(op), x, weight, bias);
}

}  // namespace

Tensor conv2d(const Tensor& input, const Tensor& kernels, const Tensor& shift, const Conv2dOptions& options) {
  const Tensor x = for_product(input), weight = for_product(kernels), bias = for_product(shift);
  check_conv(Conv2d::name, x, weight, bias, 4, options.groups);
  return convolve(Conv2d::name, x, weight, bias, options);
}

Tensor conv1d(const Tensor& input, const Tensor& kernels, const Tensor& shift, const Conv1dOptions& options) {
  const Tensor x = for_product(input), weight = for_product(kernels), bias = for_product(shift);
  check_conv("conv1d", x, weight, bias, 3, options.groups);
  const Tensor y = convolve("conv1d", reshape(x, {x.size(0), x.size(1), 1, x.size(2)}),
                            reshape(weight, {weight.size(0), weight.size(1), 1, weight.size(2)}), bias,
                            {.stride = {1, options.stride},
                             .padding = {0, options.padding},
                             .dilation = {1, options.dilation},
                             .groups = options.groups});
  return reshape(y, {y.size(0), y.size(1), y.size(3)});
}

}  // namespace trireme
