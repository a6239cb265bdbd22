// Convolution: the CPU's form against the sum over kernel positions, which every device has; gradients against finite
// differences; dtypes, threads, the gradient of a parameter, refusals.
#include "autograd/conv.h"

#include "autograd/conv_by_positions.h"
#include "autograd/deferred.h"
#include "autograd/pool.h"
#include "core/cpu/conv.h"
#include "core/team.h"
#include "tests/support/errors.h"
#include "tests/support/gradcheck.h"

using namespace trireme;
using namespace trireme::testing;
using Inputs = std::vector<Tensor>;

namespace conv_test {
namespace {

/// Shapes that take each path: one sample a product or several, several blocks of depth, of columns and of channels.
std::vector<ConvGeometry> geometries() {
  return {
      {2, 3, 30, 31, 5, 3, 3, 1, {1, 1}, {1, 1}, {1, 1}},   {3, 40, 9, 10, 70, 3, 3, 1, {2, 2}, {1, 1}, {1, 1}},
      {5, 130, 7, 7, 40, 3, 3, 1, {1, 1}, {1, 1}, {1, 1}},  {2, 3, 41, 37, 20, 7, 7, 1, {2, 2}, {3, 3}, {1, 1}},
      {2, 36, 15, 17, 48, 1, 1, 1, {2, 2}, {0, 0}, {1, 1}}, {2, 34, 24, 25, 18, 1, 1, 1, {1, 1}, {0, 0}, {1, 1}},
      {2, 6, 26, 23, 9, 3, 2, 3, {1, 3}, {0, 2}, {2, 1}},   {3, 8, 6, 5, 8, 3, 3, 8, {1, 1}, {1, 1}, {1, 1}},
      {2, 2, 5, 40, 3, 1, 5, 1, {1, 4}, {0, 7}, {1, 2}},    {1, 1, 1, 1, 1, 1, 1, 1, {3, 3}, {0, 0}, {1, 1}},
      {2, 40, 29, 31, 9, 1, 3, 1, {2, 2}, {1, 0}, {1, 1}},  {1, 20, 25, 27, 130, 3, 3, 1, {1, 1}, {1, 1}, {1, 1}},
      {3, 5, 6, 7, 150, 5, 4, 1, {1, 2}, {2, 1}, {1, 1}},   {4, 34, 5, 9, 33, 3, 1, 1, {2, 2}, {1, 0}, {1, 1}},
  };
}

std::string text(const ConvGeometry& g) {
  return fmt::format("[{}, {}, {}, {}] * [{}, {}, {}, {}], stride {} {}", g.batch, g.in_channels, g.height, g.width,
                     g.out_channels, g.in_group(), g.kernel_height, g.kernel_width, g.stride[0], g.stride[1]);
}

struct Operands {
  Tensor x, weight, dy;
  Operands(const ConvGeometry& g, DType dtype)
      : x(random({g.batch, g.in_channels, g.height, g.width}, 1, dtype)),
        weight(random({g.out_channels, g.in_group(), g.kernel_height, g.kernel_width}, 2, dtype)),
        dy(random({g.batch, g.out_channels, g.out_height(), g.out_width()}, 3, dtype)) {}
};

/// y, dx, dw by core/cpu/conv.h; dw in `wide`.
Inputs by_cpu(const Operands& in, const ConvGeometry& g, DType wide) {
  Tensor y = Tensor::empty(in.dy.shape(), in.x.dtype()), dx = Tensor::empty(in.x.shape(), in.x.dtype());
  Tensor dw = Tensor::empty(in.weight.shape(), wide);
  cpu::conv2d(in.x, in.weight, {}, g, y);
  cpu::conv2d_input_gradient(in.dy, in.weight, g, dx);
  cpu::conv2d_weight_gradient(in.x, in.dy, g, dw);
  return {y, dx, dw};
}

Inputs by_positions(const Operands& in, const ConvGeometry& g, DType wide) {
  return {conv2d_by_positions(in.x, in.weight, g), conv2d_input_gradient_by_positions(in.dy, in.weight, g),
          conv2d_weight_gradient_by_positions(in.x, in.dy, g, wide)};
}

}  // namespace

TEST_CASE("convolution by products of patches is the sum over kernel positions, in every dtype") {
  const std::string names[] = {"y", "dx", "dw"};
  for (const auto& [dtype, tolerance] : {std::pair{DType::f64, 1e-14}, std::pair{DType::f32, 2e-6},
                                         std::pair{DType::bf16, 0x1p-8}, std::pair{DType::f16, 0x1p-11}}) {
    for (const ConvGeometry& g : geometries()) {
      CAPTURE(text(g));
      CAPTURE(name(dtype));
      const Operands narrow(g, dtype);
      Operands wide(g, DType::f64);
      wide.x = cast(narrow.x, DType::f64);
      wide.weight = cast(narrow.weight, DType::f64);
      wide.dy = cast(narrow.dy, DType::f64);
      const Inputs expected = by_positions(wide, g, DType::f64);
      for (const bool cpu : {true, false}) {
        CAPTURE(cpu);
        const Inputs got = (cpu ? by_cpu : by_positions)(narrow, g, accumulate_dtype(dtype));
        for (std::size_t i = 0; i < 3; ++i) {
          CAPTURE(names[i]);
          CHECK(relative_difference(got[i], expected[i]) < tolerance);
        }
      }
    }
  }
}

TEST_CASE("convolution gives the same bits for any number of threads") {
  const int before = threads();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const ConvGeometry& g : geometries()) {
      CAPTURE(text(g));
      const Operands in(g, dtype);
      set_threads(1);
      const Inputs one = by_cpu(in, g, DType::f32);
      for (const int team : {2, 3}) {
        set_threads(team);
        CHECK(same_bits(by_cpu(in, g, DType::f32), one));
      }
      set_threads(before);
    }
  }
}

