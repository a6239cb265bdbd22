#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/support.h"
#include "core/columns.h"
#include "core/ids.h"

namespace trireme {
namespace {

/// y[s] = x[index[s]], or 0 where the index is negative;  dx[n] = sum of dy[s] over the s that picked n, in
/// their order. The same kernels as an embedding, with an activation instead of the table.
struct GatherRows : Op {
  static constexpr const char* name = "gather_rows";
  static constexpr bool keeps_f32 = true;
  Tensor index;  // [S]
  Shape from;
  DType dtype = DType::f32;

  Tensor forward(const Tensor& x) {
    from = x.shape();
    dtype = x.dtype();
    Tensor y = Tensor::empty({index.count(), x.size(1)}, dtype, x.device());  // [S, D]
    kernels(x.device()).embedding(contiguous(x), index, 0, y);
    return y;
  }

  Gradients backward(const Tensor& dy) const {
    Tensor dx = Tensor::zeros(from, accumulate_dtype(dy), dy.device());  // [N, D]
    kernels(dy.device()).embedding_backward(contiguous(dy), index, 0, dx);
    return {cast(dx, gradient_dtype(0, dtype))};
  }
};

}  // namespace

Tensor gather_rows(const Tensor& x, const Tensor& index) {
  require(x.dims() == 2, "gather_rows", "expected rows [N, D], got {}", x.shape());
  check_ids("gather_rows", "index", index, {.first = 0, .end = x.size(0), .negative = true},
            "change the indices; a negative one gives a row of zeros");
  GatherRows op;
  op.index = view::reshape(contiguous(index), {index.count()}).to(x.device());
  op.saved.add(op.index, "index");
  return with_columns_of(x, apply(std::move(op), x));
}

Tensor pick(const Tensor& x, const Tensor& column) {
  require(x.dims() == 2 && column.dims() == 2 && x.size(0) == column.size(0), "pick",
          "expected x [N, E] and columns [N, K], got {} and {}", x.shape(), column.shape());
  require(x.count() <= INT32_MAX, "pick", "{} elements are too many for i32 indices", x.count());
  const std::int64_t rows = x.size(0), picks = column.size(1);
  Tensor element = Tensor::empty({rows, picks}, DType::i32);  // its number in the dense x
  const Tensor columns = contiguous(column).to(Device::cpu);
  check_ids("pick", "column", columns, {.first = 0, .end = x.size(1)}, "change the columns");
  const auto* from = columns.data<std::int32_t>();
  for (std::int64_t i = 0; i < rows * picks; ++i)
    element.data<std::int32_t>()[i] = static_cast<std::int32_t>(i / picks * x.size(1)) + from[i];
  return reshape(gather_rows(reshape(x, {x.count(), 1}), element), {rows, picks});
}

}  // namespace trireme
