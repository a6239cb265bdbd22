#include "nn/cross_entropy.h"

#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"
#include "core/columns.h"
#include "core/ids.h"

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
    const bool in_place = !retained && (has_gradient || logits.sole_owner());
    Tensor dlogits = in_place ? logits : has_gradient ? clone(logits) : empty_like(logits);
    if (has_gradient)
      k.multiply_by(dloss, dlogits);
    else
      k.cross_entropy_backward(logits, targets, options.slice, maximum, sum_exp, options.smoothing, options.scale,
                               dloss, dlogits);
    return {view::reshape(dlogits, logits_shape)};
  }
};

/// The dim `dim` of x as the last one; the order of the others does not change.
Tensor with_last_dim(Tensor x, int dim) {
  for (int i = dim; i + 1 < x.dims(); ++i) x = transpose(x, i, i + 1);
  return x;
}

/// Per row of [N, 1], on the host: the weight of its target (0 if it is ignored), and 1 for a target that is not.
struct RowWeights {
  std::vector<double> target, valid;
};

RowWeights row_weights(const Tensor& targets, const Tensor& class_weights) {
  const Tensor ids = contiguous(targets.to(Device::cpu));
  const Tensor weights =
      class_weights.defined() ? contiguous(cast(class_weights.to(Device::cpu), DType::f64)) : Tensor();
  RowWeights rows;
  for (const std::int32_t id : ids.span<std::int32_t>()) {
    const bool valid = id >= 0;
    rows.valid.push_back(valid ? 1 : 0);
    rows.target.push_back(!valid ? 0 : weights.defined() ? weights.span<double>()[static_cast<std::size_t>(id)] : 1);
  }
  return rows;
}

/// The loss with class weights: of operations, in the dtype of sums. logits [N, C], targets [N].
Tensor weighted_cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  const Autocast as_given(std::nullopt);
  const std::int64_t rows = logits.size(0), classes = logits.size(1);
  const Tensor x = cast_to(logits, accumulate_dtype(logits));
  const Tensor shifted = x - max(x.detach(), 1, true);             // [N, C]
  const Tensor log_p = shifted - log(sum(exp(shifted), 1, true));  // [N, C]
  const RowWeights weights = row_weights(targets, options.class_weights);
  const auto column = [&](const std::vector<double>& values, double factor) {  // [N, 1]
    return cast(Tensor::from(std::span(values), {rows, 1}), x.dtype()).to(x.device()) * factor;
  };
  Tensor ids = Tensor::empty({rows, 1}, DType::i32);
  for (std::int64_t row = 0; row < rows; ++row)  // an ignored target's weight is 0, so any class will do
    ids.data<std::int32_t>()[row] = std::max(std::as_const(targets).data<std::int32_t>()[row], 0);
  const Tensor loss =
      sum(pick(log_p, ids.to(x.device())) * column(weights.target, -(1 - options.smoothing) * options.scale));
  if (options.smoothing == 0) return loss;
  const Tensor w = view::reshape(contiguous(cast(options.class_weights, x.dtype())).to(x.device()), {classes, 1});
  const double each = options.smoothing / static_cast<double>(classes);
  return loss + sum(matmul(log_p, w) * column(weights.valid, -each * options.scale));
}

void check_class_weights(const Tensor& logits, const CrossEntropyOptions& options) {
  const bool whole = options.slice.global == 0 && (options.group == nullptr || options.group->size() == 1);
  require(
      whole, "cross_entropy",
      "class weights for a vocabulary of {} tokens that is padded or split over ranks; expected whole logits; gather "
      "them, or leave class_weights undefined",
      options.slice.global);
  const Tensor& w = options.class_weights;
  require(w.shape() == Shape{logits.size(-1)} && is_floating(w.dtype()) && !w.requires_grad(), "cross_entropy",
          "class weights {} {}; expected a floating [C] = [{}] without a gradient, one for each class of the logits",
          trireme::name(w.dtype()), w.shape(), logits.size(-1));
}

