#include "nn/cross_entropy.h"

#include "autograd/op.h"
#include "autograd/support.h"

namespace trireme::nn {
namespace {

/// Per row: m = max x, z = sum exp(x - m), x_t = the target's logit, s = sum x.
/// loss = scale sum_rows [ log z + m - (1 - e) x_t - e s / V ],  dx = scale [ exp(x - m) / z - (1 - e) onehot - e / V ]
/// dloss
///
/// Ranks that hold a slice each combine m by max, and z (rescaled to the common m), x_t and s by one sum of [3, N].
///
/// Where no ranks combine, and nobody else has the logits, forward makes the gradient for dloss = 1 at once, in their
/// place: they are read and written once, instead of read twice and written once.
struct CrossEntropy : Op {
  static constexpr const char* name = "cross_entropy";
  CrossEntropyOptions options;
  bool sole_owner = false;  // of the logits
  bool has_gradient = false;
  Tensor targets;  // [N]
  Tensor logits;   // [N, V/tp]; with has_gradient, their gradient for dloss = 1
  Shape logits_shape;
  Tensor maximum, sum_exp;  // [N], over the global vocabulary

  Tensor forward(const Tensor& x) {
    logits_shape = x.shape();
    logits = as_rows(x);
    const std::int64_t rows = logits.size(0);
    const DType acc = accumulate_dtype(x);
    maximum = Tensor::empty({rows}, acc, x.device());
    const Tensor sums = Tensor::empty({3, rows}, acc, x.device());
    sum_exp = view::select(sums, 0, 0);
    Tensor target_logit = view::select(sums, 0, 1), logit_sum = view::select(sums, 0, 2);
    const KernelTable& k = kernels(x.device());
    const bool split = options.group != nullptr && options.group->size() > 1;
    const bool whole = options.slice.first == 0 && options.slice.valid == options.slice.global;
    has_gradient = needs(0) && !split && whole && (sole_owner || !logits.shares_storage_with(x));
    if (has_gradient)
      k.cross_entropy_one_pass(logits, targets, options.slice, options.smoothing, options.scale, maximum, sum_exp,
                               target_logit, logit_sum, logits);
    else
      k.cross_entropy_stats(logits, targets, options.slice, maximum, sum_exp, target_logit, logit_sum);
    if (split) combine(k, sums);
    Tensor loss = Tensor::empty({}, acc, x.device());
    k.cross_entropy_loss(targets, maximum, sum_exp, target_logit, logit_sum, options.smoothing, options.slice.global,
                         options.scale, loss);
    return loss;
  }

  void combine(const KernelTable& k, const Tensor& sums) {
    const Tensor local = clone(maximum);
    options.group->all_reduce(maximum, ReduceOp::max).wait();
    Tensor rescale = empty_like(maximum);
    k.binary(Binary::subtract, local, maximum, rescale);
    k.unary(Unary::exp, rescale, rescale);  // 0 for a slice without real tokens, whose maximum is -infinity
    k.binary(Binary::multiply, sum_exp, rescale, sum_exp);
    options.group->all_reduce(sums).wait();
  }

  Gradients backward(const Tensor& dloss) const {
    const KernelTable& k = kernels(logits.device());
    Tensor dlogits = has_gradient || logits.sole_owner() ? logits : empty_like(logits);
    if (has_gradient)
      k.multiply_by(dloss, dlogits);
    else
      k.cross_entropy_backward(logits, targets, options.slice, maximum, sum_exp, options.smoothing, options.scale,
                               dloss, dlogits);
    return {view::reshape(dlogits, logits_shape)};
  }
};

}  // namespace

// NOLINTNEXTLINE(performance-unnecessary-value-param): the copy of a temporary or moved tensor is its sole owner
Tensor cross_entropy(Tensor logits, const Tensor& targets, const CrossEntropyOptions& options) {
  require(logits.dims() >= 1 && targets.count() == logits.count() / std::max<std::int64_t>(logits.size(-1), 1),
          "cross_entropy", "expected one target per row of logits {}, got {}", logits.shape(), targets.shape());
  require(targets.dtype() == DType::i32, "cross_entropy", "expected i32 targets, got {}",
          trireme::name(targets.dtype()));
  CrossEntropy op;
  op.options = options;
  op.sole_owner = logits.sole_owner();
  if (options.slice.global == 0) op.options.slice = {.first = 0, .valid = logits.size(-1), .global = logits.size(-1)};
  op.targets = view::reshape(contiguous(targets), {targets.count()}).to(logits.device());
  return apply(std::move(op), logits);
}

}  // namespace trireme::nn
