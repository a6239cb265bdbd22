#include "nn/losses.h"

#include <functional>
#include <utility>

#include "autograd/in_cache.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"

namespace trireme::nn {
namespace {

/// Of each element of x: its loss, and the derivative of that.
struct LossTerms {
  Tensor loss, slope;
};

/// loss = scale * sum of terms(x).loss;  dx = scale terms(x).slope dloss
struct SumOfTerms : Op {
  static constexpr const char* name = "loss";
  std::function<LossTerms(const Tensor&)> terms;
  double scale = 1;
  Tensor slope;
  Tensor forward(const Tensor& x) {
    const LossTerms both = terms(x);
    slope = both.slope;
    return sum(both.loss) * scale;
  }
  Gradients backward(const Tensor& dloss) const {
    Tensor dx = slope * scale;
    kernels(dx.device()).multiply_by(dloss, dx);
    return {dx};
  }
};

/// loss = scale * sum of (prediction - target)^2;  dprediction = 2 scale (prediction - target) dloss, dtarget = the
/// negative of it. The difference is not kept, which saves passes over memory.
struct MeanSquares : Op {
  static constexpr const char* name = "mse_loss";
  double scale = 1;
  Tensor prediction, target;
  /// Calls next(part) for the prediction minus the target, in acc, a few elements at a time -> all of them.
  Tensor difference(const std::function<void(Tensor& part)>& next) const {
    const Tensor d = Tensor::empty({prediction.count(), 1}, accumulate_dtype(prediction), prediction.device());
    const Tensor p = view::reshape(contiguous(prediction), d.shape()), t = view::reshape(contiguous(target), d.shape());
    const InCache ranges(d.device(), d.count(), 1);
    ranges.run([&](std::int64_t first, std::int64_t count, const Tensor&) {
      const KernelTable& k = kernels(d.device());
      Tensor part = view::slice(d, 0, first, count);
      const Tensor left = view::slice(p, 0, first, count), right = view::slice(t, 0, first, count);
      if (left.dtype() == part.dtype()) {
        k.binary(Binary::subtract, left, right, part);
      } else {  // axpby converts
        k.axpby(1, right, 0, part);
        k.axpby(1, left, -1, part);
      }
      next(part);
    });
    return d;
  }
  Tensor forward(const Tensor& x, const Tensor& y) {
    prediction = x;
    target = y;
    const Tensor squares = difference([](Tensor& part) { kernels(part.device()).unary(Unary::square, part, part); });
    return sum(view::reshape(squares, prediction.shape())) * scale;
  }
  Gradients backward(const Tensor& dloss) const {
    const Tensor d = difference([this](Tensor& part) { kernels(part.device()).axpby(2 * scale, part, 0, part); });
    Tensor dx = view::reshape(d, prediction.shape());
    kernels(dx.device()).multiply_by(dloss, dx);
    Gradients gradients(2);
    if (needs(0)) gradients[0] = cast(dx, gradient_dtype(0, prediction.dtype()));
    if (needs(1)) gradients[1] = cast(dx * -1.0, gradient_dtype(1, target.dtype()));
    return gradients;
  }
};

Tensor sum_of_terms(const Tensor& x, double scale, std::function<LossTerms(const Tensor&)> terms) {
  SumOfTerms op;
  op.terms = std::move(terms);
  op.scale = scale;
  return apply(std::move(op), x);
}

void check_pair(const char* where, const char* what, const Tensor& x, const Tensor& target) {
  require_floating(where, x);
  require_floating(where, target);
  require(
      x.shape() == target.shape() && x.dtype() == target.dtype(), where,
      "{} {} {} and target {} {}; expected one shape and dtype: nothing is broadcast; reshape() or cast_to() one of "
      "them",
      what, trireme::name(x.dtype()), x.shape(), trireme::name(target.dtype()), target.shape());
}

void check_no_gradient(const char* where, const Tensor& target, const char* advice) {
  require(!target.requires_grad(), where, "the target needs a gradient, which this loss does not compute; {}", advice);
}

/// x in the dtype of sums.
Tensor wide(const Tensor& x) { return cast_to(x, accumulate_dtype(x)); }

Tensor difference(const char* where, const Tensor& left, const Tensor& right) {
  const auto [prediction, target] = in_common_dtype(left, right);
  check_pair(where, "prediction", prediction, target);
  return wide(prediction) - wide(target);
}

Tensor absolute(const Tensor& x) { return relu(x) + relu(-x); }

/// -1, 0 or 1.
Tensor sign(const Tensor& x) {
  const KernelTable& k = kernels(x.device());
  const Tensor dense = contiguous(x), negative = -dense;
  Tensor ones = empty_like(dense), above = empty_like(dense), below = empty_like(dense);
  k.fill(ones, 1);
  k.unary_backward(Unary::relu, dense, ones, above);
  k.unary_backward(Unary::relu, negative, ones, below);
  return above - below;
}

LossTerms huber_terms(const Tensor& d, double delta) {
  const Tensor size = absolute(d), clipped = size - relu(size + -delta);  // |d|, min(|d|, delta)
  return {clipped * (size - clipped * 0.5), clipped * sign(d)};
}

/// log(1 + exp(-x)) = max(-x, 0) + log(1 + z), z = exp(-|x|). u = 1 + z is rounded; the last term adds what that lost.
Tensor log_of_one_plus_exp_minus(const Tensor& x) {
  const Tensor z = exp(-absolute(x)), u = z + 1.0;
  return relu(-x) + log(u) + (z - (u + -1.0)) / u;
}

/// A weight for tensors like `x`, without a gradient.
Tensor checked_weight(const char* what, const Tensor& weight, const Tensor& x) {
  constexpr const char* where = "binary_cross_entropy_with_logits";
  require_floating(where, weight);
  require(!weight.requires_grad() && broadcast_shape(weight.shape(), x.shape(), where) == x.shape(), where,
          "a {} {}; expected one without a gradient that broadcasts to the logits {}", what, weight.shape(), x.shape());
  return cast(weight, accumulate_dtype(x)).to(x.device());
}

/// terms.loss and terms.slope of a logit x with target t, factors w and p: w ((1 - t) x + l log(1 + exp(-x))) with
/// l = 1 + (p - 1) t, and w (1 - t - l sigmoid(-x))
LossTerms binary_terms(const Tensor& x, const Tensor& t, const BinaryCrossEntropyOptions& factors) {
  const Tensor rest = -t + 1.0;
  Tensor log_term = log_of_one_plus_exp_minus(x), probability = sigmoid(-x);
  if (factors.pos_weight.defined()) {
    const Tensor l = (factors.pos_weight + -1.0) * t + 1.0;
    log_term = l * log_term;
    probability = l * probability;
  }
  const LossTerms terms{rest * x + log_term, rest - probability};
  if (!factors.weight.defined()) return terms;
  return {factors.weight * terms.loss, factors.weight * terms.slope};
}

}  // namespace

Tensor mse_loss(const Tensor& left, const Tensor& right, double scale) {
  const auto [prediction, target] = in_common_dtype(left, right);
  check_pair("mse_loss", "prediction", prediction, target);
  MeanSquares op;
  op.scale = scale;
  return apply(std::move(op), prediction, target);
}

Tensor l1_loss(const Tensor& prediction, const Tensor& target, double scale) {
  return sum_of_terms(difference("l1_loss", prediction, target), scale, [](const Tensor& d) {
    return LossTerms{absolute(d), sign(d)};
  });
}

Tensor huber_loss(const Tensor& prediction, const Tensor& target, double scale, double delta) {
  require(delta > 0, "huber_loss", "delta {}; expected a number above 0; for delta 0 the loss is 0", delta);
  return sum_of_terms(difference("huber_loss", prediction, target), scale,
                      [delta](const Tensor& d) { return huber_terms(d, delta); });
}

Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, double scale, double beta) {
  require(beta >= 0, "smooth_l1_loss", "beta {}; expected 0 or more", beta);
  if (beta == 0) return l1_loss(prediction, target, scale);
  return sum_of_terms(difference("smooth_l1_loss", prediction, target), scale / beta,
                      [beta](const Tensor& d) { return huber_terms(d, beta); });
}