/// Columns that are padding, or the part of one rank, would be taken for all classes.
void check_columns(const Tensor& logits, const CrossEntropyOptions& options) {
  const VocabSlice& slice = options.slice;
  const std::int64_t width = logits.size(-1);
  const bool split = options.group != nullptr && options.group->size() > 1;
  if (slice.global == 0) {
    const MemoryPool::Columns columns = logits.columns();
    if ((columns.padded() || columns.split()) && columns_dim(logits) == logits.dims() - 1)
      fail(ExitCode::usage, "cross_entropy",
           "logits {} have {} columns of a vocabulary or a layer of {}, {}; expected a slice that says so; give "
           "cross_entropy .slice = table.slice() and .group = &mesh.group(Axis::tp)",
           logits.shape(), width, columns.whole, columns.split() ? "which is split over the ranks of tp" : "padded");
    if (split)
      fail(ExitCode::usage, "cross_entropy",
           "a group of {} ranks, and no slice that says which columns each of them has; expected both; give "
           "cross_entropy .slice = table.slice() too",
           options.group->size());
    return;
  }
  if (slice.first < 0 || slice.valid < 0 || slice.valid > width ||
      (slice.valid > 0 && slice.first + slice.valid > slice.global))
    fail(ExitCode::usage, "cross_entropy",
         "a slice of {} tokens from {} on, of {}, for logits {}; expected no more than there are columns and tokens",
         slice.valid, slice.first, slice.global, logits.shape());
  if (!split && slice.valid < slice.global)
    fail(ExitCode::usage, "cross_entropy",
         "the slice has {} of {} tokens, and no group has the others; expected the ranks over which the vocabulary is "
         "split; give cross_entropy .group = &mesh.group(Axis::tp)",
         slice.valid, slice.global);
}

}  // namespace

double sum_of_target_weights(const Tensor& targets, const Tensor& class_weights) {
  const std::int64_t classes = class_weights.defined() ? class_weights.count() : std::int64_t{1} << 31;
  check_ids("sum_of_target_weights", "target", targets, {.first = 0, .end = classes, .negative = true},
            "change the targets, or the number of class weights; a negative target is ignored");
  const RowWeights rows = row_weights(targets, class_weights);
  return std::accumulate(rows.target.begin(), rows.target.end(), 0.0);
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): the copy of a temporary or moved tensor is its sole owner
Tensor cross_entropy(Tensor logits, const Tensor& targets, const CrossEntropyOptions& options) {
  require(targets.defined(), "cross_entropy", "the targets are undefined; expected one for each row of logits {}",
          logits.shape());
  require(logits.dims() >= 1, "cross_entropy", "logits {}; expected at least one dim, the classes", logits.shape());
  if (const int dim = checked_dim("cross_entropy", logits, options.class_dim); dim + 1 != logits.dims()) {
    require(targets.shape() == logits.shape().without(dim), "cross_entropy",
            "logits {} with the classes in dim {} and targets {}; expected targets {}, the shape without that dim",
            logits.shape(), dim, targets.shape(), logits.shape().without(dim));
    logits = with_last_dim(std::move(logits), dim);
  }
  const std::int64_t rows = row_count(logits);
  require(targets.count() == rows, "cross_entropy",
          "expected one target per row of logits {}: {} numbers of classes, which are their last dim; got targets {}",
          logits.shape(), rows, targets.shape());
  require(options.smoothing >= 0 && options.smoothing < 1, "cross_entropy",
          "a label smoothing of {}; expected at least 0 and less than 1", options.smoothing);
  require(is_floating(logits.dtype()), "cross_entropy", "logits in {}; expected a floating dtype",
          trireme::name(logits.dtype()));
  check_columns(logits, options);
  CrossEntropy op;
  op.options = options;
  op.sole_owner = logits.sole_owner();
  if (options.slice.global == 0) op.options.slice = {.first = 0, .valid = logits.size(-1), .global = logits.size(-1)};
  check_ids("cross_entropy", "target", targets, {.first = 0, .end = op.options.slice.global, .negative = true},
            "change the targets, or the number of classes; a negative target is ignored");
  if (options.class_weights.defined()) {
    check_class_weights(logits, options);
    const Tensor ids = view::reshape(contiguous(targets.to(Device::cpu)), {rows});
    return weighted_cross_entropy(reshape(logits, {rows, logits.size(-1)}), ids, options);
  }
  op.targets = view::reshape(contiguous(targets), {targets.count()}).to(logits.device());
  op.saved.add(op.targets, "targets");
  return apply(std::move(op), logits);
}

}  // namespace trireme::nn
