// The matrix products of a mixture of experts: rows are sorted by expert, and each run of rows is multiplied by its own
// matrix.
#include "autograd/deferred.h"
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"

namespace trireme {
namespace {

/// Calls each(g, first row, rows) for every group that has rows.
template <class Each>
void for_each_group(const std::vector<std::int64_t>& starts, const Each& each) {
  for (std::size_t g = 0; g + 1 < starts.size(); ++g) {
    if (starts[g + 1] > starts[g]) each(static_cast<std::int64_t>(g), starts[g], starts[g + 1] - starts[g]);
  }
}

/// For each group g, on its rows: y = x W_g^T + b_g;  dx = dy W_g, dW_g = dy^T x, db_g = sum of dy's rows.
///
/// FLOPs: 2 R in out forward, twice that backward, whatever the groups. As in `linear`, the product adds dW to a leaf's
/// gradient itself, and may be deferred (autograd/deferred.h). A group without rows contributes zeros.
struct GroupedLinear : Op {
  static constexpr const char* name = "grouped_linear";
  std::vector<std::int64_t> starts;  // [G + 1]
  SavedInput input;                  // [R, in]
  Tensor matrices;                   // [G, out, in]
  Shape weight_shape, bias_shape;

  Tensor forward(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    weight_shape = weight.shape();
    bias_shape = bias.shape();
    input = SavedInput(*this, 0, x);
    const Tensor rows = contiguous(x);
    matrices = view::reshape(contiguous(weight),
                             {weight.size(0), weight.shape().without(0).without(-1).count(), weight.size(-1)});
    const std::int64_t out = matrices.size(1);
    const Tensor biases = bias.defined() ? view::reshape(contiguous(bias), {weight.size(0), out}) : Tensor();
    Tensor y = Tensor::empty({rows.size(0), out}, x.dtype(), x.device());  // [R, out]
    kernels(x.device()).grouped_gemm(rows, view::transpose(matrices, 1, 2), biases, starts, y);
    return y;
  }

  Gradients backward(const Tensor& gradient) const {
    const Tensor dy = contiguous(gradient);  // [R, out]
    Gradients gradients(3);
    if (needs(0)) gradients[0] = input_gradient(dy);
    if (needs(1)) {
      const Tensor x = contiguous(input.get());  // [R, in]; now: after backward it cannot be recomputed
      if (Leaf* leaf = leaves[1]) {
        add_weight_gradient(*leaf, [leaf, dy, x, runs = starts, groups = matrices.shape(), shape = weight_shape] {
          accumulate(*leaf, dy, x, runs, groups, shape);
        });
      } else {
        gradients[1] =
            weight_gradient(dy, x, starts, matrices.shape(), weight_shape, gradient_dtype(1, matrices.dtype()));
      }
    }
    if (needs(2)) gradients[2] = bias_gradient(dy);
    return gradients;
  }

  Tensor input_gradient(const Tensor& dy) const {
    Tensor dx = Tensor::empty({dy.size(0), matrices.size(2)}, dy.dtype(), dy.device());  // [R, in]
    kernels(dy.device()).grouped_gemm(dy, matrices, {}, starts, dx);
    return dx;
  }

  static Tensor weight_gradient(const Tensor& dy, const Tensor& x, const std::vector<std::int64_t>& starts,
                                const Shape& groups, const Shape& shape, DType dtype) {
    Tensor sum = Tensor::empty(groups, accumulate_dtype(dy), dy.device());  // [G, out, in]
    kernels(dy.device()).grouped_gemm_tn(dy, x, starts, false, sum);
    return cast(view::reshape(sum, shape), dtype);
  }

  static void accumulate(Leaf& leaf, const Tensor& dy, const Tensor& x, const std::vector<std::int64_t>& starts,
                         const Shape& groups, const Shape& shape) {
    if (leaf.sum().defined() && leaf.sum().contiguous()) {
      Tensor sum = view::reshape(leaf.sum(), groups);  // [G, out, in]
      kernels(dy.device()).grouped_gemm_tn(dy, x, starts, leaf.consume_beta() != 0, sum);
    } else {
      leaf.accumulate(weight_gradient(dy, x, starts, groups, shape, leaf.gradient_dtype()));
    }
  }

  Tensor bias_gradient(const Tensor& dy) const {
    const DType dtype = gradient_dtype(2, dy.dtype());
    const Tensor db = Tensor::zeros({matrices.size(0), matrices.size(1)}, dtype, dy.device());  // [G, out]
    for_each_group(starts, [&](std::int64_t g, std::int64_t start, std::int64_t count) {
      Tensor part = view::slice(db, 0, g, 1);  // [1, out]
      kernels(dy.device()).reduce(Reduction::sum, view::slice(dy, 0, start, count), part);
    });
    return view::reshape(db, bias_shape);
  }
};

}  // namespace

Tensor grouped_linear(const Tensor& rows, const std::vector<std::int64_t>& starts, const Tensor& matrices,
                      const Tensor& biases) {
  const Tensor x = for_product(rows), weight = for_product(matrices), bias = for_product(biases);
  require(weight.dims() >= 3 && x.dims() == 2 && x.size(1) == weight.size(-1), "grouped_linear",
          "the weight {} does not take rows of shape {}: last extents must be equal", weight.shape(), x.shape());
  require(static_cast<std::int64_t>(starts.size()) == weight.size(0) + 1 && starts.front() == 0 &&
              starts.back() == x.size(0),
          "grouped_linear", "{} starts do not cut {} rows into {} groups", starts.size(), x.size(0), weight.size(0));
  require(!bias.defined() || bias.count() == row_count(weight), "grouped_linear",
          "the weight {} needs a bias of {} elements, got {}", weight.shape(), row_count(weight), bias.shape());
  require(x.dtype() == weight.dtype(), "grouped_linear", "dtypes differ: input {}, weight {}", name(x.dtype()),
          name(weight.dtype()));
  check_bias_dtype("grouped_linear", bias, x);
  for (std::size_t g = 0; g + 1 < starts.size(); ++g)
    require(starts[g] <= starts[g + 1], "grouped_linear",
            "the starts fall from {} to {} after group {}; expected them to "
            "rise from 0 to the {} rows",
            starts[g], starts[g + 1], g, x.size(0));
  GroupedLinear op;
  op.starts = starts;
  return apply(std::move(op), x, weight, bias);
}

}  // namespace trireme