Tensor binary_cross_entropy_with_logits(const Tensor& prediction, const Tensor& probabilities, double scale,
                                        const BinaryCrossEntropyOptions& options) {
  constexpr const char* where = "binary_cross_entropy_with_logits";
  const auto [logits, target] = in_common_dtype(prediction, probabilities);
  check_pair(where, "logits", logits, target);
  check_no_gradient(where, target, "give target.detach()");
  BinaryCrossEntropyOptions factors;
  if (options.weight.defined()) factors.weight = checked_weight("weight", options.weight, logits);
  if (options.pos_weight.defined()) factors.pos_weight = checked_weight("pos_weight", options.pos_weight, logits);
  return sum_of_terms(wide(logits), scale,
                      [t = wide(target.detach()), factors](const Tensor& x) { return binary_terms(x, t, factors); });
}

Tensor kl_div(const Tensor& prediction, const Tensor& probabilities, double scale, bool log_target) {
  const auto [log_prediction, target] = in_common_dtype(prediction, probabilities);
  check_pair("kl_div", "log_prediction", log_prediction, target);
  const Tensor q = wide(log_prediction), t = wide(target);
  if (log_target) return sum(exp(t) * (t - q)) * scale;
  check_no_gradient("kl_div", target, "give its logarithm with log_target = true, or target.detach()");
  return sum_of_terms(q, scale, [t](const Tensor& log_q) {
    constexpr double smallest = 1e-37;  // of normal f32 numbers, about; 0 log(smallest) is 0
    const Tensor log_t = log(relu(t + -smallest) + smallest);
    return LossTerms{t * (log_t - log_q), -t};
  });
}

}  // namespace trireme::nn
