#include "autograd/conv_by_positions.h"

#include "autograd/support.h"

namespace trireme {
namespace {

/// x [N, C, H, W] with zeros around it: [N, C, H + 2 p, W + 2 q].
Tensor with_zeros_around(const Tensor& x, const ConvGeometry& g) {
  const Shape shape = {g.batch, g.in_channels, g.height + 2 * g.padding[0], g.width + 2 * g.padding[1]};
  const Tensor result = Tensor::zeros(shape, x.dtype(), x.device());
  Tensor inside = view::slice(view::slice(result, 2, g.padding[0], g.height), 3, g.padding[1], g.width);
  copy(x, inside);
  return result;
}

/// What kernel position (r, s) multiplies: a view [N, G, C / G, OH, OW] of the padded input.
Tensor seen_by(const Tensor& padded_x, const ConvGeometry& g, std::int64_t r, std::int64_t s) {
  const Shape& strides = padded_x.strides();
  return padded_x.as_strided(
      {g.batch, g.groups, g.in_group(), g.out_height(), g.out_width()},
      {strides[0], strides[1] * g.in_group(), strides[1], strides[2] * g.stride[0], strides[3] * g.stride[1]},
      r * g.dilation[0] * strides[2] + s * g.dilation[1] * strides[3]);
}

/// A view of dense x [N, groups * c, ..] as [N, groups, c, positions].
Tensor grouped_positions(const Tensor& x, const ConvGeometry& g) {
  return view::reshape(x, {g.batch, g.groups, x.size(1) / g.groups, x.size(2) * x.size(3)});
}

/// weight[.., r, s]: [N, G, O / G, C / G], the same for each n.
Tensor weight_at(const Tensor& weight, const ConvGeometry& g, std::int64_t r, std::int64_t s) {
  const Tensor matrices = contiguous(view::select(view::select(weight, 3, s), 2, r));
  return view::expand(view::reshape(matrices, {1, g.groups, g.out_group(), g.in_group()}),
                      {g.batch, g.groups, g.out_group(), g.in_group()});
}

/// [N, G, c, positions] -> [G, c, N positions], a copy.
Tensor samples_last(const Tensor& x) {
  const Tensor moved = contiguous(view::transpose(view::transpose(x, 0, 1), 1, 2));  // [G, c, N, positions]
  return view::reshape(moved, {moved.size(0), moved.size(1), moved.size(2) * moved.size(3)});
}

template <class Body>
void for_kernel_positions(const ConvGeometry& g, Body&& body) {
  for (std::int64_t r = 0; r < g.kernel_height; ++r)
    for (std::int64_t s = 0; s < g.kernel_width; ++s) body(r, s);
}

}  // namespace

Tensor conv2d_by_positions(const Tensor& x, const Tensor& weight, const ConvGeometry& g) {
  const KernelTable& k = kernels(x.device());
  const Tensor source = with_zeros_around(x, g);
  const Shape grouped = {g.batch, g.groups, g.in_group(), g.out_positions()};
  Tensor y = Tensor::empty({g.batch, g.groups, g.out_group(), g.out_positions()}, accumulate_dtype(x), x.device());
  for_kernel_positions(g, [&](std::int64_t r, std::int64_t s) {
    const Tensor patches = view::reshape(contiguous(seen_by(source, g, r, s)), grouped);
    k.gemm(weight_at(weight, g, r, s), patches, y, {.beta = r + s == 0 ? 0.0 : 1.0});
  });
  return cast(view::reshape(y, {g.batch, g.out_channels, g.out_height(), g.out_width()}), x.dtype());
}

Tensor conv2d_input_gradient_by_positions(const Tensor& dy, const Tensor& weight, const ConvGeometry& g) {
  const KernelTable& k = kernels(dy.device());
  const DType sums = accumulate_dtype(dy);
  const Tensor dx = Tensor::zeros({g.batch, g.in_channels, g.height + 2 * g.padding[0], g.width + 2 * g.padding[1]},
                                  sums, dy.device());
  Tensor term = Tensor::empty({g.batch, g.groups, g.in_group(), g.out_positions()}, sums, dy.device());
  for_kernel_positions(g, [&](std::int64_t r, std::int64_t s) {
    k.gemm(view::transpose(weight_at(weight, g, r, s), 2, 3), grouped_positions(dy, g), term, {});
    Tensor place = seen_by(dx, g, r, s);
    Tensor sum = Tensor::empty(place.shape(), sums, dy.device());
    k.binary(Binary::add, place, view::reshape(term, place.shape()), sum);
    copy(sum, place);
  });
  return contiguous(
      cast(view::slice(view::slice(dx, 2, g.padding[0], g.height), 3, g.padding[1], g.width), dy.dtype()));
}

Tensor conv2d_weight_gradient_by_positions(const Tensor& x, const Tensor& dy, const ConvGeometry& g, DType dtype) {
  const KernelTable& k = kernels(x.device());
  const Tensor source = with_zeros_around(x, g), outputs = samples_last(grouped_positions(dy, g));
  const Shape grouped = {g.batch, g.groups, g.in_group(), g.out_positions()};
  const Tensor dw =
      Tensor::empty({g.groups, g.out_group(), g.in_group(), g.kernel_height, g.kernel_width}, dtype, x.device());
  Tensor part = Tensor::empty({g.groups, g.out_group(), g.in_group()}, accumulate_dtype(x), x.device());
  for_kernel_positions(g, [&](std::int64_t r, std::int64_t s) {
    const Tensor patches = samples_last(view::reshape(contiguous(seen_by(source, g, r, s)), grouped));
    k.gemm(outputs, view::transpose(patches, 1, 2), part, {});
    Tensor place = view::select(view::select(dw, 4, s), 3, r);
    copy(part, place);
  });
  return view::reshape(dw, {g.out_channels, g.in_group(), g.kernel_height, g.kernel_width});
}

}  // namespace trireme
