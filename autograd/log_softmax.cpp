// log_softmax and logsumexp over the last dim; other dims are exchanged with it.
//
// The CPU has kernels of log_softmax. Elsewhere, the maximum of a row and the sum of exp(x - maximum) come from the
// kernel of the cross-entropy, in one pass over x.
#include <limits>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/reduced_dims.h"
#include "autograd/support.h"
#include "core/columns.h"
#include "core/cpu/channel_kernels.h"

namespace trireme {
namespace {

/// Of each row of x [N, D], in acc, [N, 1]: the maximum m, and the sum of exp(x - m).
struct RowSums {
  Tensor maximum, sum_exp;

  RowSums() = default;
  explicit RowSums(const Tensor& rows)
      : maximum(Tensor::empty({rows.size(0), 1}, accumulate_dtype(rows), rows.device())), sum_exp(empty_like(maximum)) {
    const std::int64_t width = rows.size(1);
    const Tensor no_targets = Tensor::zeros({rows.size(0)}, DType::i32, rows.device());  // any will do
    Tensor unused = empty_like(maximum);
    kernels(rows.device())
        .cross_entropy_stats(rows, no_targets, {.first = 0, .valid = width, .global = width}, maximum, sum_exp, unused,
                             unused);
  }
};

Tensor both(Binary op, const Tensor& a, const Tensor& b) {
  Tensor y = empty_like(a);
  kernels(a.device()).binary(op, a, view::expand(b, a.shape()), y);
  return y;
}
Tensor log_of(const Tensor& x) {
  Tensor y = empty_like(x);
  kernels(x.device()).unary(Unary::log, x, y);
  return y;
}
/// condition ? a : b; a is a number.
Tensor number_where(const Tensor& condition, double a, const Tensor& b) {
  Tensor y = empty_like(b);
  const Tensor number = Tensor::full({}, a, b.dtype(), b.device());
  kernels(b.device()).where(condition, view::expand(number, b.shape()), b, y);
  return y;
}
Tensor equals(const Tensor& x, double value) {
  return both(Binary::equal, x, Tensor::full({}, value, x.dtype(), x.device()));
}

constexpr double infinity = std::numeric_limits<double>::infinity();

/// y = (x - m) - log(sum(exp(x - m))) over the last dim, with m the maximum;  dx = dy - exp(y) sum(dy)
///
/// In this order, as x - (m + log(..)) loses digits where x is large.
struct LogSoftmax : Op {
  static constexpr const char* name = "log_softmax";
  Tensor y;
  Tensor forward(const Tensor& x) {
    const Tensor rows = as_rows(x);
    Tensor result;
    if (x.device() == Device::cpu) {
      result = empty_like(rows);
      cpu::channel_kernels().log_softmax(rows, result);
    } else {
      const RowSums sums(rows);
      const Tensor shifted = both(Binary::subtract, cast(rows, sums.maximum.dtype()), sums.maximum);
      result = cast(both(Binary::subtract, shifted, log_of(sums.sum_exp)), x.dtype());
    }
    y = view::reshape(result, x.shape());
    return y;
  }
  Gradients backward(const Tensor& gradient) const {
    const Tensor rows = as_rows(y), dy = as_rows(gradient);
    if (y.device() == Device::cpu) {
      const Tensor dx = empty_like(rows);
      cpu::channel_kernels().log_softmax_backward(rows, dy, dx);
      return {view::reshape(dx, y.shape())};
    }
    const KernelTable& k = kernels(y.device());
    const DType acc = accumulate_dtype(y);
    Tensor total = Tensor::empty({rows.size(0), 1}, acc, y.device()), p = Tensor::empty(rows.shape(), acc, y.device());
    k.reduce(Reduction::sum, dy, total);
    copy(rows, p);
    k.unary(Unary::exp, p, p);
    k.binary(Binary::multiply, p, view::expand(total, p.shape()), p);
    k.axpby(1, dy, -1, p);  // dy - p
    return {view::reshape(cast(p, y.dtype()), y.shape())};
  }
};

/// y = m + log(sum(exp(x - m))) over the last dim, which stays with size 1;  dx = exp(x - m) dy / sum(exp(x - m))
///
/// A row whose maximum is infinite has y = m. If it is -infinity, dx is 0.
struct LogSumExp : Op {
  static constexpr const char* name = "logsumexp";
  Tensor x;
  RowSums sums;
  Tensor forward(const Tensor& input) {
    x = input;
    sums = RowSums(as_rows(x));
    const KernelTable& k = kernels(x.device());
    const Tensor finite = both(Binary::add, log_of(sums.sum_exp), sums.maximum);
    Tensor size = empty_like(finite), y = empty_like(finite);
    k.unary(Unary::abs, sums.maximum, size);
    k.where(equals(size, infinity), sums.maximum, finite, y);
    return view::reshape(cast(y, x.dtype()), x.shape().with(-1, 1));
  }
  Gradients backward(const Tensor& gradient) const {
    const KernelTable& k = kernels(x.device());
    const Tensor dy = view::reshape(contiguous(cast(gradient, sums.maximum.dtype())), sums.maximum.shape());
    const Tensor factor = number_where(equals(sums.sum_exp, 0), 0, both(Binary::divide, dy, sums.sum_exp));
    const Tensor top = number_where(equals(sums.maximum, -infinity), 0, sums.maximum);
    Tensor dx = both(Binary::subtract, cast(as_rows(x), top.dtype()), top);
    k.unary(Unary::exp, dx, dx);
    k.binary(Binary::multiply, dx, view::expand(factor, dx.shape()), dx);
    return {view::reshape(cast(dx, x.dtype()), x.shape())};
  }
};

int filled_dim(const char* where, const Tensor& x, int dim) {
  require_floating(where, x);
  const int along = checked_dim(where, x, dim);
  require(x.size(along) > 0, where, "dim {} of {} has no elements; expected at least one", dim, x.shape());
  return along;
}

}  // namespace

Tensor log_softmax(const Tensor& input, int dim) {
  const Tensor x = in_f32(input);
  const int along = filled_dim(LogSoftmax::name, x, dim);
  require_all_columns(LogSoftmax::name, x, along);
  return with_columns_of(x, exchanged_with_last(apply(LogSoftmax{}, exchanged_with_last(x, along)), along));
}

Tensor logsumexp(const Tensor& input, int dim, bool keep_dim) {
  const Tensor x = in_f32(input);
  const int along = filled_dim(LogSumExp::name, x, dim);
  require_no_padding(LogSumExp::name, x, along);
  const Tensor kept = exchanged_with_last(apply(LogSumExp{}, exchanged_with_last(x, along)), along);
  return keep_dim ? kept : reshape(kept, kept.shape().without(along));
}

}  // namespace trireme
