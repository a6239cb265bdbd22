// The matrix products of a mixture of experts: rows are sorted by expert, and each run of rows meets its own matrix.
#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"

namespace trireme {
namespace {

/// For each group g, on its rows: y = x W_g^T + b_g;  dx = dy W_g, dW_g = dy^T x, db_g = sum of dy's rows.
///
/// FLOPs: 2 R in out forward, twice that backward, whatever the groups. As in `linear`, dW is accumulated by the
/// product itself into the parameter's f32 gradient where there is one. A group without rows contributes zeros.
struct GroupedLinear : Op {
  static constexpr const char* name = "grouped_linear";
  std::vector<std::int64_t> starts;  // [G + 1]
  Tensor rows;                       // [R, in]
  Tensor matrices;                   // [G, out, in]
  Shape weight_shape, bias_shape;

  template <class Each>
  void for_each_group(const Each& each) const {
    for (std::size_t g = 0; g + 1 < starts.size(); ++g) {
      if (starts[g + 1] > starts[g]) each(static_cast<std::int64_t>(g), starts[g], starts[g + 1] - starts[g]);
    }
  }

  Tensor forward(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    weight_shape = weight.shape();
    bias_shape = bias.shape();
    rows = contiguous(x);
    matrices = view::reshape(contiguous(weight), {weight.size(0), -1, weight.size(-1)});
    const std::int64_t out = matrices.size(1);
    const Tensor biases = bias.defined() ? view::reshape(contiguous(bias), {weight.size(0), out}) : Tensor();
    const Tensor y = Tensor::empty({rows.size(0), out}, x.dtype(), x.device());  // [R, out]
    for_each_group([&](std::int64_t g, std::int64_t start, std::int64_t count) {
      GemmOptions options;
      if (biases.defined()) options.bias = view::select(biases, 0, g);
      Tensor part = view::slice(y, 0, start, count);
      kernels(x.device())
          .gemm(view::slice(rows, 0, start, count), view::transpose(view::select(matrices, 0, g), 0, 1), part, options);
    });
    return y;
  }

  Gradients backward(const Tensor& gradient) const {
    const Tensor dy = contiguous(gradient);  // [R, out]
    Gradients gradients(3);
    if (needs(0)) gradients[0] = input_gradient(dy);
    if (needs(1)) gradients[1] = weight_gradient(dy);
    if (needs(2)) gradients[2] = bias_gradient(dy);
    return gradients;
  }

  Tensor input_gradient(const Tensor& dy) const {
    const Tensor dx = Tensor::empty(rows.shape(), rows.dtype(), rows.device());  // [R, in]
    for_each_group([&](std::int64_t g, std::int64_t start, std::int64_t count) {
      Tensor part = view::slice(dx, 0, start, count);
      kernels(dy.device()).gemm(view::slice(dy, 0, start, count), view::select(matrices, 0, g), part, {});
    });
    return dx;
  }

  Tensor weight_gradient(const Tensor& dy) const {
    Leaf* leaf = leaves[1];
    const bool in_place = leaf != nullptr && leaf->grad().defined() && leaf->grad().contiguous();
    const Tensor sum = in_place ? view::reshape(leaf->grad(), matrices.shape())
                                : Tensor::zeros(matrices.shape(), accumulate_dtype(dy), dy.device());
    for_each_group([&](std::int64_t g, std::int64_t start, std::int64_t count) {
      Tensor part = view::select(sum, 0, g);  // [out, in]
      kernels(dy.device())
          .gemm(view::transpose(view::slice(dy, 0, start, count), 0, 1), view::slice(rows, 0, start, count), part,
                {.alpha = 1.0, .beta = 1.0, .bias = {}});
    });
    return in_place ? Tensor() : cast(view::reshape(sum, weight_shape), matrices.dtype());
  }

  Tensor bias_gradient(const Tensor& dy) const {
    const Tensor db = Tensor::zeros({matrices.size(0), matrices.size(1)}, dy.dtype(), dy.device());
    for_each_group([&](std::int64_t g, std::int64_t start, std::int64_t count) {
      Tensor part = view::slice(db, 0, g, 1);  // [1, out]
      kernels(dy.device()).reduce(Reduction::sum, view::slice(dy, 0, start, count), part);
    });
    return view::reshape(db, bias_shape);
  }
};

}  // namespace

Tensor grouped_linear(const Tensor& x, const std::vector<std::int64_t>& starts, const Tensor& weight,
                      const Tensor& bias) {
  require(weight.dims() >= 3 && x.dims() == 2 && x.size(1) == weight.size(-1), "grouped_linear",
          "the weight {} does not take rows of shape {}: last extents must be equal", weight.shape(), x.shape());
  require(static_cast<std::int64_t>(starts.size()) == weight.size(0) + 1 && starts.front() == 0 &&
              starts.back() == x.size(0),
          "grouped_linear", "{} starts do not cut {} rows into {} groups", starts.size(), x.size(0), weight.size(0));
  require(!bias.defined() || bias.count() * weight.size(-1) == weight.count(), "grouped_linear",
          "the weight {} needs a bias of {} elements, got {}", weight.shape(), weight.count() / weight.size(-1),
          bias.shape());
  require(x.dtype() == weight.dtype(), "grouped_linear", "dtypes differ: input {}, weight {}", name(x.dtype()),
          name(weight.dtype()));
  GroupedLinear op;
  op.starts = starts;
  return apply(std::move(op), x, weight, bias);
}

}  // namespace trireme
