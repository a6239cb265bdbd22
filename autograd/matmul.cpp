// Matrix products. Transposes are views, so every product here is one call of the gemm kernel.
#include "autograd/deferred.h"
#include "autograd/linear_gradients.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"

namespace trireme {
namespace {

/// The leading dims of a product: the broadcast of those of a and b.
Shape leading_dims(const Tensor& a, const Tensor& b) {
  const auto lead = [](const Tensor& t) { return t.shape().without(-1).without(-1); };
  return broadcast_shape(lead(a), lead(b), "matmul");
}

Shape with_matrix(const Shape& leading, std::int64_t rows, std::int64_t columns) {
  Shape shape = leading;
  std::vector<std::int64_t> extents(shape.begin(), shape.end());
  extents.push_back(rows);
  extents.push_back(columns);
  return Shape(std::span<const std::int64_t>(extents));
}

/// gemm takes matrices with one of their two strides equal to 1.
Tensor as_operand(const Tensor& x) {
  const Shape& s = x.strides();
  return s[-1] == 1 || s[-2] == 1 ? x : contiguous(x);
}

Tensor product(const Tensor& a, const Tensor& b, DType dtype) {
  const Shape leading = leading_dims(a, b);
  Tensor c = Tensor::empty(with_matrix(leading, a.size(-2), b.size(-1)), dtype, a.device());
  const Tensor wide_a = view::expand(as_operand(a), with_matrix(leading, a.size(-2), a.size(-1)));
  const Tensor wide_b = view::expand(as_operand(b), with_matrix(leading, b.size(-2), b.size(-1)));
  kernels(a.device()).gemm(wide_a, wide_b, c, {});
  return c;
}

/// c = a b;  da = dc b^T, db = a^T dc. The gradient of a weight on the right may be deferred (autograd/deferred.h).
struct Matmul : Op {
  static constexpr const char* name = "matmul";
  Tensor a, b;
  Tensor forward(const Tensor& left, const Tensor& right) {
    a = left;
    b = right;
    return product(a, b, a.dtype());
  }
  Gradients backward(const Tensor& dc) const {
    Gradients gradients(2);
    const DType a_dtype = gradient_dtype(0, a.dtype()), b_dtype = gradient_dtype(1, b.dtype());
    if (needs(0)) gradients[0] = sum_to(product(dc, view::transpose(b, -1, -2), a_dtype), a.shape(), a_dtype);
    if (!needs(1)) return gradients;
    const auto db = [left = a, dc, shape = b.shape(), b_dtype] {
      return sum_to(product(view::transpose(left, -1, -2), dc, b_dtype), shape, b_dtype);
    };
    if (Leaf* leaf = leaves[1]) {
      add_weight_gradient(*leaf, [leaf, db] { leaf->accumulate(db()); });
    } else {
      gradients[1] = db();
    }
    return gradients;
  }
};

/// y = x W^T + bias + residual;  dx = dy W, dW = dy^T x, dbias = sum of dy's rows, dresidual = dy
///
/// FLOPs: 2 N in out forward, twice that backward.
struct Linear : Op {
  static constexpr const char* name = "linear";
  SavedInput input;        // [.., in]
  Tensor matrix;           // [out, in]
  bool is_weight = false;  // a parameter: it keeps its values until the optimizer's step
  Shape input_shape, weight_shape, bias_shape;

  Tensor forward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& residual) {
    input_shape = x.shape();
    weight_shape = weight.shape();
    input = SavedInput(*this, 0, x);
    const Tensor rows = as_rows(x);  // [N, in]
    matrix = as_rows(weight);
    is_weight = is_weight && matrix.shares_storage_with(weight);
    GemmOptions options{.b_is_weight = is_weight};
    if (bias.defined()) options.bias = view::reshape(contiguous(bias), {bias.count()});
    if (residual.defined()) options.residual = as_rows(residual);
    Tensor y = Tensor::empty({rows.size(0), matrix.size(0)}, x.dtype(), x.device());  // [N, out]
    kernels(x.device()).gemm(rows, view::transpose(matrix, 0, 1), y, options);
    return view::reshape(y, input_shape.with(-1, matrix.size(0)));
  }

  Gradients backward(const Tensor& gradient) const {
    const Tensor dy = as_rows(gradient);  // [N, out]
    Gradients gradients(4);
    if (needs(0)) gradients[0] = input_gradient(dy, matrix, is_weight, input_shape);
    // The input must be read now: after backward it cannot be recomputed.
    const Tensor x = needs(1) ? as_rows(input.get()) : Tensor();
    layer_gradients(*this, 1, x, dy, weight_shape, bias_shape, gradients);
    if (needs(3)) gradients[3] = gradient;
    return gradients;
  }
};

}  // namespace

Tensor matmul(const Tensor& left, const Tensor& right) {
  const Tensor a = for_product(left), b = for_product(right);
  require_floating(Matmul::name, a);
  require_floating(Matmul::name, b);
  require(a.dims() >= 2 && b.dims() >= 2, "matmul", "expected matrices, got shapes {} and {}", a.shape(), b.shape());
  require(a.size(-1) == b.size(-2), "matmul", "inner extents differ: {} @ {}", a.shape(), b.shape());
  require(a.dtype() == b.dtype(), "matmul", "dtypes differ: {} and {}; cast_to one of them", name(a.dtype()),
          name(b.dtype()));
  return apply(Matmul{}, a, b);
}

Tensor linear(const Tensor& input, const Tensor& matrix, const Tensor& shift, const Tensor& residual) {
  const Tensor x = for_product(input), weight = for_product(matrix), bias = for_product(shift);
  if (Autocast::current() && residual.defined() && residual.dtype() != x.dtype())
    return residual + linear(x, weight, bias);
  require_floating(Linear::name, x);
  require(weight.dims() >= 2 && x.dims() >= 1 && x.size(-1) == weight.size(-1), "linear",
          "the weight {} does not take inputs of shape {}: last extents must be equal", weight.shape(), x.shape());
  require(!bias.defined() || bias.count() == row_count(weight), "linear",
          "the weight {} needs a bias of {} elements, got {}", weight.shape(), row_count(weight), bias.shape());
  require(x.dtype() == weight.dtype(), "linear", "dtypes differ: input {}, weight {}", name(x.dtype()),
          name(weight.dtype()));
  check_bias_dtype("linear", bias, x);
  check_residual("linear", residual, x, weight);
  Linear op;
  op.bias_shape = bias.shape();
  op.is_weight = leaf_of(weight) != nullptr;
  return apply(std::move(op), x, weight, bias, residual);
}

}  // namespace trireme
