#include "autograd/group_norm.h"

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/row_norm.h"
#include "autograd/support.h"
#include "core/cpu/channel_kernels.h"

namespace trireme {
namespace {

/// y = n gamma + beta with n = (x - mean) rstd; with e = dy gamma and means over a sample's group:
/// dx = rstd (e - mean(e) - n mean(e n)), dgamma = sum dy n, dbeta = sum dy
struct GroupNorm : Op {
  static constexpr const char* name = "group_norm";
  std::int64_t groups = 1;
  double eps = 1e-5;
  Shape shape;               // of x: [N, C, ..]
  Tensor rows, gamma, beta;  // x [N C, P], [C]
  Tensor mean, rstd;         // [N, G]

  double group_size() const {
    const std::int64_t channels = shape[1] / groups;
    return static_cast<double>(channels * rows.size(1));
  }
  Tensor wide(const Tensor& parameter) const { return cast(parameter, accumulate_dtype(rows)); }
  Tensor per_row(const Tensor& numbers) const { return for_each_row(numbers, shape[0], shape[1]); }
  /// Sums over the rows of each group: [N C] -> [N, G]
  Tensor over_groups(const Tensor& of_rows) const {
    return sum(view::reshape(of_rows, {shape[0], groups, shape[1] / groups}), 2);
  }
  /// Sums over samples: [N C] -> [C]
  Tensor over_samples(const Tensor& of_rows) const { return sum(view::reshape(of_rows, {shape[0], shape[1]}), 0); }

  Tensor forward(const Tensor& x, const Tensor& g, const Tensor& b) {
    shape = x.shape();
    rows = channel_rows(x);
    gamma = contiguous(g);
    beta = contiguous(b);
    if (x.device() == Device::cpu) {
      Tensor y = empty_like(rows);
      mean = Tensor::empty({shape[0], groups}, accumulate_dtype(rows));
      rstd = empty_like(mean);
      cpu::channel_kernels().group_norm(rows, wide(gamma), wide(beta), shape[1] / groups, eps, y, mean, rstd);
      return view::reshape(y, shape);
    }
    mean = over_groups(row_sums(rows)) * (1 / group_size());
    const Tensor variance = over_groups(row_squares(rows, per_row(mean))) * (1 / group_size());
    rstd = Tensor::full(variance.shape(), 1, variance.dtype(), variance.device()) / sqrt(variance + eps);
    return repeat();
  }
  Tensor repeat() const {
    const Tensor factor = per_row(rstd) * per_row(wide(gamma));
    return view::reshape(scale_rows(rows, per_row(mean), factor, per_row(wide(beta))), shape);
  }
  Gradients backward(const Tensor& gradient) const {
    const Tensor dy = view::reshape(contiguous(gradient), rows.shape());
    if (dy.device() == Device::cpu) return backward_in_groups(dy);
    const Tensor centre = per_row(mean), scale_of_row = per_row(rstd), gain = per_row(wide(gamma));
    const auto [sums, products] = row_products(dy, rows, centre);  // of dy, of dy (x - mean): [N C]
    Gradients gradients(3);
    if (needs(0)) {
      const Tensor mean_e = per_row(over_groups(sums * gain) * (1 / group_size()));
      const Tensor mean_en = per_row(over_groups(products * gain) * (1 / group_size())) * scale_of_row;
      const Tensor of_x = -(scale_of_row * scale_of_row * mean_en);
      gradients[0] =
          view::reshape(combine_rows(dy, rows, centre, scale_of_row * gain, of_x, -(scale_of_row * mean_e)), shape);
    }
    if (needs(1)) gradients[1] = over_samples(products * scale_of_row);
    if (needs(2)) gradients[2] = over_samples(sums);
    return gradients;
  }
  /// The same on the CPU, where a group stays in the cache between the passes over it.
  Gradients backward_in_groups(const Tensor& dy) const {
    Tensor dx = empty_like(rows), sums = Tensor::empty({rows.size(0)}, accumulate_dtype(rows)),
           products = empty_like(sums);
    cpu::channel_kernels().group_norm_backward(dy, rows, wide(gamma), mean, rstd, shape[1] / groups, dx, sums,
                                               products);
    Gradients gradients = {view::reshape(dx, shape), {}, {}};
    if (needs(1)) gradients[1] = over_samples(products * per_row(rstd));
    if (needs(2)) gradients[2] = over_samples(sums);
    return gradients;
  }
};

}  // namespace

Tensor group_norm(const Tensor& input, std::int64_t groups, const Tensor& gain, const Tensor& shift, double eps) {
  const Tensor x = in_f32(input), gamma = in_f32(gain), beta = in_f32(shift);
  require_floating(GroupNorm::name, x);
  require(x.dims() >= 2 && groups >= 1 && x.size(1) % groups == 0, GroupNorm::name,
          "an input {} with {} groups; expected [N, C, ..] and a number of groups that divides C", x.shape(), groups);
  require(x.shape().without(0).count() > 0, GroupNorm::name, "an input {}; expected at least one element in each group",
          x.shape());
  for (const Tensor* row : {&gamma, &beta})
    require(row->defined() && row->shape() == Shape{x.size(1)} && row->dtype() == x.dtype(), GroupNorm::name,
            "an input {} {} needs a gain and a shift {} [{}], got {} {}", trireme::name(x.dtype()), x.shape(),
            trireme::name(x.dtype()), x.size(1), row->defined() ? trireme::name(row->dtype()) : "undefined",
            row->shape());
  GroupNorm op;
  op.groups = groups;
  op.eps = eps;
  return apply(std::move(op), x, gamma, beta);
}

}  // namespace trireme