TEST_CASE("gradients of convolution") {
  const auto f = [](const Conv2dOptions& o) { return [o](const Inputs& x) { return conv2d(x[0], x[1], x[2], o); }; };
  const auto inputs = [](const Shape& x, const Shape& w) {
    return Inputs{random(x, 1), random(w, 2), random({w[0]}, 3)};
  };
  check_op("3 x 3", f({.padding = {1, 1}}), inputs({2, 2, 5, 4}, {3, 2, 3, 3}));
  check_op("stride, dilation, groups", f({.stride = {2, 3}, .padding = {2, 1}, .dilation = {1, 2}, .groups = 2}),
           inputs({2, 4, 5, 7}, {2, 2, 2, 3}));
  check_op("of views",
           [](const Inputs& x) {
             return conv2d(transpose(x[0], 1, 3), transpose(x[1], 2, 3), slice(x[2], 0, 1, 2), {.padding = {1, 0}});
           },
           {random({2, 4, 5, 2}, 1), random({2, 2, 3, 2}, 2), random({3}, 3)});
  check_op("conv1d",
           [](const Inputs& x) { return conv1d(x[0], x[1], x[2], {.stride = 2, .padding = 1, .dilation = 2}); },
           {random({2, 3, 8}, 1), random({4, 3, 3}, 2), random({4}, 3)});
}

TEST_CASE("a convolution of zero samples has zero gradients") {
  Tensor weight = random({3, 2, 3, 3}, 1, DType::f32), bias = random({3}, 2, DType::f32);
  require_grad(weight);
  require_grad(bias);
  const Tensor y = conv2d(Tensor::zeros({0, 2, 5, 5}), weight, bias);
  CHECK(y.shape() == Shape{0, 3, 3, 3});
  backward(y, Tensor::zeros(y.shape()));
  CHECK(same_bits(grad(weight), Tensor::zeros(weight.shape())));
  CHECK(same_bits(grad(bias), Tensor::zeros(bias.shape())));
}

TEST_CASE("the gradient of a convolution's weight is deferred") {
  const Tensor x = random({2, 2, 6, 6}, 1, DType::f32);
  const auto make = [] {
    Tensor weight = random({3, 2, 3, 3}, 2, DType::f32);
    require_grad(weight);
    leaf_of(weight)->set_parameter();
    return weight;
  };
  const Tensor weight = make(), later = make();
  backward(sum(conv2d(x, weight, {})));
  DeferredGradients deferred;
  {
    const DeferWeightGradients scope(deferred);
    backward(sum(conv2d(x, later, {})));
  }
  CHECK(!grad(later).defined());
  deferred.run();
  CHECK(same_bits(grad(later), grad(weight)));
}

TEST_CASE("convolution refuses shapes that do not fit") {
  const Tensor x = random({2, 4, 6, 6}, 1), weight = random({6, 4, 3, 3}, 2);
  const auto refused = [](const std::function<void()>& f, std::string_view part) {
    CHECK(says(error_of(f, ExitCode::internal), part));
  };
  refused([&] { conv2d(x, weight, {}, {.groups = 2}); },
          "[conv2d] an input [2, 4, 6, 6] and a weight [6, 4, 3, 3] with 2 groups");
  refused([&] { conv2d(x, weight, {}, {.groups = 3}); }, "expected groups that divide input and output channels");
  refused([&] { conv2d(x, random({6, 4, 7, 3}, 2), {}); }, "a kernel of 7 x 3 with dilation 1 x 1 does not fit");
  refused([&] { conv2d(x, weight, {}, {.stride = {0, 1}}); }, "stride 0, padding 0, dilation 1; expected");
  refused([&] { conv2d(x, weight, random({5}, 1)); }, "a bias [5] for a weight [6, 4, 3, 3]; expected [6]");
  refused([&] { conv2d(x, cast(weight, DType::f32), {}); }, "dtypes differ: input f64, weight f32");
  refused([&] { conv2d(view::select(x, 0, 0), weight, {}); }, "expected 4 dims each");
  refused([&] { conv1d(x, weight, {}); }, "[conv1d] an input");
  for (const std::int64_t huge : {std::int64_t{1} << 31, std::int64_t{1} << 62, INT64_MAX}) {
    refused([&] { conv2d(x, weight, {}, {.stride = {huge, 1}}); }, "[conv2d] a kernel, stride, padding or dilation of");
    refused([&] { conv2d(x, weight, {}, {.dilation = {1, huge}}); }, "expected at most 2^30");
    refused([&] { conv1d(random({2, 4, 6}, 1), random({6, 4, 3}, 2), {}, {.padding = huge}); }, "[conv1d] a kernel");
    refused([&] { avg_pool2d(x, {.kernel = {huge, 1}}); }, "[avg_pool2d] a kernel, stride");
    refused([&] { max_pool2d(x, {.kernel = 2, .dilation = {huge, 1}}); }, "[max_pool2d] a kernel, stride");
  }
  CHECK(same_bits(conv2d(x, weight, {}, {.stride = {1 << 30, 1 << 29}}), conv2d(x, weight, {}, {.stride = {6, 6}})));
  refused(
      [&] {
        conv1d(random({2, 4, 6}, 1), Tensor::zeros({6, 4, 0}, DType::f64), {});
      },
      "[conv1d] a kernel of 1 x 0");
}

}  // namespace conv_test
