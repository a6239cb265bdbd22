#include "core/gemm_steps.h"

#include <utility>

namespace trireme {

void check_epilogue(const Tensor& a, const Tensor& c, const GemmOptions& options) {
  require(
      c.dtype() == a.dtype() && c.contiguous(), "gemm",
      "an activation or a residual after a product of {}, whose result is {}, {} with strides {}; expected the same "
      "dtype, dense",
      name(a.dtype()), name(c.dtype()), c.shape(), c.strides());
  require(options.beta == 0, "gemm", "an activation or a residual with beta {}; expected 0", options.beta);
  require(options.activation || (!options.derivative && !options.pre_activation.defined()), "gemm",
          "{} without an activation; give it", options.derivative ? "a derivative" : "pre_activation");
  require(!options.derivative || options.pre_activation.defined(), "gemm",
          "the derivative of an activation is taken at pre_activation, which is undefined; give it");
  for (const Tensor* const as_c : {&options.pre_activation, &options.residual})
    require(!as_c->defined() || (as_c->shape() == c.shape() && as_c->dtype() == c.dtype() && as_c->contiguous()),
            "gemm", "pre_activation or residual {} {} beside a result {} {}; expected the same shape and dtype, dense",
            name(as_c->dtype()), as_c->shape(), name(c.dtype()), c.shape());
}

void check_row_sums(const Tensor& a, const GemmOptions& options) {
  const Tensor& sums = options.row_sums;
  if (!sums.defined()) return;
  require(a.dims() == 2, "gemm", "row sums of a batch {}; expected one matrix", a.shape());
  require(sums.shape() == Shape{a.size(0)} && sums.dtype() == accumulate_dtype(a.dtype()) && sums.contiguous(), "gemm",
          "row sums {} {} of a matrix {} {}; expected {} [{}], dense", name(sums.dtype()), sums.shape(),
          name(a.dtype()), a.shape(), name(accumulate_dtype(a.dtype())), a.size(0));
}

GemmOptions row_sums_apart(const KernelTable& table, const Tensor& a, const GemmOptions& options) {
  GemmOptions rest = options;
  Tensor sums = view::reshape(std::exchange(rest.row_sums, {}), {a.size(0), 1});
  table.reduce(Reduction::sum, a, sums);
  return rest;
}

void gemm_in_steps(const KernelTable& table, const Tensor& a, const Tensor& b, Tensor& c, const GemmOptions& options) {
  const bool stored = options.activation && !options.derivative && options.pre_activation.defined();
  Tensor sum = stored ? options.pre_activation : c;
  table.gemm(a, b, sum, {.alpha = options.alpha, .bias = options.bias, .b_is_weight = options.b_is_weight});
  if (options.derivative) {
    table.unary_backward(*options.activation, options.pre_activation, c, c);
  } else if (options.activation) {
    table.unary(*options.activation, sum, c);
  }
  if (options.residual.defined()) table.binary(Binary::add, c, options.residual, c);
}

}  // namespace trireme
