// Two layers and the activation between them, fused into the products. Forward, the first product applies the
// activation as it stores its result. Backward, the product dy B applies the derivative as it stores its result. So if
// [N, F] does not fit the caches, the activation needs no pass over it of its own (core/gemm_steps.h lists the
// exceptions).
#include "autograd/linear_gradients.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"

namespace trireme {
namespace {

/// u = x A^T + a, h = activation(u), y = h B^T + b + residual
///
/// dh = dy B, du = dh activation'(u), dx = du A;  dB = dy^T h, dA = du^T x, db and da sums of rows, dresidual = dy
///
/// FLOPs: 2 N F (in + out) forward, twice that backward.
struct MlpOp : Op {
  static constexpr const char* name = "mlp";
  Unary activation = Unary::gelu;
  bool weights_kept = false;  // both are parameters, which keep their values until the optimizer's step
  SavedInput input;           // x [.., in]
  Tensor u, h;                // [N, F]; h is undefined if backward recomputes it from u
  Tensor in, out;             // A [F, in], B [out, F]
  Shape input_shape, in_shape, in_bias_shape, out_shape, out_bias_shape;

  Tensor forward(const Tensor& x, const Tensor& a, const Tensor& a_bias, const Tensor& b, const Tensor& b_bias,
                 const Tensor& residual) {
    input_shape = x.shape();
    in_shape = a.shape();
    in_bias_shape = a_bias.shape();
    out_shape = b.shape();
    out_bias_shape = b_bias.shape();
    input = SavedInput(*this, 0, x);
    const Tensor rows = as_rows(x);  // [N, in]
    in = as_rows(a);
    out = as_rows(b);
    weights_kept = weights_kept && in.shares_storage_with(a) && out.shares_storage_with(b);
    const auto flat = [](const Tensor& bias) {
      return bias.defined() ? view::reshape(contiguous(bias), {bias.count()}) : Tensor();
    };
    h = Tensor::empty({rows.size(0), in.size(0)}, x.dtype(), x.device());
    if (needed != 0) u = empty_like(h);
    kernels(x.device())
        .gemm(rows, view::transpose(in, 0, 1), h,
              {.bias = flat(a_bias), .b_is_weight = weights_kept, .activation = activation, .pre_activation = u});
    Tensor y = Tensor::empty({rows.size(0), out.size(0)}, x.dtype(), x.device());  // [N, out]
    kernels(x.device())
        .gemm(h, view::transpose(out, 0, 1), y,
              {.bias = flat(b_bias),
               .b_is_weight = weights_kept,
               .residual = residual.defined() ? as_rows(residual) : Tensor()});
    if (RepeatCheapInputs::active()) h = Tensor();
    return view::reshape(y, input_shape.with(-1, out.size(0)));
  }

  Gradients backward(const Tensor& gradient) {
    const Tensor dy = as_rows(gradient);  // [N, out]
    Gradients gradients(6);
    Tensor du;  // [N, F]
    if (needs(0) || needs(1) || needs(2)) {
      du = empty_like(u);
      kernels(dy.device())
          .gemm(dy, out, du,
                {.b_is_weight = weights_kept, .activation = activation, .derivative = true, .pre_activation = u});
    }
    layer_gradients(*this, 3, needs(3) ? hidden() : Tensor(), dy, out_shape, out_bias_shape, gradients);
    if (!retained) u = h = Tensor();
    if (needs(5)) gradients[5] = gradient;
    if (needs(0)) gradients[0] = input_gradient(du, in, weights_kept, input_shape);
    const Tensor x = needs(1) ? as_rows(input.get()) : Tensor();
    layer_gradients(*this, 1, x, du, in_shape, in_bias_shape, gradients);
    return gradients;
  }

  Tensor hidden() const {
    if (h.defined()) return h;
    Tensor again = empty_like(u);
    kernels(u.device()).unary(activation, u, again);
    return again;
  }
};

void check_layer(const char* which, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  require(weight.dims() >= 2 && x.dims() >= 1 && x.size(-1) == weight.size(-1) && x.dtype() == weight.dtype(), "mlp",
          "the {} weight {} {} does not take inputs {} {}: dtypes and last extents must be equal", which,
          name(weight.dtype()), weight.shape(), name(x.dtype()), x.shape());
  require(!bias.defined() || bias.count() == row_count(weight), "mlp",
          "the {} weight {} needs a bias of {} elements, got {}", which, weight.shape(), row_count(weight),
          bias.shape());
  check_bias_dtype("mlp", bias, x);
}

}  // namespace

Tensor mlp(const Tensor& input, const MlpWeights& given, Unary activation, const Tensor& residual) {
  const Tensor x = for_product(input);
  const MlpWeights weights = {.in = for_product(given.in),
                              .in_bias = for_product(given.in_bias),
                              .out = for_product(given.out),
                              .out_bias = for_product(given.out_bias)};
  if (Autocast::current() && residual.defined() && residual.dtype() != x.dtype())
    return residual + mlp(x, weights, activation);
  check_layer("first", x, weights.in, weights.in_bias);
  const Shape hidden = x.shape().with(-1, row_count(weights.in));
  require(weights.out.dims() >= 2 && weights.out.size(-1) == hidden[-1] && weights.out.dtype() == x.dtype(), "mlp",
          "the second weight {} {} does not take the first one's results {} {}: dtypes and last extents must be equal",
          name(weights.out.dtype()), weights.out.shape(), name(x.dtype()), hidden);
  require(!weights.out_bias.defined() || weights.out_bias.count() == row_count(weights.out), "mlp",
          "the second weight {} needs a bias of {} elements, got {}", weights.out.shape(), row_count(weights.out),
          weights.out_bias.shape());
  check_bias_dtype("mlp", weights.out_bias, x);
  check_residual("mlp", residual, x, weights.out);
  MlpOp op;
  op.activation = activation;
  op.weights_kept = leaf_of(weights.in) != nullptr && leaf_of(weights.out) != nullptr;
  return apply(std::move(op), x, weights.in, weights.in_bias, weights.out, weights.out_bias, residual);
}

}  // namespace trireme
