#include "nn/batch_norm.h"

#include "autograd/op.h"
#include "autograd/row_norm.h"

namespace trireme::nn {
namespace {

/// What a forward has computed, or uses, in accumulate_dtype.
struct Moments {
  Tensor mean, variance;  // [C]
  Tensor count;           // [1]: rows and positions of all ranks; undefined if the moments are given
};

/// y = n gamma + beta with n = (x - mean) rstd, mean and rstd of each channel over the rows of all ranks of `groups`;
/// with e = dy gamma, dx = rstd (e - mean(e) - n mean(e n)), the means too over all ranks; dgamma = sum dy n and
/// dbeta = sum dy over the rows of this rank. If the moments are given, they are constants, and dx = rstd e.
struct BatchNormalise : Op {
  static constexpr const char* name = "batch_norm";
  std::vector<ProcessGroup*> groups;
  double eps = 0;
  bool given = false;
  std::shared_ptr<Moments> moments;
  std::string site;          // of the forward, for messages
  Shape shape;               // of x: [N, C, ..]
  Tensor rows, gamma, beta;  // x [N C, P], [C]
  Tensor rstd;               // [C]

  Tensor per_row(const Tensor& numbers) const { return for_each_row(numbers, shape[0], shape[1]); }
  Tensor over_samples(const Tensor& of_rows) const { return sum(view::reshape(of_rows, {shape[0], shape[1]}), 0); }
  /// Numbers of channels [..], summed over all ranks.
  Tensor over_ranks(const Tensor& x) const {
    Tensor total = clone(x);
    for (ProcessGroup* group : groups) group->all_reduce(total).wait();
    return total;
  }

  Tensor forward(const Tensor& x, const Tensor& g, const Tensor& b) {
    site = fmt::format("backward of {}", CallSite::current());
    shape = x.shape();
    rows = channel_rows(x);
    gamma = contiguous(cast(g, accumulate_dtype(rows.dtype())));
    beta = contiguous(cast(b, gamma.dtype()));
    if (!given) {
      const Tensor sums = over_samples(row_sums(rows));  // [C]
      const auto here = static_cast<double>(shape[0] * rows.size(1));
      const Tensor totals = over_ranks(concat({sums, Tensor::full({1}, here, sums.dtype(), sums.device())}, 0));
      moments->count = view::slice(totals, 0, shape[1], 1);
      moments->mean = view::slice(totals, 0, 0, shape[1]) / moments->count;
      moments->variance = over_ranks(over_samples(row_squares(rows, per_row(moments->mean)))) / moments->count;
    }
    const Tensor& variance = moments->variance;
    rstd = Tensor::full(variance.shape(), 1, variance.dtype(), variance.device()) / sqrt(variance + eps);
    return view::reshape(scale_rows(rows, per_row(moments->mean), per_row(rstd * gamma), per_row(beta)), shape);
  }

  Gradients backward(const Tensor& gradient) const {
    const CallSite scope(site);
    const Tensor dy = view::reshape(contiguous(gradient), rows.shape()), centre = per_row(moments->mean);
    const auto [row_sum, row_product] = row_products(dy, rows, centre);
    const Tensor sums = over_samples(row_sum), products = over_samples(row_product);  // [C]
    Gradients gradients(3);
    if (given && needs(0)) {
      const Tensor zero = Tensor::zeros(centre.shape(), centre.dtype(), centre.device());
      gradients[0] = view::reshape(combine_rows(dy, rows, centre, per_row(rstd * gamma), zero, zero), shape);
    } else if (needs(0)) {
      const Tensor totals = over_ranks(view::reshape(concat({sums, products}, 0), {2, shape[1]}));
      const Tensor mean_dy = view::select(totals, 0, 0) / moments->count,
                   mean_product = view::select(totals, 0, 1) / moments->count;
      const Tensor factor = rstd * gamma, of_x = -(factor * rstd * rstd * mean_product);
      gradients[0] = view::reshape(
          combine_rows(dy, rows, centre, per_row(factor), per_row(of_x), per_row(-(factor * mean_dy))), shape);
    }
    if (needs(1)) gradients[1] = products * rstd;
    if (needs(2)) gradients[2] = sums;
    return gradients;
  }
};

/// running = (1 - momentum) running + momentum value.
void move_towards(Tensor& running, const Tensor& value, double momentum) {
  kernels(running.device()).axpby(momentum, value, 1 - momentum, running);
}

std::vector<ProcessGroup*> groups_of_batch(const Build& b) {
  std::vector<ProcessGroup*> groups;
  if (b.mesh().size(Axis::data) > 1) groups.push_back(&b.mesh().group(Axis::data));
  if (b.parallelism().sequence && b.mesh().size(Axis::tp) > 1) groups.push_back(&b.mesh().group(Axis::tp));
  return groups;
}

}  // namespace

BatchNorm::BatchNorm(const Build& b, std::int64_t channels, const BatchNormOptions& options)
    : Module(b),
      groups_(groups_of_batch(b)),
      options_(options),
      weight_(b.parameter("weight", {channels}, {.tp = b.per_position_placement()}, Init::ones())),
      bias_(b.parameter("bias", {channels}, {.tp = b.per_position_placement()}, Init::zeros())),
      running_mean_(b.buffer("running_mean", {channels}, {}, 0)),
      running_variance_(b.buffer("running_var", {channels}, {}, 1)) {
  if (!(options.momentum >= 0 && options.momentum <= 1))
    fail(ExitCode::usage, "batch_norm", "{}: a momentum of {}; expected 0 to 1", name(), options.momentum);
  if (!(options.eps >= 0))
    fail(ExitCode::usage, "batch_norm", "{}: eps is {}; expected at least 0", name(), options.eps);
}

Tensor BatchNorm::forward(const Tensor& x) {
  check(x);
  require(x.size(1) == channels(), "batch_norm", "an input {} for {} channels; expected [N, {}, ..]", x.shape(),
          channels(), channels());
  const DType wide = accumulate_dtype(x.dtype());
  BatchNormalise op;
  op.eps = options_.eps;
  op.given = !training();
  op.moments = std::make_shared<Moments>();
  if (op.given) {
    *op.moments = {clone(cast(running_mean_->value, wide)), clone(cast(running_variance_->value, wide)), {}};
    return apply(std::move(op), x, weight_->value(), bias_->value());
  }
  op.groups = groups_;
  const std::int64_t here = x.count() / std::max<std::int64_t>(channels(), 1);
  // With at least one on each of several ranks there are two.
  require(here > (groups_.empty() ? 1 : 0), "batch_norm",
          "{} values per channel in the whole batch, whose variance is not defined; expected at least 2; use a larger "
          "batch, or call eval() of the module",
          here);
  const std::shared_ptr<Moments> moments = op.moments;
  const Tensor y = apply(std::move(op), x, weight_->value(), bias_->value());
  if (grad_enabled()) {
    const NoGrad guard;
    move_towards(running_mean_->value, moments->mean, options_.momentum);
    move_towards(running_variance_->value, moments->variance * (moments->count / (moments->count - 1.0)),
                 options_.momentum);
  }
  return y;
}

void BatchNorm1d::check(const Tensor& x) const {
  require(x.dims() == 2 || x.dims() == 3, "batch_norm", "an input {}; expected [N, C] or [N, C, L]", x.shape());
}

void BatchNorm2d::check(const Tensor& x) const {
  require(x.dims() == 4, "batch_norm", "an input {}; expected [N, C, H, W]", x.shape());
}

}  // namespace trireme::nn
